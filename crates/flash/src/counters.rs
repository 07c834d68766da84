//! Counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the engine; they only grow.
        #[derive(Debug, Default)]
        pub(crate) struct FlashCounters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }
    };
}

counters! {
    /// Items stored.
    total_items,
    /// Lookups that found an entry in the index.
    lookups,
    /// Lookups answered from a region in RAM.
    buffer_reads,
    /// Bytes of keys and values stored by clients.
    item_bytes,
    /// Bytes of keys and values carried forward.
    carried_bytes,
    carried_items,
    tombstone_bytes,
    /// Bytes written to devices.
    device_bytes,
    regions_filled,
    /// Regions emptied to make room.
    regions_emptied,
    evictions,
    evicted_unfetched,
    /// Evictions because the index had no room.
    index_evictions,
    expired,
    expired_unfetched,
    false_matches,
    /// Writes whose version was too far ahead of the clock.
    refused_ahead,
    checksum_failures,
    io_errors,
    recovery_microseconds,
    recovered_items,
    recovered_regions,
    recovery_bytes,
}

/// Adds to a counter.
#[inline]
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Reads a counter.
#[inline]
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
