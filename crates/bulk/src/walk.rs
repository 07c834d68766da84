//! A server's items by its list of keys: any memcached, and nodes without a feed that reaches back.
//!
//! ```text
//!  connection 1   lru_crawler metadump hash ─▶ keys, ends of life ─▶ a nameless file
//!  connection 2                    mg KEY v …, many ahead ◀─────────┘
//!                                       │ items
//!                                       ▼ channel, a few batches
//!                                     pump
//! ```
//!
//! Every item is as of when it was asked for. One that is written meanwhile is told as it was then; one that goes is not told. What is
//! created meanwhile may be told or not.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use moneta_feed::{Begin, Change, FeedPlace, Line, Mark, Next, Pace, Source, SourceError};
use moneta_net::Endpoint;

use crate::keys;
use crate::queue::Queue;
use crate::server::Server;
use crate::values::{Batch, Values};
use crate::watch::Counters;
use crate::which::Which;

/// Batches between the requests and the pump.
const BATCHES: usize = 4;
/// Items after which it is told how far it is.
const MARK_EVERY: u64 = 4096;
/// Bytes after which it is.
const MARK_BYTES: usize = 4 << 20;
/// Longest wait for a batch.
const WAIT: Duration = Duration::from_secs(1);

/// Lists the keys of a server and asks for their items. It ends, and cannot be begun but at its begin.
pub struct WalkSource {
    endpoint: Endpoint,
    which: Which,
    value_max: usize,
    counters: Counters,
    open: Option<Open>,
    pace: Pace,
}

/// A walk that goes on.
struct Open {
    /// As it was when the walk began.
    server: Server,
    queue: Arc<Queue>,
    /// `None` when this is dropped.
    batches: Option<Receiver<Batch>>,
    threads: Vec<JoinHandle<()>>,
    changes: VecDeque<Change>,
    /// Of this walk alone, and how many items were told.
    place: FeedPlace,
    /// Items and bytes since the last mark.
    unmarked: (u64, usize),
    is_end: bool,
}

impl WalkSource {
    /// Reads the server at `endpoint`. Values over `value_max` bytes are passed over.
    pub fn new(endpoint: Endpoint, which: Which, value_max: usize, counters: Counters) -> Self {
        Self { endpoint, which, value_max, counters, open: None, pace: Pace::of(0) }
    }

    fn open(&self, server: Server) -> io::Result<Open> {
        let queue = Arc::new(Queue::new()?);
        let (into, batches) = sync_channel(BATCHES);
        let listing = {
            let (endpoint, which, counters) = (self.endpoint.clone(), self.which.clone(), self.counters.clone());
            let queue = Arc::clone(&queue);
            thread::Builder::new().name("walk-keys".into()).spawn(move || {
                keys::list(&endpoint, &which, &queue, &counters);
            })?
        };
        let incarnation = getrandom::u64()?.max(1);
        let place = FeedPlace { incarnation, position: 0, told: 0 };
        let (changes, threads) = (VecDeque::new(), vec![listing]);
        let mut open =
            Open { server, queue, batches: Some(batches), threads, changes, place, unmarked: (0, 0), is_end: false };
        let (endpoint, which, counters) = (self.endpoint.clone(), self.which.clone(), self.counters.clone());
        let (queue, value_max) = (Arc::clone(&open.queue), self.value_max);
        let fetching = thread::Builder::new().name("walk-values".into()).spawn(move || {
            let values = Values { endpoint: &endpoint, which: &which, value_max, counters: &counters, into };
            values.fetch(&queue);
        })?;
        open.threads.push(fetching);
        Ok(open)
    }
}

impl Open {
    fn mark(&mut self) -> Mark {
        self.unmarked = (0, 0);
        Mark { cursor: self.place.to_string(), watermark: 0, horizon: 0, behind: None, more: !self.is_end }
    }

    fn next(&mut self) -> Next {
        if self.unmarked.0 >= MARK_EVERY || self.unmarked.1 >= MARK_BYTES {
            return Next::Line(Line::Mark(self.mark()));
        }
        if let Some(change) = self.changes.pop_front() {
            self.place.position += 1;
            self.unmarked = (self.unmarked.0 + 1, self.unmarked.1 + change.size());
            return Next::Line(Line::Change(change));
        }
        match (self.is_end, self.unmarked.0) {
            (false, _) => Next::Lacking(1),
            (true, 0) => Next::Line(Line::End),
            (true, _) => Next::Line(Line::Mark(self.mark())),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.queue.drop_reader();
        self.batches = None;
        // Each ends with the next thing that it hears of its server.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Source for WalkSource {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        if matches!(from, Begin::Cursor(_)) {
            return Err(SourceError::Refused("a list of keys cannot be gone on with: begin anew".to_owned()));
        }
        self.open = None;
        self.pace = Pace::of(rate);
        let server = Server::look(&self.endpoint).map_err(|error| SourceError::Refused(error.to_string()))?;
        self.open = Some(self.open(server).map_err(|error| SourceError::Refused(error.to_string()))?);
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        if !self.pace.left(Instant::now()).is_zero() {
            return Ok(Next::Lacking(1));
        }
        let open = self.open.as_mut().ok_or_else(|| SourceError::Refused("it is not read".to_owned()))?;
        let next = open.next();
        if let Next::Line(Line::Change(change)) = &next {
            self.pace.sent(change.size() as u64, Instant::now());
        }
        Ok(next)
    }

    fn is_ready(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.changes.is_empty())
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        let left = self.pace.left(Instant::now());
        if !left.is_zero() {
            sleep(left.min(WAIT));
            return Ok(());
        }
        let Some(Open { server, batches: Some(batches), changes, threads, is_end, .. }) = &mut self.open else {
            return Ok(());
        };
        match batches.recv_timeout(WAIT) {
            Ok(Ok(batch)) => changes.extend(batch),
            // It is not gone on with, so nothing is gained by trying again.
            Ok(Err(why)) => return Err(SourceError::Refused(why)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                if !threads.drain(..).map(JoinHandle::join).all(|ended| ended.is_ok()) {
                    return Err(SourceError::Refused("a thread that read it has panicked".to_owned()));
                }
                // One that lost its items meanwhile lists keys of before, all of which are gone.
                server.check_life().map_err(|error| SourceError::Refused(error.to_string()))?;
                *is_end = true;
            }
        }
        Ok(())
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.pace.set(rate, Instant::now());
        Ok(true)
    }
}
