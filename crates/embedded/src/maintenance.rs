//! The maintenance thread: what tells it to go on or to stop, and whether its last turn failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::Failure;

/// What the maintenance thread and its engine tell each other.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    stop: Mutex<bool>,
    changed: Condvar,
    failing: AtomicBool,
    reason: Mutex<String>,
}

impl Maintenance {
    /// Calls `turn` once an interval until it is stopped.
    pub(crate) fn run(&self, interval: Duration, turn: impl Fn() -> Result<(), Failure>) {
        loop {
            let mut stop = self.stop.lock();
            if !*stop {
                self.changed.wait_for(&mut stop, interval);
            }
            if *stop {
                return;
            }
            drop(stop);
            self.note(turn());
        }
    }

    /// Ends [`Maintenance::run`].
    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.changed.notify_all();
    }

    /// Why the last turn failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failing.load(Ordering::Relaxed).then(|| self.reason.lock().clone())
    }

    fn note(&self, ended: Result<(), Failure>) {
        match ended {
            Ok(()) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the engine works again");
                }
            }
            Err(failure) => {
                *self.reason.lock() = failure.to_string();
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%failure, "the engine fails; it is tried again every interval");
                }
            }
        }
    }
}
