//! The RocksDB tier.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use moneta_options::declaration::Opt;
use moneta_options::kinds::Kind;
use moneta_options::kinds::numbers::{Milliseconds, Number, Size, Switch};
use moneta_options::kinds::units::{Bytes, TIB, Time};
use moneta_options::kinds::words::Choice;
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::values::Values;

use crate::options::kinds::device::DevicePlace;

section! {
    "RocksDB tier";

    /// Keep all items in RocksDB as well, in a directory, and how much of the disk they may take.
    ROCKS: DevicePlace = Opt::new("rocks", DevicePlace, || None)
        .when("To compare with RocksDB, or to move away from it (engines.md). In builds with the feature `rocks`.");

    /// Databases over which keys are spread; a directory keeps its number.
    ROCKS_SHARDS: Number<usize> = Opt::new("rocks_shards", Number { min: 1, max: 256 }, || 4)
        .when("Higher where many cores write.");

    /// How RocksDB makes room: fifo drops the oldest files, universal and level merge files and refuse writes when full.
    ROCKS_COMPACTION: Choice<Compaction> = Opt::new(
        "rocks_compaction",
        Choice(&[
            ("fifo", Compaction::Fifo),
            ("universal", Compaction::Universal),
            ("level", Compaction::Level),
        ]),
        || Compaction::Fifo,
    )
    .when("universal or level where reads have to stay cheap.");

    /// Whether there is a log that writes go to before they are acknowledged; every-write also syncs it.
    ROCKS_LOG: Choice<Log> = Opt::new(
        "rocks_log",
        Choice(&[("off", Log::Off), ("on", Log::On), ("every-write", Log::EveryWrite)]),
        || Log::Off,
    )
    .when(
        "on when a killed process may lose nothing, every-write when neither may the machine; everything is then \
         written twice.",
    );

    /// How long a write may wait in RAM before it is written to a file, or its log is synced.
    ROCKS_FLUSH_INTERVAL: Milliseconds =
        Opt::new("rocks_flush_interval", Milliseconds { min: 10, max: 600_000 }, || Duration::from_secs(1))
            .when("Shorter to lose less, by more and smaller files.");

    /// Filter that spares reads of files without the key.
    ROCKS_FILTER: Choice<Filter> = Opt::new(
        "rocks_filter",
        Choice(&[("bloom", Filter::Bloom), ("ribbon", Filter::Ribbon), ("none", Filter::Off)]),
        || Filter::Bloom,
    )
    .when("ribbon to save a third of the filters' memory for more CPU.");

    /// Compression of files.
    ROCKS_COMPRESSION: Choice<Compression> = Opt::new(
        "rocks_compression",
        Choice(&[("none", Compression::Off), ("lz4", Compression::Lz4)]),
        || Compression::Off,
    )
    .when("lz4 where values compress and the disk is smaller than the data.");

    /// RAM for RocksDB's own cache of blocks.
    ROCKS_BLOCK_CACHE: Size<u64> = Opt::new("rocks_block_cache", Size::in_bytes(0, 16 * TIB), || 0)
        .when("When L1 is none.");

    /// Read round the kernel's page cache.
    ROCKS_DIRECT: Switch = Opt::new("rocks_direct", Switch, || false)
        .when("When the machine's RAM is for --memory.");

    /// Threads that read for requests.
    ROCKS_THREADS: Number<usize> = Opt::new("rocks_threads", Number { min: 1, max: 256 }, || 8)
        .when("Higher on devices that want many reads at once.");
}

/// How RocksDB makes room. The engine's type of the same name is not in every build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Drops the oldest files.
    Fifo,
    /// Merges files of like size.
    Universal,
    /// Merges files into levels.
    Level,
}

/// When a write is in RocksDB's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// There is no log.
    Off,
    /// Before it is acknowledged.
    On,
    /// Synced before it is acknowledged.
    EveryWrite,
}

/// What spares reads of files without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Bloom filters.
    Bloom,
    /// Ribbon filters.
    Ribbon,
    /// Nothing.
    Off,
}

/// Compression of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// None.
    Off,
    /// LZ4.
    Lz4,
}

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
    /// How room is made.
    pub compaction: Compaction,
    /// When a write is in the log.
    pub log: Log,
    /// How long a write may wait in RAM.
    pub flush_interval: Duration,
    /// What spares reads of files without the key.
    pub filter: Filter,
    /// Compression of files.
    pub compression: Compression,
    /// Bytes of its cache of blocks; 0: none.
    pub block_cache: u64,
    /// Whether to go round the page cache.
    pub direct: bool,
    /// Threads that read and write.
    pub threads: usize,
}

impl RocksSettings {
    /// The RocksDB tier in force. Without a place it is refused elsewhere.
    pub fn new(options: &Values) -> Self {
        let (path, bytes) = options.get(&ROCKS).map(|place| (place.path, place.bytes)).unwrap_or_default();
        Self {
            path,
            bytes,
            shards: options.get(&ROCKS_SHARDS),
            compaction: options.get(&ROCKS_COMPACTION),
            log: options.get(&ROCKS_LOG),
            flush_interval: options.get(&ROCKS_FLUSH_INTERVAL),
            filter: options.get(&ROCKS_FILTER),
            compression: options.get(&ROCKS_COMPRESSION),
            block_cache: options.get(&ROCKS_BLOCK_CACHE),
            direct: options.get(&ROCKS_DIRECT),
            threads: options.get(&ROCKS_THREADS),
        }
    }
}

/// What the options alone tell; what lies in the directory is the engine's to judge.
pub fn contradictions(options: &Values) -> Vec<Refusal> {
    if IS_BUILT_IN {
        return Vec::new();
    }
    let range =
        "left out: this build has no RocksDB (cargo build --release -p moneta --features rocks makes one that has)";
    vec![options.refuse(&ROCKS, range)]
}

impl fmt::Display for RocksSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (compaction, filter) =
            (ROCKS_COMPACTION.kind.write(&self.compaction), ROCKS_FILTER.kind.write(&self.filter));
        let compression = ROCKS_COMPRESSION.kind.write(&self.compression);
        write!(f, "{}:{} in {} databases, ", self.path.display(), Bytes(self.bytes), self.shards)?;
        write!(f, "{compaction} compaction, filter {filter}, compression {compression}, ")?;
        write!(f, "block cache {}, {}", Bytes(self.block_cache), if self.direct { "direct reads, " } else { "" })?;
        write!(f, "{} read threads: has every item, ", self.threads)?;
        match self.log {
            Log::Off => write!(f, "within {} of a write", Time(self.flush_interval)),
            Log::On | Log::EveryWrite => {
                write!(f, "in a log ({}) before a write is acknowledged", ROCKS_LOG.kind.write(&self.log))
            }
        }
    }
}
