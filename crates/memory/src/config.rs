//! What the memory engine is told at its start.

use moneta_pages::PAGE_BYTES;
use moneta_store::KeyHash;
use moneta_store::versions::Versioning;

use crate::hash_bits::SHARD_BITS_MAX;
use crate::log::pages_for;
use crate::segments::{Location, PAGE_EXTRA_BYTES};

/// Shards for each thread, so that threads seldom meet at a lock.
const SHARDS_PER_THREAD: usize = 4;
/// A shard is not made smaller than this, in bytes, for the sake of having more of them: each has open segments, spare
/// pages and a separate index page.
const SHARD_BYTES_MIN: u64 = 8 << 20;
/// Pages a shard needs besides those of items: index, two open segments, two spare ones, ghosts.
const PAGES_OVERHEAD: usize = 8;
/// Items of the largest size that a shard must be able to hold.
const LARGEST_ITEMS: usize = 2;

/// Configuration of the memory engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Bound on all memory of the engine: index, logs and ghosts, in bytes.
    pub limit: u64,
    /// Largest value, in bytes.
    pub item_max: usize,
    /// Whether items may be evicted to make room; if not, writes are refused when memory is full.
    pub evict: bool,
    /// Threads that will use the engine; decides over the number of shards.
    pub threads: usize,
    /// Number of shards, a power of two up to 256, instead of one fitting for threads and limit.
    pub shards: Option<usize>,
    /// How keys are hashed: the same for all stores of a stack.
    pub seed: KeyHash,
    /// How versions are made, and which deletes are remembered. In a cluster the memory of tombstones is part of the limit.
    pub versioning: Versioning,
}

/// What is evicted first when memory is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// S3-FIFO whose probationary share follows the traffic, and which weighs hits against bytes.
    #[default]
    Adaptive,
    /// S3-FIFO as the paper has it: a tenth of memory for new items, and every hit counts the same.
    S3Fifo,
}

/// Why an engine could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Too little memory for the largest item.
    #[error(
        "a memory limit of {limit} bytes is too small for items of up to {item_max} bytes: at least {needed} bytes"
    )]
    TooSmall {
        /// The limit asked for.
        limit: u64,
        /// The largest item asked for.
        item_max: usize,
        /// The smallest limit for such items.
        needed: u64,
    },
    /// More memory than the engine's locations can name.
    #[error("a memory limit of {limit} bytes is too large for {shards} shards: at most 128 GiB each")]
    TooLarge {
        /// The limit asked for.
        limit: u64,
        /// The shards asked for, or the most there can be.
        shards: usize,
    },
    /// The number of shards is not a power of two up to 256.
    #[error("{0} shards: must be a power of two up to 256")]
    Shards(usize),
    /// The system gives no memory.
    #[error("cannot map memory")]
    Memory(#[source] std::io::Error),
}

impl MemoryConfig {
    /// Pages for each of `shards` under `limit`.
    pub(crate) fn quota(limit: u64, shards: usize) -> usize {
        let pages = limit / (PAGE_BYTES + PAGE_EXTRA_BYTES) as u64;
        usize::try_from(pages).unwrap_or(usize::MAX) / shards
    }

    /// Bytes of the limit that items may use.
    pub(crate) fn for_items(&self) -> u64 {
        self.limit.saturating_sub(self.for_tombstones())
    }

    fn for_tombstones(&self) -> u64 {
        if self.versioning.cluster { self.versioning.tombstone_bytes } else { 0 }
    }

    /// Pages a shard needs to take the largest item.
    pub(crate) fn quota_min(item_max: usize) -> usize {
        PAGES_OVERHEAD + LARGEST_ITEMS * pages_for(item_max)
    }

    /// The smallest limit, in bytes, under which values of `item_max` bytes can be stored.
    pub fn limit_min(item_max: usize) -> u64 {
        (Self::quota_min(item_max) * (PAGE_BYTES + PAGE_EXTRA_BYTES)) as u64
    }

    /// The number of shards: as asked, or the largest that threads, limit and largest item allow.
    pub(crate) fn shard_count(&self) -> Result<usize, ConfigError> {
        let possible = Self::quota(self.for_items(), 1) / Self::quota_min(self.item_max);
        if possible == 0 || self.shards.is_some_and(|shards| shards > possible) {
            let items = Self::limit_min(self.item_max) * self.shards.unwrap_or(1) as u64;
            let needed = items + self.for_tombstones();
            return Err(ConfigError::TooSmall { limit: self.limit, item_max: self.item_max, needed });
        }
        if let Some(shards) = self.shards {
            if !shards.is_power_of_two() || shards > 1 << SHARD_BITS_MAX {
                return Err(ConfigError::Shards(shards));
            }
            // Locations name only so many segments of a shard.
            let nameable = Self::quota(self.for_items(), shards) <= Location::SEGMENTS_MAX;
            return if nameable { Ok(shards) } else { Err(ConfigError::TooLarge { limit: self.limit, shards }) };
        }
        let least = Self::quota(self.for_items(), 1).div_ceil(Location::SEGMENTS_MAX).next_power_of_two();
        let wanted = (self.threads.max(1) * SHARDS_PER_THREAD).next_power_of_two().max(least);
        let roomy = usize::try_from(self.limit / SHARD_BYTES_MIN).unwrap_or(usize::MAX).max(1);
        let most = possible.min(roomy).min(1 << SHARD_BITS_MAX);
        if least > most {
            return Err(ConfigError::TooLarge { limit: self.limit, shards: 1 << SHARD_BITS_MAX });
        }
        Ok(wanted.min(1 << most.ilog2()))
    }
}
