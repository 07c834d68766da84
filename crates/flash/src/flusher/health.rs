//! The health of the devices: whether they accept writes, and what has to be done when they do again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use moneta_store::{ErrorKind, StoreError};

use moneta_device::io::running::RunningTime;

/// The error of requests that need a device while the devices are off.
pub(crate) fn off() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "the SSD tier is off after a device error")
}

/// The health of the devices.
pub(super) struct Health {
    /// A write failed or hangs, and none has succeeded since.
    off: AtomicBool,
    /// Too few usable regions are left.
    worn_out: AtomicBool,
    /// Devices hold stale versions, and the tombstones for them could not be written.
    outdated: AtomicBool,
    pub(super) time: Arc<RunningTime>,
    /// When the flusher's current device call began: milliseconds of `time`, plus one; 0 without a call.
    busy_since: AtomicU64,
}

impl Health {
    pub(super) fn new(time: Arc<RunningTime>) -> Self {
        let (off, worn_out, outdated) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        Self { off, worn_out, outdated, time, busy_since: AtomicU64::new(0) }
    }

    pub(super) fn is_off(&self) -> bool {
        self.off.load(Ordering::Acquire) || self.is_worn_out()
    }

    pub(super) fn is_worn_out(&self) -> bool {
        self.worn_out.load(Ordering::Acquire)
    }

    /// Marks the tier as worn out; true if it was not before.
    pub(super) fn wear_out(&self) -> bool {
        !self.worn_out.swap(true, Ordering::AcqRel)
    }

    /// Marks the devices as off; true if they were on.
    pub(super) fn turn_off(&self) -> bool {
        !self.off.swap(true, Ordering::AcqRel)
    }

    /// Marks the devices as on; true if they were off.
    pub(super) fn turn_on(&self) -> bool {
        self.off.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }

    /// Marks the devices as outdated; true if they were not before.
    pub(super) fn note_outdated(&self) -> bool {
        !self.outdated.swap(true, Ordering::AcqRel)
    }

    pub(super) fn take_outdated(&self) -> bool {
        self.outdated.swap(false, Ordering::AcqRel)
    }

    /// Runs a device call and records when it began.
    pub(super) fn watch<T>(&self, call: impl FnOnce() -> T) -> T {
        self.busy_since.store(self.time.now().as_millis() as u64 + 1, Ordering::Relaxed);
        let outcome = call();
        self.busy_since.store(0, Ordering::Relaxed);
        outcome
    }

    /// Whether the current device call has lasted longer than `limit`.
    pub(super) fn is_stuck(&self, limit: Duration) -> bool {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => false,
            since => (self.time.now().as_millis() as u64 + 1).saturating_sub(since) >= limit.as_millis() as u64,
        }
    }
}
