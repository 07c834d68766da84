//! What every store can say of itself in numbers, and the metrics that are made of it.

use crate::metric::{Metric, Reading, Sample, Unit, samples};

/// Gauges and counters of a store. Counters only grow, except that `stats reset` is taken by the reader as a new base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// What holds the items, in a word: `ram`, `ssd`, `rocks`, `lmdb`, `remote`; empty if the store does not say.
    pub kind: &'static str,
    /// Items that can be read now (dead ones not yet noticed included).
    pub items: u64,
    /// Items stored since start.
    pub total_items: u64,
    /// Bytes of memory that items take: headers, keys and values.
    pub bytes: u64,
    /// Limit on all memory of the store, in bytes; 0 where it has none.
    pub limit: u64,
    /// Whether the store still evicts down to a limit that was lowered: items leave, and what it holds may be above the limit.
    pub shrinking: bool,
    /// Live items evicted to make room.
    pub evictions: u64,
    /// Of these, never read.
    pub evicted_unfetched: u64,
    /// Expired items whose room was taken back.
    pub reclaimed: u64,
    /// Of these, never read.
    pub expired_unfetched: u64,
    /// Writes refused for want of room.
    pub out_of_memory: u64,
    /// Seconds since the last access of the item that eviction looks at next; 0 where that is not known.
    pub tail_idle: u64,
    /// Seconds that the item evicted last had not been accessed for; 0 where that is not known.
    pub evicted_idle: u64,
    /// Bytes of devices that items may take; 0 where there are none.
    pub device_bytes: u64,
    /// Where the items stored first go first: the Unix second from which on all are there, 0 while there are none.
    pub oldest_second: Option<u64>,
    /// Deletes that are remembered in RAM.
    pub tombstones: u64,
    /// Memory of these, in bytes.
    pub tombstone_bytes: u64,
    /// The horizon: since when every delete that came to the store is remembered, in milliseconds since the Unix epoch; 0 where
    /// none are.
    pub horizon: u64,
    /// Of a store of two tiers, its lower tier, which has all items. What is above is of the upper tier then, but for
    /// `device_bytes`, `oldest_second`, and what is remembered of deletes.
    pub below: Option<Below>,
}

/// What the lower of two tiers holds and has given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// Items in it.
    pub items: u64,
    /// Live items that it evicted.
    pub evictions: u64,
    /// Of these, never read.
    pub evicted_unfetched: u64,
}

impl StoreStats {
    /// The metrics of every store. `stats` has for `items`, `evictions` and `evicted_unfetched` those of all tiers together: an
    /// item that leaves the upper tier is not lost.
    pub const METRICS: &[Reading<Self>] = &[
        Metric::only_stats("curr_items").read(|store| store.together().items.into()),
        Metric::gauge("items", Unit::Count, "Items held in RAM, or whatever the upper tier is.")
            .keys(&[])
            .read(|store| store.items.into()),
        Metric::counter("items_stored_total", Unit::Count, "Items stored in RAM, promotions included.")
            .keys(&["total_items"])
            .read(|store| store.total_items.into()),
        Metric::gauge("item_bytes", Unit::Bytes, "Memory that items take: headers, keys and values.")
            .keys(&["bytes"])
            .read(|store| store.bytes.into()),
        Metric::gauge("memory_limit_bytes", Unit::Bytes, "Limit on the memory of the items in RAM.")
            .keys(&[])
            .read(|store| store.limit.into()),
        Metric::only_stats("evictions").read(|store| store.together().evictions.into()),
        Metric::counter("evictions_total", Unit::Count, "Live items evicted for want of room.")
            .keys(&[])
            .read(|store| store.evictions.into()),
        Metric::only_stats("evicted_unfetched").read(|store| store.together().evicted_unfetched.into()),
        Metric::counter("evictions_unread_total", Unit::Count, "Of these, items that had never been read.")
            .keys(&[])
            .read(|store| store.evicted_unfetched.into()),
        Metric::counter("expirations_total", Unit::Count, "Expired items whose room was taken back.")
            .keys(&["reclaimed"])
            .read(|store| store.reclaimed.into()),
        Metric::counter("expirations_unread_total", Unit::Count, "Of these, items that had never been read.")
            .keys(&["expired_unfetched"])
            .read(|store| store.expired_unfetched.into()),
        Metric::gauge("tombstones", Unit::Count, "Deletes that are remembered in RAM.")
            .read(|store| store.tombstones.into()),
        Metric::gauge("tombstone_bytes", Unit::Bytes, "Memory of the deletes that are remembered.")
            .read(|store| store.tombstone_bytes.into()),
        Metric::gauge(
            "horizon_seconds",
            Unit::Seconds,
            "Unix second since which every delete that came to this node is remembered; 0 where none are.",
        )
        .keys(&["horizon"])
        .read(|store| store.horizon.div_ceil(1000).into()),
        Metric::counter("out_of_memory_total", Unit::Count, "Writes the store refused for want of room.")
            .keys(&[])
            .read(|store| store.out_of_memory.into()),
    ];

    /// The samples of [`StoreStats::METRICS`].
    pub fn samples(&self) -> Vec<Sample> {
        samples(Self::METRICS, self)
    }

    /// What all tiers together hold and have given up: the lower tier has all items.
    pub fn together(&self) -> Below {
        let Self { items, evictions, evicted_unfetched, .. } = *self;
        self.below.unwrap_or(Below { items, evictions, evicted_unfetched })
    }

    /// Adds another shard's numbers; what is not of a shard stays as it is.
    pub fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.total_items += other.total_items;
        self.bytes += other.bytes;
        self.limit += other.limit;
        self.shrinking |= other.shrinking;
        self.evictions += other.evictions;
        self.evicted_unfetched += other.evicted_unfetched;
        self.reclaimed += other.reclaimed;
        self.expired_unfetched += other.expired_unfetched;
        self.out_of_memory += other.out_of_memory;
        self.tombstones += other.tombstones;
        self.tombstone_bytes += other.tombstone_bytes;
        self.horizon = self.horizon.max(other.horizon);
        self.tail_idle = self.tail_idle.max(other.tail_idle);
        self.evicted_idle = self.evicted_idle.max(other.evicted_idle);
    }
}
