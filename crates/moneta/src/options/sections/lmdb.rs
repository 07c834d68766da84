//! The LMDB tier.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::{Milliseconds, Number};
use moneta_options::kinds::units::{Bytes, Time};
use moneta_options::kinds::words::Choice;
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::values::Values;

use crate::options::kinds::device::DevicePlace;

section! {
    "LMDB tier";

    /// Keep all items in LMDB as well, in a directory, and how large its file may become.
    LMDB: DevicePlace = Opt::new("lmdb", DevicePlace, || None)
        .when(
            "When most requests are reads and the file fits into the page cache (engines.md). In builds with the feature \
             `lmdb`.",
        );

    /// When a write is acknowledged: once it is committed (interval), or once the disk has it (every-write).
    LMDB_DURABILITY: Choice<Durability> = Opt::new(
        "lmdb_durability",
        Choice(&[("interval", Durability::Interval), ("every-write", Durability::EveryWrite)]),
        || Durability::Interval,
    )
    .when("every-write where the data must outlive the machine going down.");

    /// How often what is committed is synced to the disk, and what has expired is removed.
    LMDB_FLUSH_INTERVAL: Milliseconds =
        Opt::new("lmdb_flush_interval", Milliseconds { min: 10, max: 60_000 }, || Duration::from_secs(1))
            .when("Shorter to even out the work of the disk.");

    /// Threads that read for requests.
    LMDB_THREADS: Number<usize> = Opt::new("lmdb_threads", Number { min: 1, max: 126 }, || 8)
        .when("Higher where the file is larger than the page cache.");
}

/// When a write is acknowledged. The engine's type of the same name is not in every build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once it is committed.
    Interval,
    /// Once the disk has it.
    EveryWrite,
}

/// Whether this build has the engine.
pub const IS_BUILT_IN: bool = cfg!(feature = "lmdb");

/// What the LMDB tier was asked for.
#[derive(Clone, Debug)]
pub struct LmdbSettings {
    /// Its directory.
    pub path: PathBuf,
    /// How large its file may become, bytes.
    pub bytes: u64,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// How often what is committed is synced.
    pub flush_interval: Duration,
    /// Threads that read.
    pub threads: usize,
}

impl LmdbSettings {
    /// The LMDB tier in force. Without a place it is refused elsewhere.
    pub fn new(options: &Values) -> Self {
        let (path, bytes) = options.get(&LMDB).map(|place| (place.path, place.bytes)).unwrap_or_default();
        Self {
            path,
            bytes,
            durability: options.get(&LMDB_DURABILITY),
            flush_interval: options.get(&LMDB_FLUSH_INTERVAL),
            threads: options.get(&LMDB_THREADS),
        }
    }
}

/// What the options alone tell; what lies in the directory is the engine's to judge.
pub fn contradictions(options: &Values) -> Vec<Refusal> {
    if IS_BUILT_IN {
        return Vec::new();
    }
    let range = "left out: this build has no LMDB (cargo build --release -p moneta --features lmdb makes one that has)";
    vec![options.refuse(&LMDB, range)]
}

impl fmt::Display for LmdbSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, bytes) = (self.path.display(), Bytes(self.bytes));
        write!(f, "{path}:{bytes}, {} read threads: has every item, ", self.threads)?;
        match self.durability {
            Durability::EveryWrite => f.write_str("on disk before a write is acknowledged"),
            Durability::Interval => {
                write!(f, "synced every {}; starts empty after the machine went down", Time(self.flush_interval))
            }
        }
    }
}
