//! What the engine is told at its start.

use std::path::PathBuf;
use std::time::Duration;

use moneta_embedded::EmbeddedError;
use moneta_store::versions::Versioning;

/// Fewest bytes of a shard.
const SHARD_BYTES_MIN: u64 = 1 << 20;
/// Under FIFO an item is at most this part of its shard: a file goes whole, and one item must not take most of the others along.
const ITEM_PART: u64 = 8;
/// Most shards: each has separate threads, buffers and files.
const SHARDS_MAX: usize = 256;
/// A write buffer is this part of its shard, unless told otherwise,
const BUFFER_PART: u64 = 64;
/// but no more than so many bytes,
const BUFFER_MAX: u64 = 64 << 20;
/// and no less: RocksDB takes no smaller one.
const BUFFER_MIN: u64 = 64 << 10;

/// Configuration of the engine on RocksDB.
#[derive(Clone, Debug)]
pub struct RocksConfig {
    /// The folder, made if it is not there.
    pub path: PathBuf,
    /// Bytes that table files of all shards may take together. What becomes of more depends on `compaction`. Logs, and what is
    /// in memory, are beside it.
    pub bytes: u64,
    /// Databases that keys are spread over, by hash. A folder keeps the number it was made with.
    pub shards: usize,
    /// Largest value, in bytes: with FIFO at most an eighth of a shard.
    pub item_max: usize,
    /// How table files are put in order. A folder keeps what it was made with.
    pub compaction: Compaction,
    /// What keeps reads away from files that do not have the key.
    pub filter: Filter,
    /// When a write is written.
    pub log: Log,
    /// How long a write may wait in memory, without a log, or before the log is synced, with one.
    pub flush_interval: Duration,
    /// Bytes of a shard's buffer in memory before it becomes a file; there are up to three. `None`: by the shard's size.
    pub write_buffer: Option<u64>,
    /// Bytes of memory for blocks of all shards; 0: none, the page cache alone.
    pub block_cache: u64,
    /// Whether requests read round the page cache.
    pub direct_reads: bool,
    /// Whether values are compressed.
    pub compression: Compression,
    /// With universal and level compaction: a file older than this is written anew without what has died.
    pub rewrite_after: Duration,
    /// Threads that flush and compact, for all shards.
    pub background_threads: usize,
    /// Threads that read for requests.
    pub read_threads: usize,
    /// How versions are made and kept.
    pub versioning: Versioning,
}

/// How table files are put in order, and what becomes of more than fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Files stay as they were written, but for small ones, which are joined; the oldest goes when there are too many bytes.
    Fifo,
    /// Files of like size are merged: fewer bytes written than by level, more read and more room taken meanwhile. When the
    /// bytes are used up, writes are refused.
    Universal,
    /// Files are merged into levels, each ten times the one above. When the bytes are used up, writes are refused.
    Level,
}

/// What keeps reads away from files that do not have the key: about 10 bits of memory a key each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filter {
    /// Nothing: every file is asked.
    Off,
    /// A Bloom filter of so many bits a key.
    Bloom(f64),
    /// A ribbon filter as exact as a Bloom filter of so many bits a key: a third less memory, several times the work to make.
    Ribbon(f64),
}

/// When a write is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// When its buffer is flushed: a killed process loses what came since the last flush interval. Every byte is written once
    /// before compaction.
    Off,
    /// To a log, before it is acknowledged: a killed process loses nothing, a machine that goes down at most the flush
    /// interval. Every byte is written twice before compaction.
    On,
    /// To a log that is synced before it is acknowledged: nothing is lost. Writes that come together share a sync.
    EveryWrite,
}

/// Whether values are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No.
    Off,
    /// By LZ4, block by block.
    Lz4,
}

impl RocksConfig {
    /// Defaults for a folder and its bytes.
    pub fn new(path: impl Into<PathBuf>, bytes: u64) -> Self {
        Self {
            path: path.into(),
            bytes,
            shards: 4,
            item_max: 1 << 20,
            compaction: Compaction::Fifo,
            filter: Filter::Bloom(10.0),
            log: Log::Off,
            flush_interval: Duration::from_secs(1),
            write_buffer: None,
            block_cache: 0,
            direct_reads: false,
            compression: Compression::Off,
            rewrite_after: Duration::from_secs(24 * 60 * 60),
            background_threads: 4,
            read_threads: 8,
            versioning: Versioning::default(),
        }
    }

    /// Bytes of a shard's table files.
    pub(crate) fn shard_bytes(&self) -> u64 {
        self.bytes / self.shards.max(1) as u64
    }

    /// Bytes of a shard's write buffer.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.write_buffer.unwrap_or((self.shard_bytes() / BUFFER_PART).clamp(BUFFER_MIN, BUFFER_MAX))
    }

    /// Bytes of a shard's files at which FIFO lets the oldest go and the others take no more: a flush may add a buffer before
    /// FIFO does, and a file has a filter and an index beside its records.
    pub(crate) fn files_bytes(&self) -> u64 {
        self.shard_bytes() - self.buffer_bytes()
    }

    pub(crate) fn check(&self) -> Result<(), EmbeddedError> {
        let refuse = |reason: String| Err(EmbeddedError::Config(reason));
        if !(1..=SHARDS_MAX).contains(&self.shards) {
            return refuse(format!("rocks has from 1 to {SHARDS_MAX} shards, not {}", self.shards));
        }
        if self.shard_bytes() < SHARD_BYTES_MIN {
            let least = SHARD_BYTES_MIN * self.shards as u64;
            return refuse(format!("rocks needs at least {least} bytes for {} shards: give it more", self.shards));
        }
        let buffer = self.buffer_bytes();
        if buffer < BUFFER_MIN || buffer > self.shard_bytes() / 4 {
            return refuse(format!(
                "a write buffer has from {BUFFER_MIN} bytes to a quarter of its shard, {}: {buffer} is not",
                self.shard_bytes() / 4
            ));
        }
        let item_most = self.shard_bytes() / ITEM_PART;
        if self.compaction == Compaction::Fifo && self.item_max as u64 > item_most {
            let least = self.item_max as u64 * ITEM_PART * self.shards as u64;
            return refuse(format!(
                "the largest item is at most an eighth of a shard of rocks with fifo, {item_most} bytes, not {}: give it {least} \
                 bytes, or fewer shards",
                self.item_max
            ));
        }
        if let Filter::Bloom(bits) | Filter::Ribbon(bits) = self.filter
            && !(1.0..=100.0).contains(&bits)
        {
            return refuse(format!("a filter has from 1 to 100 bits a key, not {bits}"));
        }
        if self.flush_interval.is_zero() {
            return refuse("the flush interval of rocks cannot be 0: `every-write` makes each write durable".into());
        }
        Ok(())
    }
}
