//! RocksDB's own statistics, under names of the metrics.

use std::sync::atomic::Ordering;

use moneta_store::{Figure, FigureKind};
use rocksdb::properties::{self, PropName};
use rocksdb::statistics::Ticker;

use crate::database::RocksDatabase;

/// Levels that RocksDB has by default, whatever the kind of compaction.
const LEVELS: usize = 7;

/// RocksDB's counters: name, meaning, and which it is.
const TICKERS: [(&str, &str, Ticker); 25] = [
    ("rocks_flush_bytes_written_total", "Bytes written to table files out of memory.", Ticker::FlushWriteBytes),
    ("rocks_compaction_bytes_read_total", "Bytes that compaction read.", Ticker::CompactReadBytes),
    ("rocks_compaction_bytes_written_total", "Bytes that compaction wrote.", Ticker::CompactWriteBytes),
    ("rocks_log_bytes_written_total", "Bytes written to logs.", Ticker::WalFileBytes),
    ("rocks_log_syncs_total", "Syncs of logs.", Ticker::WalFileSynced),
    ("rocks_bytes_written_total", "Bytes of keys and records that batches wrote.", Ticker::BytesWritten),
    ("rocks_bytes_read_total", "Bytes of records that reads found.", Ticker::BytesRead),
    ("rocks_memtable_hits_total", "Reads answered from memory.", Ticker::MemtableHit),
    ("rocks_memtable_misses_total", "Reads that memory could not answer.", Ticker::MemtableMiss),
    ("rocks_bloom_useful_total", "Files that a filter kept a read away from.", Ticker::BloomFilterUseful),
    ("rocks_bloom_positive_total", "Files that a filter let a read through to.", Ticker::BloomFilterFullPositive),
    ("rocks_bloom_true_positive_total", "Of these, files that had the key.", Ticker::BloomFilterFullTruePositive),
    ("rocks_block_cache_hits_total", "Blocks found in the block cache.", Ticker::BlockCacheHit),
    ("rocks_block_cache_misses_total", "Blocks not found in the block cache.", Ticker::BlockCacheMiss),
    ("rocks_block_cache_bytes_read_total", "Bytes read from the block cache.", Ticker::BlockCacheBytesRead),
    ("rocks_block_cache_bytes_written_total", "Bytes put into the block cache.", Ticker::BlockCacheBytesWrite),
    ("rocks_gets_level0_total", "Reads answered from level 0.", Ticker::GetHitL0),
    ("rocks_gets_level1_total", "Reads answered from level 1.", Ticker::GetHitL1),
    ("rocks_gets_level2_up_total", "Reads answered from level 2 or above.", Ticker::GetHitL2AndUp),
    (
        "rocks_compaction_overwritten_total",
        "Records that compaction dropped because newer ones were there.",
        Ticker::CompactionKeyDropNewerEntry,
    ),
    (
        "rocks_compaction_deleted_total",
        "Deletes that compaction dropped because nothing was left to delete.",
        Ticker::CompactionKeyDropObsolete,
    ),
    ("rocks_fifo_deletions_total", "Times that the oldest files went to make room.", Ticker::FifoMaxSizeCompactions),
    ("rocks_file_opens_total", "Table files opened.", Ticker::NoFileOpens),
    ("rocks_background_errors_total", "Flushes and compactions that failed.", Ticker::ErrorHandlerBgErrorCount),
    ("rocks_checksum_mismatches_total", "Blocks whose checksum did not fit.", Ticker::BlockChecksumMismatchCount),
];

/// What RocksDB says of its state, each summed over shards: name, meaning, and which it is.
const PROPERTIES: [(&str, &str, &PropName); 9] = [
    ("rocks_keys_estimated", "Keys, as RocksDB estimates them.", properties::ESTIMATE_NUM_KEYS),
    ("rocks_table_bytes", "Bytes of live table files.", properties::LIVE_SST_FILES_SIZE),
    ("rocks_table_bytes_on_disk", "The same, with files not yet removed.", properties::TOTAL_SST_FILES_SIZE),
    ("rocks_memtable_bytes", "Memory of write buffers.", properties::CUR_SIZE_ALL_MEM_TABLES),
    ("rocks_table_reader_bytes", "Memory of filters and indexes.", properties::ESTIMATE_TABLE_READERS_MEM),
    (
        "rocks_compaction_pending_bytes",
        "Bytes that compaction has yet to rewrite, as RocksDB estimates them.",
        properties::ESTIMATE_PENDING_COMPACTION_BYTES,
    ),
    ("rocks_compactions_running", "Compactions at work.", properties::NUM_RUNNING_COMPACTIONS),
    ("rocks_flushes_running", "Flushes at work.", properties::NUM_RUNNING_FLUSHES),
    ("rocks_writes_stopped", "Shards that take no writes until compaction catches up.", properties::IS_WRITE_STOPPED),
];

/// All of it.
pub(crate) fn figures(rocks: &RocksDatabase) -> Vec<Figure> {
    let figure = |name, help, kind, value: u64| Figure { name, help, kind, labels: Vec::new(), value: value as f64 };
    let tickers = TICKERS
        .iter()
        .map(|(name, help, ticker)| figure(name, help, FigureKind::Counter, rocks.options.get_ticker_count(*ticker)));
    let states =
        PROPERTIES.iter().map(|(name, help, property)| figure(name, help, FigureKind::Gauge, rocks.sum(property)));
    let removed = [
        (
            "rocks_compaction_expired_total",
            "Records that compaction dropped because their time was up.",
            &rocks.removed.expired,
        ),
        (
            "rocks_compaction_flushed_total",
            "Records that compaction dropped because a flush covers them.",
            &rocks.removed.flushed,
        ),
    ];
    let removed =
        removed.map(|(name, help, counter)| figure(name, help, FigureKind::Counter, counter.load(Ordering::Relaxed)));
    // The block cache is one for all shards, and each of them knows it.
    let cache = rocks.shards.first().map_or(0, |shard| shard.property(properties::BLOCK_CACHE_USAGE));
    let cache = figure("rocks_block_cache_bytes", "Memory of the block cache.", FigureKind::Gauge, cache);
    let stalled = Figure {
        name: "rocks_stall_seconds_total",
        help: "Time that writes waited for flushes and compactions.",
        kind: FigureKind::Counter,
        labels: Vec::new(),
        value: rocks.options.get_ticker_count(Ticker::StallMicros) as f64 / 1e6,
    };
    tickers.chain([stalled]).chain(states).chain(removed).chain([cache]).chain(levels(rocks)).collect()
}

/// Files of each level that has any, over all shards.
fn levels(rocks: &RocksDatabase) -> impl Iterator<Item = Figure> + '_ {
    (0..LEVELS).filter_map(|level| {
        let name = properties::num_files_at_level(level);
        let count = |shard: &crate::shard::Shard| {
            shard.db.property_value(&name).ok().flatten().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let files: u64 = rocks.shards.iter().map(count).sum();
        (files > 0).then(|| Figure {
            name: "rocks_files",
            help: "Table files of a level.",
            kind: FigureKind::Gauge,
            labels: vec![("level", level.to_string())],
            value: files as f64,
        })
    })
}
