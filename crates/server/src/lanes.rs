//! Spreads counts of many threads over cache lines: each thread has a lane, and few threads share one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Number of lanes.
pub(crate) const LANES: usize = 16;

/// The lane of the calling thread.
#[inline]
pub(crate) fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LANES;
    }
    LANE.with(|lane| *lane)
}

/// A count that threads raise without contention.
#[derive(Debug, Default)]
pub(crate) struct Tally([CachePadded<AtomicU64>; LANES]);

impl Tally {
    /// One more.
    #[inline]
    pub(crate) fn bump(&self) {
        self.0[lane()].fetch_add(1, Ordering::Relaxed);
    }

    /// The sum. Concurrent counts may be missing.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|lane| lane.load(Ordering::Relaxed)).sum()
    }
}
