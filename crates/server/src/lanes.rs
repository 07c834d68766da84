//! Spreads what many threads count over cache lines: each thread has a lane, and few share one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Lanes there are.
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

/// A count that threads raise without getting into each other's way.
#[derive(Debug, Default)]
pub(crate) struct Tally([CachePadded<AtomicU64>; LANES]);

impl Tally {
    /// One more.
    #[inline]
    pub(crate) fn bump(&self) {
        self.0[lane()].fetch_add(1, Ordering::Relaxed);
    }

    /// The sum. What is counted meanwhile may be missing.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|lane| lane.load(Ordering::Relaxed)).sum()
    }
}
