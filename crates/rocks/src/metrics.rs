//! RocksDB's own statistics, under names of the metrics.

use std::sync::atomic::Ordering;

use moneta_store::metric::{Metric, Reading, Sample, Unit, Values, samples};
use rocksdb::properties::{self, PropName};
use rocksdb::statistics::Ticker;

use crate::shards::RocksDatabase;

/// Levels that RocksDB has by default, whatever the kind of compaction.
const LEVELS: usize = 7;

/// RocksDB's counters, and which each is.
const TICKERS: [(Metric, Ticker); 25] = [
    (
        Metric::counter("rocks_flush_bytes_written_total", Unit::Bytes, "Bytes written to table files out of memory."),
        Ticker::FlushWriteBytes,
    ),
    (
        Metric::counter("rocks_compaction_bytes_read_total", Unit::Bytes, "Bytes that compaction read."),
        Ticker::CompactReadBytes,
    ),
    (
        Metric::counter("rocks_compaction_bytes_written_total", Unit::Bytes, "Bytes that compaction wrote."),
        Ticker::CompactWriteBytes,
    ),
    (Metric::counter("rocks_log_bytes_written_total", Unit::Bytes, "Bytes written to logs."), Ticker::WalFileBytes),
    (Metric::counter("rocks_log_syncs_total", Unit::Count, "Syncs of logs."), Ticker::WalFileSynced),
    (
        Metric::counter("rocks_bytes_written_total", Unit::Bytes, "Bytes of keys and records that batches wrote."),
        Ticker::BytesWritten,
    ),
    (Metric::counter("rocks_bytes_read_total", Unit::Bytes, "Bytes of records that reads found."), Ticker::BytesRead),
    (Metric::counter("rocks_memtable_hits_total", Unit::Count, "Reads answered from memory."), Ticker::MemtableHit),
    (
        Metric::counter("rocks_memtable_misses_total", Unit::Count, "Reads that memory could not answer."),
        Ticker::MemtableMiss,
    ),
    (
        Metric::counter("rocks_bloom_useful_total", Unit::Count, "Files that a filter kept a read away from."),
        Ticker::BloomFilterUseful,
    ),
    (
        Metric::counter("rocks_bloom_positive_total", Unit::Count, "Files that a filter let a read through to."),
        Ticker::BloomFilterFullPositive,
    ),
    (
        Metric::counter("rocks_bloom_true_positive_total", Unit::Count, "Of these, files that had the key."),
        Ticker::BloomFilterFullTruePositive,
    ),
    (
        Metric::counter("rocks_block_cache_hits_total", Unit::Count, "Blocks found in the block cache."),
        Ticker::BlockCacheHit,
    ),
    (
        Metric::counter("rocks_block_cache_misses_total", Unit::Count, "Blocks not found in the block cache."),
        Ticker::BlockCacheMiss,
    ),
    (
        Metric::counter("rocks_block_cache_bytes_read_total", Unit::Bytes, "Bytes read from the block cache."),
        Ticker::BlockCacheBytesRead,
    ),
    (
        Metric::counter("rocks_block_cache_bytes_written_total", Unit::Bytes, "Bytes put into the block cache."),
        Ticker::BlockCacheBytesWrite,
    ),
    (Metric::counter("rocks_gets_level0_total", Unit::Count, "Reads answered from level 0."), Ticker::GetHitL0),
    (Metric::counter("rocks_gets_level1_total", Unit::Count, "Reads answered from level 1."), Ticker::GetHitL1),
    (
        Metric::counter("rocks_gets_level2_up_total", Unit::Count, "Reads answered from level 2 or above."),
        Ticker::GetHitL2AndUp,
    ),
    (
        Metric::counter(
            "rocks_compaction_overwritten_total",
            Unit::Count,
            "Records that compaction dropped because newer ones were there.",
        ),
        Ticker::CompactionKeyDropNewerEntry,
    ),
    (
        Metric::counter(
            "rocks_compaction_deleted_total",
            Unit::Count,
            "Deletes that compaction dropped because nothing was left to delete.",
        ),
        Ticker::CompactionKeyDropObsolete,
    ),
    (
        Metric::counter("rocks_fifo_deletions_total", Unit::Count, "Times that the oldest files went to make room."),
        Ticker::FifoMaxSizeCompactions,
    ),
    (Metric::counter("rocks_file_opens_total", Unit::Count, "Table files opened."), Ticker::NoFileOpens),
    (
        Metric::counter("rocks_background_errors_total", Unit::Count, "Flushes and compactions that failed."),
        Ticker::ErrorHandlerBgErrorCount,
    ),
    (
        Metric::counter("rocks_checksum_mismatches_total", Unit::Count, "Blocks whose checksum did not fit."),
        Ticker::BlockChecksumMismatchCount,
    ),
];

/// What RocksDB says of its state, each summed over shards.
const PROPERTIES: [(Metric, &PropName); 9] = [
    (
        Metric::gauge("rocks_keys_estimated", Unit::Count, "Keys, as RocksDB estimates them."),
        properties::ESTIMATE_NUM_KEYS,
    ),
    (Metric::gauge("rocks_table_bytes", Unit::Bytes, "Bytes of live table files."), properties::LIVE_SST_FILES_SIZE),
    (
        Metric::gauge("rocks_table_bytes_on_disk", Unit::Bytes, "The same, with files not yet removed."),
        properties::TOTAL_SST_FILES_SIZE,
    ),
    (
        Metric::gauge("rocks_memtable_bytes", Unit::Bytes, "Memory of write buffers."),
        properties::CUR_SIZE_ALL_MEM_TABLES,
    ),
    (
        Metric::gauge("rocks_table_reader_bytes", Unit::Bytes, "Memory of filters and indexes."),
        properties::ESTIMATE_TABLE_READERS_MEM,
    ),
    (
        Metric::gauge(
            "rocks_compaction_pending_bytes",
            Unit::Bytes,
            "Bytes that compaction has yet to rewrite, as RocksDB estimates them.",
        ),
        properties::ESTIMATE_PENDING_COMPACTION_BYTES,
    ),
    (
        Metric::gauge("rocks_compactions_running", Unit::Count, "Compactions at work."),
        properties::NUM_RUNNING_COMPACTIONS,
    ),
    (Metric::gauge("rocks_flushes_running", Unit::Count, "Flushes at work."), properties::NUM_RUNNING_FLUSHES),
    (
        Metric::gauge("rocks_writes_stopped", Unit::Count, "Shards that take no writes until compaction catches up."),
        properties::IS_WRITE_STOPPED,
    ),
];

/// The others.
const METRICS: &[Reading<RocksDatabase>] = &[
    Metric::counter("rocks_stall_seconds_total", Unit::Seconds, "Time that writes waited for flushes and compactions.")
        .read(|rocks| (rocks.options.get_ticker_count(Ticker::StallMicros) as f64 / 1e6).into()),
    Metric::counter(
        "rocks_compaction_expired_total",
        Unit::Count,
        "Records that compaction dropped because their time was up.",
    )
    .read(|rocks| rocks.removed.expired.load(Ordering::Relaxed).into()),
    Metric::counter(
        "rocks_compaction_flushed_total",
        Unit::Count,
        "Records that compaction dropped because a flush covers them.",
    )
    .read(|rocks| rocks.removed.flushed.load(Ordering::Relaxed).into()),
    // The block cache is one for all shards, and each of them knows it.
    Metric::gauge("rocks_block_cache_bytes", Unit::Bytes, "Memory of the block cache.")
        .read(|rocks| rocks.shards.first().map_or(0, |shard| shard.property(properties::BLOCK_CACHE_USAGE)).into()),
    Metric::gauge("rocks_files", Unit::Count, "Table files of a level.").labels(&["level"]).read(files_by_level),
];

/// Files of each level that has any, over all shards.
fn files_by_level(rocks: &RocksDatabase) -> Values {
    let files = |level| -> u64 {
        let name = properties::num_files_at_level(level);
        let count = |shard: &crate::shard::Shard| {
            shard.db.property_value(&name).ok().flatten().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        rocks.shards.iter().map(count).sum()
    };
    let levels = (0..LEVELS).map(|level| (level, files(level))).filter(|(_, files)| *files > 0);
    levels.fold(Values::NONE, |all, (level, files)| all.and([level.to_string().as_str()], files))
}

/// The declarations of the engine's metrics.
pub fn metrics() -> impl Iterator<Item = Metric> {
    let tickers = TICKERS.iter().map(|(metric, _)| *metric);
    tickers.chain(PROPERTIES.iter().map(|(metric, _)| *metric)).chain(METRICS.iter().map(Reading::metric))
}

/// The library's own metrics, as they are now.
pub(crate) fn of(rocks: &RocksDatabase) -> Vec<Sample> {
    let tickers = TICKERS.iter().map(|(metric, ticker)| metric.sample(rocks.options.get_ticker_count(*ticker)));
    let states = PROPERTIES.iter().map(|(metric, property)| metric.sample(rocks.sum(property)));
    tickers.chain(states).chain(samples(METRICS, rocks)).collect()
}
