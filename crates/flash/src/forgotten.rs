//! Keys that the index knows no longer although devices still hold records of them: deleted ones, expired ones that somebody
//! asked for, and those that left the index for want of room.
//!
//! A restart tells versions of a key apart by their regions' sequence numbers, so what is stored next under such a key must
//! not go to a region older than that of its tombstone, or of its last record. The index names that region for keys that it
//! knows; for the others this table does, for many keys at once: of each bucket of hashes the newest region that matters.
//!
//! Of a key that was *evicted* the record is alive: a restart may find it again. So a delete of it needs a tombstone although
//! the index has no entry, as long as the region may be there.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::identity;

/// log2 of the buckets. Only regions that are no older than an open one matter, so few keys at a time; a bucket that is
/// shared makes a record go to another lifetime's region now and then, or a tombstone be written that was not needed.
const BUCKET_BITS: u32 = 16;

/// Sequence numbers of the newest regions that matter to the keys of a bucket; 0: none does.
#[derive(Debug, Default)]
struct Bucket {
    /// Of those that have a last record of one.
    last: AtomicU64,
    /// Of those that have a live record of one.
    evicted: AtomicU64,
}

/// The table. The caller holds the lock of the shard of the key that it asks or tells about.
pub(crate) struct Forgotten(Box<[Bucket]>);

impl Forgotten {
    pub(crate) fn new() -> Self {
        Self((0..1 << BUCKET_BITS).map(|_| Bucket::default()).collect())
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Bucket {
        &self.0[identity::bucket(hash, BUCKET_BITS)]
    }

    /// The index forgets a key, of which the region with that sequence number has the last record.
    pub(crate) fn note(&self, hash: u64, sequence: u64) {
        self.bucket(hash).last.fetch_max(sequence, Ordering::Relaxed);
    }

    /// The index has no room for a key, of which the region with that sequence number has a live record.
    pub(crate) fn note_evicted(&self, hash: u64, sequence: u64) {
        self.note(hash, sequence);
        self.bucket(hash).evicted.fetch_max(sequence, Ordering::Relaxed);
    }

    /// The least sequence number of a region that may take a record of a key which the index does not know.
    #[inline]
    pub(crate) fn least(&self, hash: u64) -> u64 {
        self.bucket(hash).last.load(Ordering::Relaxed)
    }

    /// The newest region that may have a live record of a key which the index does not know; 0 if none has.
    #[inline]
    pub(crate) fn evicted(&self, hash: u64) -> u64 {
        self.bucket(hash).evicted.load(Ordering::Relaxed)
    }

    /// What a snapshot keeps of evicted keys: a hash for each bucket that has one, and the newest region.
    pub(crate) fn all_evicted(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.0.iter().map(|bucket| bucket.evicted.load(Ordering::Relaxed));
        (0..).zip(all).filter(|(_, sequence)| *sequence != 0)
    }
}
