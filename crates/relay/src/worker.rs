//! Threads that write to the cluster: each has the changes of its keys, in the order in which they were told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use futures_util::future::join_all;
use moneta_feed::{Change, SinkError};
use moneta_store::escape::escape_key;
use moneta_store::steps::into_pending;
use moneta_store::{Cx, Pending, Policy, Step, Store};

use crate::apply::{Applying, Fate, Refusal, Remedy, begin, remedy};
use crate::config::Mode;
use crate::counts::{Counts, add};

/// Pause before what was not taken is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// Tries of a change that the nodes refuse for a reason that may be its own.
const TRIES: u32 = 20;

/// What all threads of a relay that write have in common.
pub(crate) struct Applier {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) mode: Mode,
    pub(crate) flush: bool,
    pub(crate) counts: Arc<Counts>,
    /// Nothing more is to be written.
    pub(crate) closed: Arc<AtomicBool>,
}

/// A change, and how often it failed.
struct Tried {
    change: Change,
    failures: u32,
}

impl Applier {
    /// Applies changes, among which no flush is beside others. Returns whether the cluster lacks one of them that is to be read
    /// again.
    ///
    /// # Errors
    /// If what is written to is no cluster with versions, or the relay ends.
    pub(crate) fn apply(&self, cx: &Cx, changes: Vec<Change>, began: u64) -> Result<bool, SinkError> {
        let applying = Applying { mode: self.mode, flush: self.flush, began };
        let mut left: Vec<Tried> = changes.into_iter().map(|change| Tried { change, failures: 0 }).collect();
        let mut lacks = false;
        loop {
            let (mut waiting, mut pending): (Vec<Tried>, Vec<Pending<Fate>>) = (Vec::new(), Vec::new());
            for tried in left {
                match begin(&self.store, cx, &tried.change, applying) {
                    Step::Done(Ok(fate)) => lacks |= self.ended(&tried.change, fate),
                    step => {
                        waiting.push(tried);
                        pending.push(into_pending(step));
                    }
                }
            }
            left = Vec::new();
            // Polled together: one may hold what another one waits for.
            for (tried, ended) in waiting.into_iter().zip(pollster::block_on(join_all(pending))) {
                let error = match ended {
                    Ok(fate) => {
                        lacks |= self.ended(&tried.change, fate);
                        continue;
                    }
                    Err(error) => error,
                };
                match remedy(&error) {
                    Remedy::Stop => return Err(SinkError::Refused(error.to_string())),
                    Remedy::Retry if tried.failures + 1 >= TRIES => {
                        let key = tried.change.key().map(|key| escape_key(key)).unwrap_or_default();
                        tracing::error!(key, %error, "a change of the other region is refused again and again: it is left out");
                        self.ended(&tried.change, Fate::Refused(Refusal::Failed));
                    }
                    Remedy::Retry => left.push(Tried { failures: tried.failures + 1, ..tried }),
                    Remedy::Wait => left.push(tried),
                }
            }
            if left.is_empty() {
                return Ok(lacks);
            }
            if self.closed.load(Ordering::Relaxed) {
                return Err(SinkError::Closed);
            }
            add(&self.counts.retries, left.len() as u64);
            std::thread::sleep(PAUSE);
        }
    }

    /// Counts a change that has ended. Returns whether it is to be read again.
    fn ended(&self, change: &Change, fate: Fate) -> bool {
        if matches!((change, fate), (Change::Flush(_), Fate::Nothing)) {
            add(&self.counts.flushes_left_out, 1);
        }
        self.counts.count(fate);
        fate == Fate::Unsure
    }
}

/// How requests of a relay are made: by themselves, and no sign of what readers here want.
pub(crate) fn context() -> Cx {
    Cx::outside().under(Policy::Batch)
}

/// Changes with the moment at which their connection was begun.
type Part = (Vec<Change>, u64);
/// Whether some are to be read again.
type Ended = Result<bool, SinkError>;

/// A thread that writes, for as long as this lives.
pub(crate) struct Worker {
    parts: SyncSender<Part>,
    ended: Receiver<Ended>,
    is_busy: bool,
}

impl Worker {
    /// Starts one.
    pub(crate) fn start(applier: Arc<Applier>) -> std::io::Result<Self> {
        let (parts, received) = sync_channel::<Part>(1);
        let (tell, ended) = sync_channel(1);
        moneta_background::start("relay-write", move |_| {
            // A context belongs to its thread.
            let cx = context();
            while let Ok((changes, began)) = received.recv() {
                if tell.send(applier.apply(&cx, changes, began)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { parts, ended, is_busy: false })
    }

    /// Has it write these, once what it had before has ended.
    pub(crate) fn give(&mut self, changes: Vec<Change>, began: u64) -> Result<(), SinkError> {
        self.parts.send((changes, began)).map_err(|_| SinkError::Closed)?;
        self.is_busy = true;
        Ok(())
    }

    /// Waits until what it was given has ended.
    pub(crate) fn settle(&mut self) -> Ended {
        if !std::mem::take(&mut self.is_busy) {
            return Ok(false);
        }
        self.ended.recv().unwrap_or(Err(SinkError::Closed))
    }
}
