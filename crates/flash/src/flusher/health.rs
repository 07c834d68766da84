//! Whether devices take writes, and what has to happen once they do again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_store::{ErrorKind, StoreError};

/// The error of requests that need a device while devices are off.
pub(crate) fn off() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "the SSD tier is off after a device error")
}

/// What is known of the devices.
pub(super) struct Health {
    /// A write failed or does not end, and none has succeeded since.
    off: AtomicBool,
    /// Too few regions are left that devices can read and write.
    worn_out: AtomicBool,
    /// Devices hold what must not be served any more and could not be told so.
    outdated: AtomicBool,
    begun: Instant,
    /// Milliseconds from `begun` to when the flusher's call of a device began, plus one; 0 while there is none.
    busy_since: AtomicU64,
}

impl Health {
    pub(super) fn new() -> Self {
        let (off, worn_out, outdated) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        Self { off, worn_out, outdated, begun: Instant::now(), busy_since: AtomicU64::new(0) }
    }

    pub(super) fn is_off(&self) -> bool {
        self.off.load(Ordering::Acquire) || self.is_worn_out()
    }

    pub(super) fn is_worn_out(&self) -> bool {
        self.worn_out.load(Ordering::Acquire)
    }

    /// Whether enough regions were left until now.
    pub(super) fn wear_out(&self) -> bool {
        !self.worn_out.swap(true, Ordering::AcqRel)
    }

    /// Whether devices took writes until now.
    pub(super) fn turn_off(&self) -> bool {
        !self.off.swap(true, Ordering::AcqRel)
    }

    /// Whether devices took no writes until now.
    pub(super) fn turn_on(&self) -> bool {
        self.off.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }

    /// True if that was not known before.
    pub(super) fn note_outdated(&self) -> bool {
        !self.outdated.swap(true, Ordering::AcqRel)
    }

    pub(super) fn take_outdated(&self) -> bool {
        self.outdated.swap(false, Ordering::AcqRel)
    }

    /// Calls a device.
    pub(super) fn watch<T>(&self, call: impl FnOnce() -> T) -> T {
        self.busy_since.store(self.begun.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        let outcome = call();
        self.busy_since.store(0, Ordering::Relaxed);
        outcome
    }

    /// Whether a call of a device has lasted for so long.
    pub(super) fn is_stuck(&self, limit: Duration) -> bool {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => false,
            since => (self.begun.elapsed().as_millis() as u64 + 1).saturating_sub(since) >= limit.as_millis() as u64,
        }
    }
}
