//! What every store can say of itself in numbers.

/// Gauges and counters of a store. Counters only grow, except that `stats reset` is taken by the reader as a new base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Items that can be read now (dead ones not yet noticed included).
    pub items: u64,
    /// Items stored since start.
    pub total_items: u64,
    /// Bytes of memory that items take: headers, keys and values.
    pub bytes: u64,
    /// Limit on all memory of the store, in bytes; 0 where it has none.
    pub limit: u64,
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
}

impl StoreStats {
    /// Adds another store's numbers, as over shards.
    pub fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.total_items += other.total_items;
        self.bytes += other.bytes;
        self.limit += other.limit;
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
    }
}
