//! How fast a job may go: bytes and operations a second, of all its sources together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use moneta_feed::Pace;

/// Bounds of a job. Clones share them.
#[derive(Clone, Debug)]
pub struct Throttle(Arc<Mutex<Paces>>);

#[derive(Debug)]
struct Paces {
    bytes: Pace,
    operations: Pace,
}

impl Throttle {
    /// At most so many bytes of keys and values, and so many changes, a second; 0: as many as it goes.
    pub fn of(bytes: u64, operations: u64) -> Self {
        Self(Arc::new(Mutex::new(Paces { bytes: Pace::of(bytes), operations: Pace::of(operations) })))
    }

    fn paces(&self) -> MutexGuard<'_, Paces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other bounds from now on.
    pub fn set(&self, bytes: u64, operations: u64) {
        let now = Instant::now();
        let mut paces = self.paces();
        paces.bytes.set(bytes, now);
        paces.operations.set(operations, now);
    }

    /// A change of so many bytes has gone.
    pub(crate) fn sent(&self, bytes: u64) {
        let now = Instant::now();
        let mut paces = self.paces();
        paces.bytes.sent(bytes, now);
        paces.operations.sent(1, now);
    }

    /// How long no other is to go.
    pub(crate) fn left(&self) -> Duration {
        let now = Instant::now();
        let mut paces = self.paces();
        paces.bytes.left(now).max(paces.operations.left(now))
    }
}
