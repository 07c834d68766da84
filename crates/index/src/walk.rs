//! Walking the index in batches while it changes.
//!
//! A walk visits classes: all buckets that had the same number when the walk began, so a split never carries an entry out
//! of its class. What could is displacement to an entry's other bucket; the index therefore refuses, while a walk is under
//! way, displacements between a class that was visited and one that was not. It knows of walks through a shared position
//! that lives as long as the walk does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::address::COLUMN_BITS;

/// Where a walk of one index stands. Dropping it ends the walk.
#[derive(Debug)]
pub struct Walk {
    pub(crate) level: u32,
    pub(crate) shared: Arc<Progress>,
}

/// What the index keeps of a walk.
#[derive(Debug)]
pub(crate) struct Progress {
    level: u32,
    /// Classes below this one have been visited.
    next: AtomicU64,
}

impl Walk {
    pub(crate) fn new(level: u32) -> Self {
        Self { level, shared: Arc::new(Progress { level, next: AtomicU64::new(0) }) }
    }

    pub(crate) fn next(&self) -> usize {
        self.shared.next.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn advance(&self) {
        self.shared.next.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn classes(&self) -> usize {
        1 << (COLUMN_BITS + self.level)
    }
}

impl Progress {
    /// Nothing is left to visit.
    pub(crate) fn end(&self) {
        self.next.store(u64::MAX, Ordering::Relaxed);
    }

    /// Whether an entry may move between the two buckets without this walk missing it or seeing it twice.
    pub(crate) fn allows(&self, from: usize, to: usize) -> bool {
        let class = |bucket: usize| (bucket & ((1 << (COLUMN_BITS + self.level)) - 1)) as u64;
        let next = self.next.load(Ordering::Relaxed);
        (class(from) < next) == (class(to) < next)
    }
}
