//! Owed tombstones: for keys whose change failed because there was no room for a record in time.
//!
//! A failed change removes its key, since the stored value may be stale. The index drops the entry at once. The record on the
//! device needs a tombstone too, or a restart would bring it back, and there was no room for one. So the key is queued
//! here, and the flusher appends the tombstone as soon as there is room.

use std::sync::atomic::{AtomicUsize, Ordering};

use moneta_store::{Key, OwnedKey};
use parking_lot::Mutex;

/// Most keys in the queue. Beyond that the tier is marked outdated, as while it is off, and is flushed when it has room again.
const MOST: usize = 1 << 16;

/// The keys.
#[derive(Default)]
pub(crate) struct Debts {
    // Held for a push, and for a swap. Taken with the lock of a key's shard held, never the other way round.
    keys: Mutex<Vec<OwnedKey>>,
    /// Number of keys, so that a round without any takes no lock.
    pub(crate) count: AtomicUsize,
}

impl Debts {
    /// Queues a key; false if the queue is full.
    pub(crate) fn push(&self, key: &Key<'_>) -> bool {
        let mut keys = self.keys.lock();
        let fits = keys.len() < MOST;
        if fits {
            keys.push(OwnedKey::of(key));
            self.count.store(keys.len(), Ordering::Release);
        }
        fits
    }

    pub(crate) fn take(&self) -> Vec<OwnedKey> {
        let mut keys = self.keys.lock();
        self.count.store(0, Ordering::Release);
        std::mem::take(&mut *keys)
    }

    pub(crate) fn give_back(&self, mut left: Vec<OwnedKey>) {
        let mut keys = self.keys.lock();
        keys.append(&mut left);
        self.count.store(keys.len(), Ordering::Release);
    }
}
