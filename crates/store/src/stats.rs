//! What every store can say of itself in numbers.

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
    /// Memory of the index, in bytes.
    pub index_bytes: u64,
    /// Memory set aside for items, in bytes, full or not.
    pub log_bytes: u64,
    /// Memory of the ghosts (hashes of evicted keys), in bytes.
    pub ghost_bytes: u64,
    /// Bytes in the logs taken by records that are dead: overwritten, deleted, expired.
    pub dead_bytes: u64,
    /// Live items evicted to make room.
    pub evictions: u64,
    /// Of these, never read.
    pub evicted_unfetched: u64,
    /// Of the evictions, from the probationary log.
    pub evicted_small: u64,
    /// Items moved from the probationary to the main log, or round in the main log, because they were hit.
    pub promotions: u64,
    /// Writes that found their key's hash among the ghosts and went straight to the main log.
    pub ghost_hits: u64,
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
    /// What an engine on devices says of itself; of a tiered store its lower tier, while everything above is of its RAM.
    pub flash: Option<FlashStats>,
    /// What lies between two tiers.
    pub tiers: Option<TierStats>,
}

/// Gauges and counters of an engine that keeps its items on devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashStats {
    /// Items that can be read now (dead ones not yet noticed included).
    pub items: u64,
    /// Items stored by clients since start.
    pub stored_items: u64,
    /// Bytes of memory: index.
    pub index_bytes: u64,
    /// Bytes of memory: region tables and buffers of regions being filled or written.
    pub buffer_bytes: u64,
    /// Bytes of the devices that regions take.
    pub device_bytes: u64,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// Regions that hold nothing.
    pub regions_free: u64,
    /// Regions being filled.
    pub regions_open: u64,
    /// Regions full and being written.
    pub regions_sealed: u64,
    /// Regions written.
    pub regions_closed: u64,
    /// Regions being emptied.
    pub regions_reclaiming: u64,
    /// Regions in no use any more, because a device cannot read or write them.
    pub regions_retired: u64,
    /// Regions emptied since start to make room.
    pub regions_emptied: u64,
    /// Unix second in which the oldest region that holds something was begun; 0 without one.
    pub oldest_second: u64,
    /// Lookups that found an entry in the index.
    pub lookups: u64,
    /// Of these, answered from the buffer of a region not yet written.
    pub buffer_reads: u64,
    /// Reads of a device for requests.
    pub device_reads: u64,
    /// Bytes read from devices for requests.
    pub device_read_bytes: u64,
    /// Reads for requests that wait for a device now.
    pub reads_in_flight: u64,
    /// Time from asking for a read to having it.
    pub read_latency: Latency,
    /// Bytes of keys and values stored by clients.
    pub item_bytes_written: u64,
    /// Bytes of keys and values carried forward out of regions that were emptied.
    pub carried_bytes: u64,
    /// Items carried forward.
    pub carried_items: u64,
    /// Bytes of tombstones written.
    pub tombstone_bytes: u64,
    /// Bytes written to devices, everything included.
    pub device_written_bytes: u64,
    /// Live items that went with their region, or for want of room in the index.
    pub evictions: u64,
    /// Items that went, or were not brought back by a recovery, for want of room in the index.
    pub index_evictions: u64,
    /// Bytes that the index may take; `u64::MAX` without a limit.
    pub index_limit_bytes: u64,
    /// Of these, never read since they were written.
    pub evicted_unfetched: u64,
    /// Items whose time was up when their region was emptied or somebody asked for them.
    pub expired: u64,
    /// Entries of the index whose record turned out to be another key's.
    pub false_matches: u64,
    /// Records, footers and headers whose checksum did not fit.
    pub checksum_failures: u64,
    /// Reads and writes that a device failed.
    pub io_errors: u64,
    /// Whether devices are off after a failed write: what they hold unchanged is read as far as that goes, and nothing is
    /// written until they take writes again.
    pub off: bool,
    /// Files of devices that were removed or replaced while the node runs.
    pub devices_gone: u64,
    /// How long the last recovery took, in microseconds.
    pub recovery_microseconds: u64,
    /// Items found by it.
    pub recovered_items: u64,
    /// Regions it is through with.
    pub recovered_regions: u64,
    /// Bytes of device it read.
    pub recovery_read_bytes: u64,
    /// Whether it began from a snapshot of the index.
    pub from_snapshot: bool,
}

/// Gauges and counters of a store of two tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// What the upper tier is: `ram`, or `remote_l1`.
    pub upper: &'static str,
    /// What the lower tier is: `ssd`, `rocks`, `lmdb`, or `remote_l2`.
    pub lower: &'static str,
    /// Items in the lower tier, which has all of them.
    pub lower_items: u64,
    /// Live items that the lower tier evicted.
    pub lower_evictions: u64,
    /// Of these, never read.
    pub lower_evicted_unfetched: u64,
    /// Reads answered by the upper tier.
    pub upper_hits: u64,
    /// Reads answered by the lower tier.
    pub lower_hits: u64,
    /// Reads answered by neither.
    pub misses: u64,
    /// Items brought from the lower into the upper tier.
    pub promotions: u64,
    /// Promotions given up because the key was written meanwhile.
    pub promotions_overtaken: u64,
    /// Promotions not begun because the policy was against it.
    pub promotions_declined: u64,
    /// Writes kept out of the lower tier to spare its device.
    pub writes_withheld: u64,
    /// Writes that the lower tier failed.
    pub lower_failures: u64,
    /// Requests that waited for another one on the same key.
    pub key_waits: u64,
}

/// A gauge or counter that only some engine or peer has, under a name of its own. A store that is made of others has theirs
/// too; where two of them use the same name, their labels tell them apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Snake case, in the manner of Prometheus and without the program's name before it; counters end in `_total`.
    pub name: &'static str,
    /// One sentence on what it counts and in what unit.
    pub help: &'static str,
    /// Whether it may fall.
    pub kind: FigureKind,
    /// Which of several of that name this is: names in snake case, values of any text.
    pub labels: Vec<(&'static str, String)>,
    /// How many, or how much.
    pub value: f64,
}

/// How a [`Figure`] moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// Grows only, from 0 at the start of the process.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// A histogram of times: powers of two of microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many took less than 2^n microseconds and no less than half of it; the last also everything longer.
    pub buckets: [u64; Latency::BUCKETS],
    /// Their sum, in microseconds.
    pub sum_microseconds: u64,
}

impl Latency {
    /// Buckets: up to 8 s, and longer.
    pub const BUCKETS: usize = 24;

    /// The bucket of a time in microseconds.
    pub fn bucket(microseconds: u64) -> usize {
        ((u64::BITS - microseconds.leading_zeros()) as usize).min(Self::BUCKETS - 1)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl StoreStats {
    /// Adds another shard's numbers; what is not of a shard stays as it is.
    pub fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.total_items += other.total_items;
        self.bytes += other.bytes;
        self.limit += other.limit;
        self.shrinking |= other.shrinking;
        self.index_bytes += other.index_bytes;
        self.log_bytes += other.log_bytes;
        self.ghost_bytes += other.ghost_bytes;
        self.dead_bytes += other.dead_bytes;
        self.evictions += other.evictions;
        self.evicted_unfetched += other.evicted_unfetched;
        self.evicted_small += other.evicted_small;
        self.promotions += other.promotions;
        self.ghost_hits += other.ghost_hits;
        self.reclaimed += other.reclaimed;
        self.expired_unfetched += other.expired_unfetched;
        self.out_of_memory += other.out_of_memory;
        self.tail_idle = self.tail_idle.max(other.tail_idle);
        self.evicted_idle = self.evicted_idle.max(other.evicted_idle);
    }
}
