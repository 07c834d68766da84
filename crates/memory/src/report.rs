//! What this engine counts beside what every store does.

use moneta_store::metric::{Metric, Reading, Sample, Unit, by, samples};

/// Gauges and counters of the engine. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Memory of the index, in bytes.
    pub index_bytes: u64,
    /// Memory set aside for items, in bytes, full or not.
    pub log_bytes: u64,
    /// Memory of the ghosts (hashes of evicted keys), in bytes.
    pub ghost_bytes: u64,
    /// Bytes in the logs taken by records that are dead: overwritten, deleted, expired.
    pub dead_bytes: u64,
    /// Of the evictions, from the probationary log.
    pub evicted_small: u64,
    /// Items moved from the probationary to the main log, or round in the main log, because they were hit.
    pub promotions: u64,
    /// Writes that found their key's hash among the ghosts and went straight to the main log.
    pub ghost_hits: u64,
}

const METRICS: &[Reading<MemoryStats>] = &[
    Metric::gauge("memory_bytes", Unit::Bytes, "Memory of the items in RAM, by part.")
        .labels(&["part"])
        .keys(&["hash_bytes", "log_bytes", "ghost_bytes"])
        .read(|memory| {
            by(&[("index", memory.index_bytes), ("logs", memory.log_bytes), ("ghosts", memory.ghost_bytes)])
        }),
    Metric::gauge("dead_bytes", Unit::Bytes, "Of the logs, bytes of items overwritten, deleted or expired.")
        .read(|memory| memory.dead_bytes.into()),
    Metric::counter("evictions_small_total", Unit::Count, "Of the evictions, items of the small (probationary) log.")
        .keys(&["evicted_small"])
        .read(|memory| memory.evicted_small.into()),
    Metric::counter("promotions_total", Unit::Count, "Items moved to the front of the main log because they were hit.")
        .keys(&["promotions"])
        .read(|memory| memory.promotions.into()),
    Metric::counter("ghost_hits_total", Unit::Count, "Writes of keys that had been evicted lately.")
        .keys(&["ghost_hits"])
        .read(|memory| memory.ghost_hits.into()),
];

/// The declarations of the engine's metrics.
pub fn metrics() -> impl Iterator<Item = Metric> {
    METRICS.iter().map(Reading::metric)
}

impl MemoryStats {
    /// Memory of all parts, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.index_bytes + self.log_bytes + self.ghost_bytes
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        samples(METRICS, self)
    }

    /// Adds another shard's numbers.
    pub(crate) fn add(&mut self, other: &Self) {
        self.index_bytes += other.index_bytes;
        self.log_bytes += other.log_bytes;
        self.ghost_bytes += other.ghost_bytes;
        self.dead_bytes += other.dead_bytes;
        self.evicted_small += other.evicted_small;
        self.promotions += other.promotions;
        self.ghost_hits += other.ghost_hits;
    }
}
