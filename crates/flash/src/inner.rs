//! The state of an engine: what its handles, its threads and its requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use crossbeam_utils::CachePadded;
use moneta_store::Clock;
use moneta_store::component::Observer;
use parking_lot::{Mutex, RwLock};

use crate::config::FlashConfig;
use crate::counters::FlashCounters;
use crate::deletes::debts::Debts;
use crate::deletes::floors::KnownFloors;
use crate::deletes::remembered::Deletes;
use crate::feed::telling::Telling;
use crate::index::shard::Shard;
use crate::log::regions::Regions;
use crate::log::writer::{GROUPS, Log, RESERVE};
use crate::presence::Presence;
use crate::reclaim::work::Reclaim;
use crate::threads::Threads;
use moneta_device::devices::Devices;
use moneta_device::io::{ReadCounters, Reader};
use moneta_device::regions::identity::Shards;

/// A shard on its own cache lines: locks of neighbouring shards are contended too.
pub(crate) type Slot = CachePadded<Mutex<Shard>>;

/// Everything that handles share.
pub(crate) struct Inner {
    pub(crate) shards: Box<[Slot]>,
    /// Maps a key to its shard, and to the identity the shard knows it by.
    pub(crate) identities: Shards,
    pub(crate) config: FlashConfig,
    pub(crate) devices: Arc<Devices>,
    pub(crate) regions: Arc<Regions>,
    pub(crate) log: Arc<Log>,
    pub(crate) reader: Reader,
    pub(crate) reads: Arc<ReadCounters>,
    pub(crate) counters: Arc<FlashCounters>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) reclaim: Arc<Reclaim>,
    pub(crate) presence: Presence,
    pub(crate) debts: Debts,
    pub(crate) observer: RwLock<Option<Arc<dyn Observer>>>,
    /// The second at which a delayed flush takes effect; 0: none is pending.
    pub(crate) flush_at: AtomicU32,
    // Held while a flush takes effect: two at once would give regions back twice.
    pub(crate) flushing: Mutex<()>,
    /// The flushes that are known, as versions.
    pub(crate) floors: KnownFloors,
    /// Deletes that are remembered, by shard.
    pub(crate) deletes: Deletes,
    pub(crate) from_snapshot: AtomicBool,
    /// When it was opened, Unix milliseconds.
    pub(crate) opened: u64,
    /// What readers of the feed are told beside the log's records.
    pub(crate) telling: Telling,
    pub(crate) reclaimer: Threads,
    pub(crate) flusher: Threads,
}

impl Inner {
    #[inline]
    pub(crate) fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[self.identities.number(hash)]
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.shards.iter().map(|slot| &**slot)
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    pub(crate) fn items(&self) -> u64 {
        let items = |shard: &Mutex<Shard>| {
            let mut shard = shard.lock();
            shard.note_floor(self.log.floor());
            shard.items()
        };
        self.shards().map(items).sum()
    }

    /// The number of free regions below which regions are emptied.
    pub(crate) fn free_wanted(&self) -> usize {
        RESERVE + GROUPS.min(self.regions.usable() / 8)
    }
}
