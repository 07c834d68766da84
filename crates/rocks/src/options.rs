//! The configuration in RocksDB's own terms.

use std::sync::Arc;

use moneta_embedded::{EmbeddedError, EngineShared};
use rocksdb::statistics::StatsLevel;
use rocksdb::{BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType, LogLevel, Options, WriteOptions};

use crate::config::{Compaction, Compression, Filter, Log, RocksConfig};
use crate::filter::{DeadFilterFactory, Removed};

/// Buffers of a shard: one that is filled, and up to two that are being flushed.
const BUFFERS: i32 = 3;
/// Under FIFO: how many small files are joined at a time, at least. With fewer the same bytes would be written more often; with
/// more, reads would have more filters to ask.
const JOINED_MIN: i32 = 12;
/// Bytes of RocksDB's own log of what it does, of which two files are kept.
const INFO_LOG_BYTES: usize = 1 << 20;

/// Options for every shard; they share statistics and the block cache.
pub(crate) fn options(
    config: &RocksConfig,
    shared: &Arc<EngineShared>,
    removed: &Arc<Removed>,
) -> Result<Options, EmbeddedError> {
    // First what only this way can be said: a closing engine flushes when it is told to, and not when it was killed. And no
    // file has a time to live: by default FIFO drops each after 30 days, whatever room there is, and the others rewrite it.
    let mut text = String::from("avoid_flush_during_shutdown=true;ttl=0;");
    if config.compaction == Compaction::Fifo {
        let bytes = config.files_bytes();
        text += &format!("compaction_options_fifo={{max_table_files_size={bytes};allow_compaction=true;}};");
    }
    let parsed = Options::default().get_options_from_string(&text);
    let mut options =
        parsed.map_err(|error| EmbeddedError::Config(format!("RocksDB does not take its options: {error}")))?;
    options.create_if_missing(true);
    options.set_compaction_style(match config.compaction {
        Compaction::Fifo => DBCompactionStyle::Fifo,
        Compaction::Universal => DBCompactionStyle::Universal,
        Compaction::Level => DBCompactionStyle::Level,
    });
    buffers(&mut options, config);
    options.set_compression_type(match config.compression {
        Compression::Off => DBCompressionType::None,
        Compression::Lz4 => DBCompressionType::Lz4,
    });
    options.set_use_direct_reads(config.direct_reads);
    options.set_max_background_jobs(i32::try_from(config.background_threads.max(2)).unwrap_or(i32::MAX));
    options.set_block_based_table_factory(&tables(config));
    let factory = DeadFilterFactory { shared: Arc::clone(shared), removed: Arc::clone(removed) };
    options.set_compaction_filter_factory(factory);
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptDetailedTimers);
    options.set_stats_dump_period_sec(0);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(INFO_LOG_BYTES);
    options.set_keep_log_file_num(2);
    Ok(options)
}

fn buffers(options: &mut Options, config: &RocksConfig) {
    let buffer = config.buffer_bytes();
    options.set_write_buffer_size(usize::try_from(buffer).unwrap_or(usize::MAX));
    options.set_max_write_buffer_number(BUFFERS);
    if config.compaction == Compaction::Fifo {
        options.set_level_zero_file_num_compaction_trigger(JOINED_MIN);
        return;
    }
    options.set_target_file_size_base(buffer);
    options.set_max_bytes_for_level_base(4 * buffer);
    options.set_periodic_compaction_seconds(config.rewrite_after.as_secs().max(1));
}

fn tables(config: &RocksConfig) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    match config.filter {
        Filter::Off => (),
        Filter::Bloom(bits) => tables.set_bloom_filter(bits, false),
        Filter::Ribbon(bits) => tables.set_ribbon_filter(bits),
    }
    tables.set_optimize_filters_for_memory(true);
    if config.block_cache == 0 {
        tables.disable_cache();
    } else {
        tables.set_block_cache(&Cache::new_lru_cache(usize::try_from(config.block_cache).unwrap_or(usize::MAX)));
    }
    tables
}

/// How a batch is written.
pub(crate) fn write_options(log: Log) -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(log == Log::Off);
    options.set_sync(log == Log::EveryWrite);
    options
}
