//! What a source has done, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counts of a guarded source, shared with those who show them.
#[derive(Debug, Default)]
pub struct SourceCounts {
    pub(super) changes: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) epochs_back: AtomicU64,
    pub(super) epoch: AtomicU64,
    pub(super) failing: AtomicBool,
    pub(super) counted: AtomicBool,
    // Locked where a failure begins or ends, and by those that show it.
    pub(super) failure: Mutex<Option<Arc<str>>>,
    pub(super) held_back: AtomicBool,
}

/// What [`SourceCounts`] say at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStatus {
    /// Topologies taken, the first one included.
    pub changes: u64,
    /// Topologies not believed at once. One that is believed later is a change as well.
    pub refused: u64,
    /// Reads that failed.
    pub failures: u64,
    /// Topologies taken whose epoch is below that of the one before.
    pub epochs_back: u64,
    /// The epoch of the topology taken last; 0: none yet.
    pub epoch: u64,
    /// Whether the source counts epochs; else they are counted here.
    pub counted: bool,
    /// Whether the last read failed.
    pub failing: bool,
    /// Whether what was read last waits for its confirmation.
    pub held_back: bool,
}

impl SourceCounts {
    /// Why the source cannot be read, if it cannot.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.failure.lock().clone()
    }

    /// What they say now.
    pub fn status(&self) -> SourceStatus {
        SourceStatus {
            changes: self.changes.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            epochs_back: self.epochs_back.load(Ordering::Relaxed),
            epoch: self.epoch.load(Ordering::Relaxed),
            counted: self.counted.load(Ordering::Relaxed),
            failing: self.failing.load(Ordering::Relaxed),
            held_back: self.held_back.load(Ordering::Relaxed),
        }
    }
}
