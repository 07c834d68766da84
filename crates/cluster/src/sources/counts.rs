//! What a source has done, for metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts of a guarded source, shared with those who show them.
#[derive(Debug, Default)]
pub struct SourceCounts {
    pub(super) changes: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) epochs_back: AtomicU64,
    pub(super) epoch: AtomicU64,
    pub(super) failing: AtomicBool,
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
    /// Whether the last read failed.
    pub failing: bool,
    /// Whether what was read last waits for its confirmation.
    pub held_back: bool,
}

impl SourceCounts {
    /// What they say now.
    pub fn status(&self) -> SourceStatus {
        SourceStatus {
            changes: self.changes.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            epochs_back: self.epochs_back.load(Ordering::Relaxed),
            epoch: self.epoch.load(Ordering::Relaxed),
            failing: self.failing.load(Ordering::Relaxed),
            held_back: self.held_back.load(Ordering::Relaxed),
        }
    }
}
