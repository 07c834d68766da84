//! What the engine is told at its start.

use std::path::PathBuf;
use std::time::Duration;

use moneta_embedded::EmbeddedError;
use moneta_store::versions::Versioning;

/// Fewest bytes: below, there is hardly room to change anything.
const BYTES_MIN: u64 = 8 << 20;

/// Configuration of the engine on LMDB.
#[derive(Clone, Debug)]
pub struct LmdbConfig {
    /// The folder, made if it is not there.
    pub path: PathBuf,
    /// Bytes of the file: it never gets larger. A folder can be given more later, but not less than its file has.
    pub bytes: u64,
    /// Largest value, in bytes.
    pub item_max: usize,
    /// When a write is synced.
    pub durability: Durability,
    /// Time between two syncs, and between two turns of the sweeper that removes what has expired.
    pub flush_interval: Duration,
    /// Threads that read for requests: a page that is not in memory blocks one of them.
    pub read_threads: usize,
    /// How versions are made and kept.
    pub versioning: Versioning,
}

/// When a write is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Each interval. A killed process loses nothing that was answered. If the machine goes down the file may be damaged, and
    /// the engine starts empty.
    Interval,
    /// Before it is acknowledged; writes that come together share a sync. Nothing is lost when the machine goes down either.
    EveryWrite,
}

impl LmdbConfig {
    /// Defaults for a folder and its bytes.
    pub fn new(path: impl Into<PathBuf>, bytes: u64) -> Self {
        Self {
            path: path.into(),
            bytes,
            item_max: 1 << 20,
            durability: Durability::Interval,
            flush_interval: Duration::from_secs(1),
            read_threads: 8,
            versioning: Versioning::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), EmbeddedError> {
        let refuse = |reason: String| Err(EmbeddedError::Config(reason));
        if self.bytes < BYTES_MIN {
            return refuse(format!("lmdb needs at least {BYTES_MIN} bytes, not {}", self.bytes));
        }
        if self.item_max as u64 > self.bytes / 16 {
            return refuse(format!(
                "the largest item is at most a sixteenth of the bytes of lmdb, {}",
                self.bytes / 16
            ));
        }
        if self.flush_interval.is_zero() {
            return refuse("the flush interval of lmdb cannot be 0: `every-write` makes each write durable".into());
        }
        Ok(())
    }
}
