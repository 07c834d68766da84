//! Writes that were answered while a node had not said yet whether it took them: until it does, what it shows of the key may be
//! old.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use moneta_store::Version;
use parking_lot::Mutex;

use crate::hints::Missed;

/// Such writes of one node, by the hash of their key. All threads share them.
#[derive(Default)]
pub(crate) struct Flight {
    count: AtomicUsize,
    newest: Mutex<HashMap<u64, Missed>>,
}

impl Flight {
    /// A write is answered, and the node is not done with it.
    pub(crate) fn note(&self, hash: u64, write: Missed) {
        let mut newest = self.newest.lock();
        newest.entry(hash).and_modify(|known| *known = known.and(write)).or_insert(write);
        self.count.store(newest.len(), Ordering::Release);
    }

    /// The node has ended a write, well or not.
    pub(crate) fn settle(&self, hash: u64, version: Version) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut newest = self.newest.lock();
            if newest.get(&hash).is_some_and(|known| known.version <= version) {
                newest.remove(&hash);
                self.count.store(newest.len(), Ordering::Release);
            }
        }
    }

    /// The newest write of the key that is under way.
    #[inline]
    pub(crate) fn missed(&self, hash: u64) -> Option<Missed> {
        if self.is_empty() {
            return None;
        }
        self.newest.lock().get(&hash).copied()
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}
