//! Deletes that are remembered in RAM, by shard of the index. The log has them too, but cannot be asked by key: a start reads
//! them back ([`crate::start::buried`]).

use moneta_store::Version;
use moneta_store::versions::{Tombstones, Versioning};
use parking_lot::Mutex;

/// Tombstones of all shards. The caller holds the lock of the key's shard.
pub(crate) struct Deletes(Box<[Mutex<Tombstones>]>);

impl Deletes {
    /// Of a tier that is opened at `now`, in milliseconds since the Unix epoch: it does not know the deletes from before.
    pub(crate) fn new(versioning: &Versioning, shards: usize, now: u64) -> Self {
        let of_shard = |_| Mutex::new(Tombstones::of_shard(versioning, shards as u64, now));
        Self((0..shards).map(of_shard).collect())
    }

    /// Begins again, with every delete since `from`, in milliseconds since the Unix epoch: the caller inserts those that there
    /// are.
    pub(crate) fn begin(&self, versioning: &Versioning, from: u64) {
        // By this node's clock alone, unlike at a start without any.
        let horizon = from.saturating_add(versioning.skew_max);
        for shard in &self.0 {
            *shard.lock() = Tombstones::of_shard(versioning, self.0.len() as u64, horizon);
        }
    }

    /// Deletes from before `millis` may be forgotten.
    pub(crate) fn lose_before(&self, millis: u64) {
        self.0.iter().for_each(|shard| shard.lock().lose_before(millis));
    }

    /// The newest version under which a key was deleted, as far as it is known, and since when all deletes are, in milliseconds
    /// since the Unix epoch.
    pub(crate) fn find(&self, shard: usize, hash: u64) -> (Option<Version>, u64) {
        let tombstones = self.0[shard].lock();
        (tombstones.find(hash), tombstones.horizon())
    }

    /// How many deletes are remembered, the bytes of memory that they take, and since when all are, in milliseconds since the
    /// Unix epoch.
    pub(crate) fn census(&self) -> (u64, u64, u64) {
        self.0.iter().fold((0, 0, 0), |(count, bytes, horizon), shard| {
            let tombstones = shard.lock();
            (count + tombstones.len() as u64, bytes + tombstones.memory() as u64, horizon.max(tombstones.horizon()))
        })
    }

    /// Remembers a delete at `now`, in milliseconds since the Unix epoch.
    pub(crate) fn insert(&self, shard: usize, hash: u64, version: Version, now: u64) {
        self.0[shard].lock().insert(hash, version, now);
    }
}
