//! Deletes that are remembered: in RAM, as the engine that keeps everything there does it. A process that starts knows of none
//! from before, and so creates nothing that is older than its start.

use moneta_store::Version;
use moneta_store::versions::{Tombstones, Versioning};
use parking_lot::Mutex;

/// The tombstones of all shards.
#[derive(Debug)]
pub(crate) struct Deletes {
    shards: Box<[Mutex<Tombstones>]>,
    is_kept: bool,
}

impl Deletes {
    /// None, for a store that starts at `now`, in milliseconds since the Unix epoch.
    pub(crate) fn new(versioning: &Versioning, shards: usize, now: u64) -> Self {
        let shard = |_| Mutex::new(Tombstones::of_shard(versioning, shards as u64, now));
        Self { shards: (0..shards).map(shard).collect(), is_kept: versioning.cluster }
    }

    fn shard(&self, hash: u64) -> &Mutex<Tombstones> {
        &self.shards[shard_of(hash, self.shards.len())]
    }

    /// The newest version under which a key was deleted, as far as that is remembered, and the horizon.
    pub(crate) fn find(&self, hash: u64) -> (Option<Version>, u64) {
        let tombstones = self.shard(hash).lock();
        (tombstones.find(hash), tombstones.horizon())
    }

    /// Remembers a delete. `now`: milliseconds since the Unix epoch.
    pub(crate) fn insert(&self, hash: u64, version: Version, now: u64) {
        self.shard(hash).lock().insert(hash, version, now);
    }

    /// Forgets to know deletes from before a moment, in milliseconds since the Unix epoch.
    pub(crate) fn lose_before(&self, millis: u64) {
        self.shards.iter().for_each(|shard| shard.lock().lose_before(millis));
    }

    /// Whether what leaves without a delete by version is remembered, too.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// How many there are, their bytes, and the horizon.
    pub(crate) fn census(&self) -> (u64, u64, u64) {
        self.shards.iter().fold((0, 0, 0), |(count, bytes, horizon), shard| {
            let tombstones = shard.lock();
            (count + tombstones.len() as u64, bytes + tombstones.memory() as u64, horizon.max(tombstones.horizon()))
        })
    }
}

/// The shard of a key, by the upper half of its hash.
pub(crate) fn shard_of(hash: u64, shards: usize) -> usize {
    (((hash >> 32) * shards as u64) >> 32) as usize
}
