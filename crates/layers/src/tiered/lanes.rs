//! Counters of what happens with every read, kept apart by thread so that counting costs no cache miss.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// More than a node has workers; threads beyond it share.
const LANES: usize = 64;
/// One hit in this many is told to the lower tier.
const SAMPLE: u64 = 64;

/// One thread's counters.
#[derive(Default)]
struct Lane {
    upper_hits: AtomicU64,
    lower_hits: AtomicU64,
    misses: AtomicU64,
}

/// All threads' counters, each thread's on its own cache lines.
pub(super) struct Lanes(Box<[CachePadded<Lane>]>);

/// Reads counted so far.
pub(super) struct Reads {
    pub(super) upper_hits: u64,
    pub(super) lower_hits: u64,
    pub(super) misses: u64,
}

/// The next thread's lane.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self((0..LANES).map(|_| CachePadded::default()).collect())
    }

    #[inline]
    fn mine(&self) -> &Lane {
        let mut lane = LANE.get();
        if lane == usize::MAX {
            lane = NEXT.fetch_add(1, Ordering::Relaxed) % LANES;
            LANE.set(lane);
        }
        &self.0[lane]
    }

    /// Counts a hit in the upper tier; true if it is one that the lower tier is to be told of.
    #[inline]
    pub(super) fn upper_hit(&self) -> bool {
        self.mine().upper_hits.fetch_add(1, Ordering::Relaxed) % SAMPLE == SAMPLE - 1
    }

    pub(super) fn lower_hit(&self) {
        self.mine().lower_hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn miss(&self) {
        self.mine().misses.fetch_add(1, Ordering::Relaxed);
    }

    /// The sums.
    pub(super) fn sum(&self) -> Reads {
        let sum =
            |counter: fn(&Lane) -> &AtomicU64| self.0.iter().map(|lane| counter(lane).load(Ordering::Relaxed)).sum();
        Reads {
            upper_hits: sum(|lane| &lane.upper_hits),
            lower_hits: sum(|lane| &lane.lower_hits),
            misses: sum(|lane| &lane.misses),
        }
    }
}
