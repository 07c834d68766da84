//! What a cluster store counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Numbers of all threads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Reads that went to another copy.
    pub(crate) second_reads: Counter,
    /// Reads that failed, and found the budget for second reads spent.
    pub(crate) retries_refused: Counter,
    /// Items given to a near copy that missed them.
    pub(crate) fills: Counter,
    /// Items that were about to be given to others and were older than what a third copy has.
    pub(crate) outdated_sources: Counter,
    /// Writes that were stamped again, since a copy held something newer.
    pub(crate) stamped_anew: Counter,
    /// Changes that were decided on a key's home.
    pub(crate) decisions: Counter,
    /// Of these, rounds that had to be repeated.
    pub(crate) conflicts: Counter,
    /// Hints delivered.
    pub(crate) hints_delivered: Counter,
    /// Topologies taken.
    pub(crate) topologies: Counter,
}
