//! What the engine counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Failure;

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct EngineCounters {
    stored: AtomicU64,
    out_of_memory: AtomicU64,
    failed: AtomicU64,
}

impl EngineCounters {
    /// Items that a batch stored.
    pub(crate) fn stored(&self, count: u64) {
        self.stored.fetch_add(count, Ordering::Relaxed);
    }

    /// Requests that ended in a failure.
    pub(crate) fn failed(&self, failure: &Failure) {
        let counter = match failure {
            Failure::Full(_) => &self.out_of_memory,
            Failure::Broken(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Items stored.
    pub(crate) fn total_items(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Batches that found no room, even one request at a time.
    pub(crate) fn out_of_memory(&self) -> u64 {
        self.out_of_memory.load(Ordering::Relaxed)
    }

    /// Reads and batches that the library failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}
