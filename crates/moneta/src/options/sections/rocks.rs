//! The options of the RocksDB tier, checked against each other.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::options::report::Refusal;
use crate::options::resolve::Resolved;
use crate::options::settings::{duration, narrow, number, place, switch, word};
use crate::options::table::Id;
use crate::options::value::Value;

/// Whether this build has the engine.
pub const IS_BUILT_IN: bool = cfg!(feature = "rocks");

/// What the RocksDB tier was asked for.
#[derive(Clone, Debug)]
pub struct RocksSettings {
    /// Its directory.
    pub path: PathBuf,
    /// Bytes of the disk it may take.
    pub bytes: u64,
    /// Databases over which keys are spread.
    pub shards: usize,
    /// How room is made: `fifo`, `universal` or `level`.
    pub compaction: &'static str,
    /// `off`, `on` or `every-write`.
    pub log: &'static str,
    /// How long a write may wait in RAM.
    pub flush_interval: Duration,
    /// `bloom`, `ribbon` or `none`.
    pub filter: &'static str,
    /// `none` or `lz4`.
    pub compression: &'static str,
    /// Bytes of its cache of blocks; 0: none.
    pub block_cache: u64,
    /// Whether to go round the page cache.
    pub direct: bool,
    /// Threads that read and write.
    pub threads: usize,
}

impl RocksSettings {
    /// The RocksDB tier in force. Without a place it is refused elsewhere.
    pub fn new(resolved: &Resolved) -> Self {
        let (path, bytes) = place(resolved, Id::Rocks).unwrap_or_default();
        Self {
            path,
            bytes,
            shards: narrow(resolved, Id::RocksShards),
            compaction: word(resolved, Id::RocksCompaction),
            log: word(resolved, Id::RocksLog),
            flush_interval: duration(resolved, Id::RocksFlushInterval),
            filter: word(resolved, Id::RocksFilter),
            compression: word(resolved, Id::RocksCompression),
            block_cache: number(resolved, Id::RocksBlockCache),
            direct: switch(resolved, Id::RocksDirect),
            threads: narrow(resolved, Id::RocksThreads),
        }
    }
}

/// What the options alone tell; what lies in the directory is the engine's to judge.
pub fn contradictions(resolved: &Resolved) -> Vec<Refusal> {
    if IS_BUILT_IN {
        return Vec::new();
    }
    let range =
        "left out: this build has no RocksDB (cargo build --release -p moneta --features rocks makes one that has)";
    vec![Refusal::entry(resolved.entry(Id::Rocks), range)]
}

impl fmt::Display for RocksSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, bytes) = (self.path.display(), Value::Size(self.bytes));
        write!(
            f,
            "{path}:{bytes} in {} databases, {} compaction, filter {}, ",
            self.shards, self.compaction, self.filter
        )?;
        write!(f, "compression {}, block cache {}, ", self.compression, Value::Size(self.block_cache))?;
        write!(f, "{}{} read threads: ", if self.direct { "direct reads, " } else { "" }, self.threads)?;
        f.write_str("has every item, ")?;
        match self.log {
            "off" => write!(f, "within {} of a write", Value::Duration(self.flush_interval)),
            log => write!(f, "in a log ({log}) before a write is acknowledged"),
        }
    }
}
