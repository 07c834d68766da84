//! The options of the LMDB tier, checked against each other.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::options::report::Refusal;
use crate::options::resolve::Resolved;
use crate::options::settings::{duration, narrow, place, word};
use crate::options::table::Id;
use crate::options::value::Value;

/// Whether this build has the engine.
pub const IS_BUILT_IN: bool = cfg!(feature = "lmdb");

/// What the LMDB tier was asked for.
#[derive(Clone, Debug)]
pub struct LmdbSettings {
    /// Its directory.
    pub path: PathBuf,
    /// How large its file may become, bytes.
    pub bytes: u64,
    /// Whether a write is on the disk before it is acknowledged.
    pub every_write: bool,
    /// How often what is committed is synced.
    pub flush_interval: Duration,
    /// Threads that read.
    pub threads: usize,
}

impl LmdbSettings {
    /// The LMDB tier in force. Without a place it is refused elsewhere.
    pub fn new(resolved: &Resolved) -> Self {
        let (path, bytes) = place(resolved, Id::Lmdb).unwrap_or_default();
        Self {
            path,
            bytes,
            every_write: word(resolved, Id::LmdbDurability) == "every-write",
            flush_interval: duration(resolved, Id::LmdbFlushInterval),
            threads: narrow(resolved, Id::LmdbThreads),
        }
    }
}

/// What the options alone tell; what lies in the directory is the engine's to judge.
pub fn contradictions(resolved: &Resolved) -> Vec<Refusal> {
    if IS_BUILT_IN {
        return Vec::new();
    }
    let range = "left out: this build has no LMDB (cargo build --release -p moneta --features lmdb makes one that has)";
    vec![Refusal::entry(resolved.entry(Id::Lmdb), range)]
}

impl fmt::Display for LmdbSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, bytes) = (self.path.display(), Value::Size(self.bytes));
        write!(f, "{path}:{bytes}, {} read threads: has every item, ", self.threads)?;
        match self.every_write {
            true => f.write_str("on disk before a write is acknowledged"),
            false => write!(
                f,
                "synced every {}; starts empty after the machine went down",
                Value::Duration(self.flush_interval)
            ),
        }
    }
}
