//! The maintenance thread: once an interval it makes writes durable, removes expired items, and raises the sequence floor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moneta_store::offload::answer;
use moneta_store::{Key, OwnedOp};
use parking_lot::{Condvar, Mutex};

use crate::database::Database;
use crate::engine::Inner;
use crate::error::Failure;
use crate::writer::Request;

/// Keys in doubt that are tried again at each turn.
const UNTRUSTED: usize = 1000;

/// What the keeper and its engine tell each other.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    stop: Mutex<bool>,
    changed: Condvar,
    failing: AtomicBool,
    reason: Mutex<String>,
}

impl Maintenance {
    /// Ends the keeper.
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

/// Turns until it is stopped.
pub(crate) fn run<D: Database>(inner: &Arc<Inner<D>>) {
    let maintenance = &inner.maintenance;
    loop {
        let mut stop = maintenance.stop.lock();
        if !*stop {
            maintenance.changed.wait_for(&mut stop, inner.settings.interval);
        }
        if *stop {
            return;
        }
        drop(stop);
        maintenance.note(turn(inner));
    }
}

/// A part of a turn.
type Part<D> = fn(&Inner<D>) -> Result<(), Failure>;

/// Does all tasks of an interval even if some fail or panic; returns the first error.
pub(crate) fn turn<D: Database>(inner: &Inner<D>) -> Result<(), Failure> {
    let parts: [Part<D>; 4] = [
        |inner| inner.shared.settle(),
        |inner| inner.shared.renew_sequence(),
        |inner| inner.database.maintain(),
        settle_untrusted,
    ];
    let ended = parts.map(|part| {
        let panicked = |_| Err(Failure::Broken("a part of the keeper's turn panicked".into()));
        catch_unwind(AssertUnwindSafe(|| part(inner))).unwrap_or_else(panicked)
    });
    ended.into_iter().collect()
}

/// Has the writers remove what they could not: the library, or a part of it, may work again.
fn settle_untrusted<D: Database>(inner: &Inner<D>) -> Result<(), Failure> {
    if inner.shared.untrusted.all() {
        inner.shared.untrusted.flush_begins();
        inner.shared.empty()?;
        inner.shared.untrusted.flush_ended();
    }
    for key in inner.shared.untrusted.some(UNTRUSTED) {
        let key = Key::new(&key, inner.shared.seed());
        // No request waits for the outcome; if it fails, the key stays in doubt.
        let (answer, _) = answer();
        inner.ask(&key, Request::new(&key, OwnedOp::Drop, answer));
    }
    Ok(())
}
