//! Keys without an index entry whose records are still on devices: deleted keys, expired keys found by a lookup, and keys
//! evicted from the index for want of room.
//!
//! A restart orders versions of a key by their regions' sequence numbers, so the next version of such a key must not go to a
//! region older than that of its tombstone or last record. The index gives that region for keys it knows. For the others this
//! table does, shared by many keys: for each bucket of hashes, the newest region that matters.
//!
//! The record of an *evicted* key is live: a restart may find it again. So deleting it needs a tombstone although the index has
//! no entry, as long as its region may still exist.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_device::regions::identity;

/// log2 of the number of buckets. Only regions no older than an open one matter, so few keys at a time. Keys that share a
/// bucket now and then send a record to another lifetime's region, or cost a tombstone that was not needed.
const BUCKET_BITS: u32 = 16;

/// Sequence numbers of the newest regions that matter to the keys of a bucket; 0: none.
#[derive(Debug, Default)]
struct Bucket {
    /// The newest region with a last record or tombstone.
    last: AtomicU64,
    /// The newest region with a live record of an evicted key.
    evicted: AtomicU64,
}

/// The table. Callers hold the lock of the key's shard.
pub(crate) struct Forgotten(Box<[Bucket]>);

impl Forgotten {
    pub(crate) fn new() -> Self {
        Self((0..1 << BUCKET_BITS).map(|_| Bucket::default()).collect())
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Bucket {
        &self.0[identity::bucket(hash, BUCKET_BITS)]
    }

    /// The index drops a key whose last record is in the region with that sequence number.
    pub(crate) fn note(&self, hash: u64, sequence: u64) {
        self.bucket(hash).last.fetch_max(sequence, Ordering::Relaxed);
    }

    /// The index evicts a key with a live record in the region with that sequence number.
    pub(crate) fn note_evicted(&self, hash: u64, sequence: u64) {
        self.note(hash, sequence);
        self.bucket(hash).evicted.fetch_max(sequence, Ordering::Relaxed);
    }

    /// The lowest sequence number of a region that may take a record of a key without an index entry.
    #[inline]
    pub(crate) fn least(&self, hash: u64) -> u64 {
        self.bucket(hash).last.load(Ordering::Relaxed)
    }

    /// The newest region that may have a live record of a key without an index entry; 0 if none has.
    #[inline]
    pub(crate) fn evicted(&self, hash: u64) -> u64 {
        self.bucket(hash).evicted.load(Ordering::Relaxed)
    }

    /// Evicted keys for a snapshot: one hash for each bucket that has any, and the newest region.
    pub(crate) fn all_evicted(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.0.iter().map(|bucket| bucket.evicted.load(Ordering::Relaxed));
        (0..).zip(all).filter(|(_, sequence)| *sequence != 0)
    }
}
