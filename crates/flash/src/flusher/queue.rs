//! The flusher's queue: what it has to do, and how far it has come.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_store::{ErrorKind, StoreError};
use parking_lot::{Condvar, Mutex};

use super::health::{Health, off};
use super::waiting::{Goal, Waiters};
use crate::log::sealed::Sealed;
use moneta_device::io::running::{Deadline, RunningTime};

/// Work for the flusher's thread, which may block, to do before a round's writes.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The flusher's queue.
pub(crate) struct FlushQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    /// Appends up to this number are on the devices.
    durable: AtomicU64,
    nudged: AtomicBool,
    pub(super) health: Health,
    /// The flusher has ended: what is not durable yet never will be.
    ended: AtomicBool,
    pub(super) waiters: Waiters,
    /// How long a request waits.
    limit: Duration,
    /// Reclaim rounds that freed a region; [`Goal::Room`] compares it.
    freed: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    sealed: VecDeque<Sealed>,
    /// A request waits until everything appended so far is durable.
    commit: bool,
    jobs: Vec<Job>,
    stop: Stop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stop {
    #[default]
    No,
    /// Write everything, then end.
    AfterFlush,
    /// End at once.
    Now,
}

/// What woke the flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// A request asked for a sync: write open regions and sync.
    pub(super) commit: bool,
    /// An open region has much unwritten: write it.
    pub(super) eager: bool,
    /// The flush interval, or the delay before a retry, is over.
    pub(super) tick: bool,
    pub(super) stop: Stop,
}

impl FlushQueue {
    /// Unwritten bytes of an open region that are written before the flush interval is over.
    pub(crate) const EAGER_BYTES: usize = 1 << 20;

    /// An empty queue; requests wait for `limit` of `time` at most.
    pub(crate) fn new(limit: Duration, time: Arc<RunningTime>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            durable: AtomicU64::new(0),
            nudged: AtomicBool::new(false),
            health: Health::new(time),
            ended: AtomicBool::new(false),
            waiters: Waiters::default(),
            limit,
            freed: AtomicU64::new(0),
        })
    }

    pub(crate) fn push(&self, sealed: Sealed) {
        self.state.lock().sealed.push_back(sealed);
        self.work.notify_one();
    }

    /// Asks for a round soon.
    pub(crate) fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            // Under the lock, so that the notification cannot fall between the flusher's check and its sleep.
            let _state = self.state.lock();
            self.work.notify_one();
        }
    }

    /// Asks for a round that syncs.
    pub(crate) fn ask_sync(&self) {
        self.state.lock().commit = true;
        self.work.notify_one();
    }

    /// Has the flusher do something.
    pub(crate) fn run(&self, job: Job) {
        self.state.lock().jobs.push(job);
        self.work.notify_one();
    }

    /// Stops the flusher, after it has written everything or at once.
    pub(crate) fn stop(&self, flush: bool) {
        self.state.lock().stop = if flush { Stop::AfterFlush } else { Stop::Now };
        self.work.notify_one();
    }

    /// Fails if the flusher has to end without further writes.
    pub(super) fn go_on(&self) -> io::Result<()> {
        match self.state.lock().stop {
            Stop::Now => Err(io::Error::other("the SSD tier was told to stop at once")),
            Stop::No | Stop::AfterFlush => Ok(()),
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.health.is_off()
    }

    pub(crate) fn is_worn_out(&self) -> bool {
        self.health.is_worn_out()
    }

    /// Stops accepting writes for good: too few regions are left.
    pub(crate) fn wear_out(&self) {
        if self.health.wear_out() {
            tracing::error!("so many regions have bad blocks that the SSD tier is off: replace the device");
        }
        self.waiters.wake(|_| true);
    }

    /// Notes that devices hold stale versions. True if that was not noted before.
    pub(crate) fn note_outdated(&self) -> bool {
        self.health.note_outdated()
    }

    /// Whether devices hold stale versions; clears the note.
    pub(crate) fn take_outdated(&self) -> bool {
        self.health.take_outdated()
    }

    /// Stops accepting writes until a device write succeeds.
    pub(crate) fn turn_off(&self, error: &io::Error) {
        if self.health.turn_off() {
            tracing::error!(%error, "cannot write to a device: the SSD tier is off until it answers again");
        }
        self.waiters.wake(|_| true);
    }

    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Wakes requests that wait for room.
    pub(crate) fn note_room(&self) {
        self.freed.fetch_add(1, Ordering::AcqRel);
        self.waiters.wake(|goal| matches!(goal, Goal::Room(_)));
    }

    /// Appends up to this number are on the devices.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Appends up to `number` are on the devices.
    pub(super) fn note_durable(&self, number: u64) {
        self.durable.fetch_max(number, Ordering::AcqRel);
        self.waiters.wake(|goal| matches!(goal, Goal::Durable(waited) if waited <= number));
    }

    /// The deadline of a request that begins to wait now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.limit, self.time())
    }

    /// The time by which requests wait.
    pub(super) fn time(&self) -> &RunningTime {
        &self.health.time
    }

    pub(super) fn ask(&self, goal: Goal) {
        if matches!(goal, Goal::Durable(_)) {
            self.ask_sync();
        }
    }

    /// The outcome of `goal`, if there is one yet.
    pub(super) fn outcome(&self, goal: Goal) -> Option<Result<(), StoreError>> {
        let reached = match goal {
            Goal::Durable(number) => self.durable() >= number,
            Goal::Room(before) => self.freed() > before,
        };
        if reached {
            return Some(Ok(()));
        }
        if self.ended.load(Ordering::Acquire) {
            return Some(Err(StoreError::new(ErrorKind::Unavailable, "the SSD tier is closed")));
        }
        self.is_off().then(|| Err(off()))
    }

    /// Wakes requests past their deadlines, until the engine ends. If the cause is a hanging device call, turns the tier off
    /// until that returns, so that no other request waits for it. Calls `look` every `every`.
    pub(crate) fn watch(&self, every: Duration, look: impl Fn()) {
        self.waiters.watch(self.time(), || self.look(), every, look);
    }

    /// Turns the tier off if a device call hangs.
    pub(crate) fn look(&self) {
        if self.health.is_stuck(self.limit) {
            let reason = format!("a write has not ended in {} ms", self.limit.as_millis());
            self.turn_off(&io::Error::new(io::ErrorKind::TimedOut, reason));
        }
    }

    /// Ends all waits: the flusher is gone.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.waiters.wake(|_| true);
        self.waiters.end();
    }

    /// Sleeps until there is something to do, or until `next_tick`.
    pub(super) fn next_round(&self, next_tick: Instant) -> Round {
        let mut state = self.state.lock();
        loop {
            let is_off = self.is_off();
            let eager = self.nudged.swap(false, Ordering::AcqRel) && !is_off;
            let tick = Instant::now() >= next_tick;
            let sealed = !state.sealed.is_empty() && !is_off;
            let commit = state.commit && !is_off;
            let stop = state.stop;
            if tick || eager || sealed || commit || !state.jobs.is_empty() || stop != Stop::No {
                state.commit = false;
                return Round { commit: commit || tick || stop == Stop::AfterFlush, eager, tick, stop };
            }
            self.work.wait_until(&mut state, next_tick);
        }
    }

    /// Takes the queued jobs.
    pub(super) fn take_jobs(&self) -> Vec<Job> {
        std::mem::take(&mut self.state.lock().jobs)
    }

    /// Takes the full regions and the queued jobs.
    pub(super) fn take(&self) -> (VecDeque<Sealed>, Vec<Job>) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.sealed), std::mem::take(&mut state.jobs))
    }
}
