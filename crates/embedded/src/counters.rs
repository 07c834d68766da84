//! What the engine counts.

use moneta_store::Counter;

use crate::error::Failure;

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct EngineCounters {
    stored: Counter,
    out_of_memory: Counter,
    failed: Counter,
}

impl EngineCounters {
    /// Items that a batch stored.
    pub(crate) fn stored(&self, count: u64) {
        self.stored.add(count);
    }

    /// Requests that ended in a failure.
    pub(crate) fn failed(&self, failure: &Failure) {
        let counter = match failure {
            Failure::Full(_) => &self.out_of_memory,
            Failure::Broken(_) => &self.failed,
        };
        counter.bump();
    }

    /// Items stored.
    pub(crate) fn total_items(&self) -> u64 {
        self.stored.get()
    }

    /// Batches that found no room, even one request at a time.
    pub(crate) fn out_of_memory(&self) -> u64 {
        self.out_of_memory.get()
    }

    /// Reads and batches that the library failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failed.get()
    }
}
