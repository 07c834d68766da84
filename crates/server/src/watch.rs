//! Who watches what, for the `watch` command: events become lines in bounded queues, one a watcher.

use std::sync::atomic::{AtomicU32, Ordering};

/// The watchers of a node.
#[derive(Debug, Default)]
pub struct Hub {
    wanted: AtomicU32,
}

impl Hub {
    /// Whether anybody watches any of `streams` (a bit set); one relaxed load.
    #[inline]
    pub fn wants(&self, streams: u32) -> bool {
        self.wanted.load(Ordering::Relaxed) & streams != 0
    }
}
