//! Keys that the index knows no longer although devices still hold records of them: deleted ones, and expired ones that
//! somebody asked for.
//!
//! A restart tells versions of a key apart by their regions' sequence numbers, so what is stored next under such a key must
//! not go to a region older than that of its tombstone, or of its dead record. The index names that region for keys that it
//! knows; for the others this table does, for many keys at once: of each bucket of hashes the newest region that matters.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::identity;

/// log2 of the buckets. Only regions that are no older than an open one matter, so few keys at a time; a bucket that is shared makes a
/// record go to another lifetime's region now and then, no more.
const BUCKET_BITS: u32 = 16;

/// The table.
pub(crate) struct Forgotten(Box<[AtomicU64]>);

impl Forgotten {
    pub(crate) fn new() -> Self {
        Self((0..1 << BUCKET_BITS).map(|_| AtomicU64::new(0)).collect())
    }

    fn bucket(&self, hash: u64) -> &AtomicU64 {
        &self.0[identity::bucket(hash, BUCKET_BITS)]
    }

    /// The index forgets a key, of which the region with that sequence number has the last record. The caller holds the
    /// lock of the key's shard, as for [`Forgotten::least`].
    pub(crate) fn note(&self, hash: u64, sequence: u64) {
        self.bucket(hash).fetch_max(sequence, Ordering::Relaxed);
    }

    /// The least sequence number of a region that may take a record of a key which the index does not know.
    pub(crate) fn least(&self, hash: u64) -> u64 {
        self.bucket(hash).load(Ordering::Relaxed)
    }
}
