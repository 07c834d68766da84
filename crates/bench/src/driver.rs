//! One thread's event loop over its connections, closed loop or open loop.
//!
//! *Closed loop*: every connection sends `pipeline` requests together, and the next ones when all are answered; or, sliding, each
//! answer brings the next request.
//! *Open loop*: the times of requests do not depend on the answers. A request whose time comes while every connection is
//! busy waits, and its latency counts from the time it was due: there is no coordinated omission. Between requests the thread
//! polls without sleep, which needs a separate core, or, with an alarm, sleeps.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::address::Address;
use crate::alarm::{self, Alarm};
use crate::connection::{Connection, Context};
use crate::error::{BenchError, Result};
use crate::recorder::{Recorder, SharedTally};
use crate::schedule::Schedule;
use crate::workload::Source;

/// Longest wait for an event, so that a change of phase is noticed.
const NAP: Duration = Duration::from_millis(10);
/// The kernel's timer for polls counts in milliseconds; anything due earlier is waited for by polling without sleep.
const TIMER: u64 = 1_000_000;

/// What all threads are doing now.
#[derive(Debug, Default)]
pub struct Phase(AtomicU8);

impl Phase {
    /// 0, the default, is the warm-up.
    const MEASURE: u8 = 1;
    const STOP: u8 = 2;

    /// Starts the timed phase.
    pub fn measure(&self) {
        self.0.store(Self::MEASURE, Ordering::Release);
    }

    /// Ends the load; requests on their way are not waited for.
    pub fn stop(&self) {
        self.0.store(Self::STOP, Ordering::Release);
    }
}

/// How a thread decides when to send.
#[derive(Debug)]
pub enum Pace {
    /// When the connection's requests are answered: all of them, or, sliding, one.
    Closed {
        /// Whether one answer is enough.
        sliding: bool,
    },
    /// When the schedule says so.
    Open {
        /// The times at which requests are due.
        schedule: Schedule,
        /// What wakes the thread for the next one; without it the thread does not sleep.
        alarm: Option<Alarm>,
    },
}

/// What a thread hands back.
#[derive(Debug)]
pub struct Finished {
    /// What it counted and timed.
    pub recorder: Recorder,
    /// When it handled its last reply, in nanoseconds of the load's clock.
    pub at: u64,
}

/// One thread's loop.
#[derive(Debug)]
pub struct Driver<S> {
    poll: Poll,
    connections: Vec<Connection>,
    context: Context<S>,
    pace: Pace,
    pipeline: usize,
    /// Open loop: connections that may take a request, one entry for each request they may take.
    free: VecDeque<usize>,
    tally: Arc<SharedTally>,
    /// Requests of the timed phase, if their number is limited.
    quota: Option<u64>,
    measuring: bool,
    exhausted: bool,
}

impl<S: Source> Driver<S> {
    /// Opens `count` connections to `address`.
    ///
    /// # Errors
    /// [`BenchError::Connection`], or [`BenchError::System`] when no poll can be had.
    pub fn connect(
        address: &Address,
        count: usize,
        mut context: Context<S>,
        pace: Pace,
        pipeline: usize,
    ) -> Result<Self> {
        let poll = Poll::new().map_err(|source| BenchError::system("open an epoll instance", source))?;
        if let Pace::Open { alarm: Some(alarm), .. } = &pace {
            alarm.register(poll.registry())?;
        }
        let mut connections = Vec::with_capacity(count);
        for index in 0..count {
            let connection = Connection::open(address, context.protocol)?;
            poll.registry()
                .register(
                    &mut SourceFd(&connection.descriptor()),
                    Token(index),
                    Interest::READABLE | Interest::WRITABLE,
                )
                .map_err(|source| BenchError::system("register a connection with epoll", source))?;
            connections.push(connection);
        }
        let free = (0..pipeline).flat_map(|_| 0..count).collect();
        let tally = Arc::new(SharedTally::default());
        let quota = context.quota.take();
        Ok(Self { poll, connections, context, pace, pipeline, free, tally, quota, measuring: false, exhausted: false })
    }

    /// The counts this thread publishes while it runs.
    pub fn tally(&self) -> Arc<SharedTally> {
        Arc::clone(&self.tally)
    }

    /// Runs until the phase says stop, or the source has ended and everything is answered.
    ///
    /// # Errors
    /// [`BenchError::Connection`] or [`BenchError::Protocol`] at the first connection that fails.
    pub fn run(mut self, phase: &Phase) -> Result<Finished> {
        let mut events = Events::with_capacity(self.connections.len().max(64));
        self.follow(phase);
        self.start()?;
        while self.follow(phase) {
            self.send_due()?;
            self.wait(&mut events)?;
            for event in events.iter().filter(|event| event.token() != alarm::TOKEN) {
                self.serve(event.token().0, event.is_readable(), event.is_writable())?;
            }
            self.tally.publish(&self.context.recorder.tally);
            if self.exhausted && self.connections.iter().all(|connection| connection.outstanding() == 0) {
                break;
            }
        }
        Ok(Finished { at: self.context.clock.now(), recorder: self.context.recorder })
    }

    /// Notices a change of phase; false when it is time to stop.
    #[inline]
    fn follow(&mut self, phase: &Phase) -> bool {
        let phase = phase.0.load(Ordering::Acquire);
        if phase == Phase::MEASURE && !self.measuring {
            self.measuring = true;
            self.context.recorder.latencies.clear();
            self.context.quota = self.quota;
        }
        phase != Phase::STOP
    }

    fn start(&mut self) -> Result<()> {
        if matches!(self.pace, Pace::Closed { .. }) {
            for index in 0..self.connections.len() {
                self.refill(index)?;
            }
        }
        Ok(())
    }

    /// Open loop: sends every request whose time has come and that finds a free connection.
    fn send_due(&mut self) -> Result<()> {
        let Pace::Open { schedule, .. } = &mut self.pace else { return Ok(()) };
        let now = self.context.clock.now();
        while !self.free.is_empty() && !self.exhausted {
            let Some(intended) = schedule.due(now) else { break };
            let Some(index) = self.free.pop_front() else { break };
            let connection = &mut self.connections[index];
            self.exhausted = !connection.queue_next(&mut self.context, intended);
            connection.flush()?;
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> Result<()> {
        let timeout = match &self.pace {
            Pace::Open { schedule, alarm } if !self.free.is_empty() && !self.exhausted => {
                let left = schedule.next().saturating_sub(self.context.clock.now());
                match alarm {
                    Some(alarm) if left > 0 => {
                        alarm.set(Duration::from_nanos(left))?;
                        NAP
                    }
                    None if left >= TIMER => Duration::from_nanos(left - TIMER / 2).min(NAP),
                    _ => Duration::ZERO,
                }
            }
            _ => NAP,
        };
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(BenchError::system("wait for events", error)),
            _ => Ok(()),
        }
    }

    #[inline]
    fn serve(&mut self, index: usize, readable: bool, writable: bool) -> Result<()> {
        if writable {
            self.connections[index].flush()?;
        }
        if !readable {
            return Ok(());
        }
        let connection = &mut self.connections[index];
        let answered = connection.receive(&mut self.context)?;
        let Pace::Closed { sliding } = self.pace else {
            self.free.extend(std::iter::repeat_n(index, answered));
            let now = self.context.clock.now();
            connection.queue_fills(&mut self.context, now);
            return connection.flush();
        };
        if sliding || connection.outstanding() == 0 { self.refill(index) } else { Ok(()) }
    }

    /// Closed loop: brings a connection back to its full number of requests.
    #[inline]
    fn refill(&mut self, index: usize) -> Result<()> {
        let connection = &mut self.connections[index];
        let now = self.context.clock.now();
        connection.queue_fills(&mut self.context, now);
        while connection.outstanding() < self.pipeline && !self.exhausted {
            self.exhausted = !connection.queue_next(&mut self.context, now);
        }
        connection.flush()
    }
}
