//! An open environment of LMDB, with what the engine counts in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use heed::{Env, MdbError, RoTxn, WithTls};
use moneta_embedded::{EngineShared, Failure};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::config::Durability;
use crate::tables::Tables;

/// Part of the file that is kept free, for the pages that a batch copies and those that readers still hold,
const RESERVE_PART: u64 = 8;
/// but not less than so many bytes, unless that is
const RESERVE_MIN: u64 = 16 << 20;
/// more than this part.
const RESERVE_PART_MAX: u64 = 4;

/// What the engine counts.
#[derive(Debug, Default)]
pub(crate) struct EnvironmentCounters {
    pub(crate) commits: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) evicted_bytes: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) flushed: AtomicU64,
    pub(crate) map_full: AtomicU64,
}

/// An environment of LMDB.
pub struct LmdbDatabase {
    pub(crate) env: Env,
    pub(crate) tables: Tables,
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) counters: EnvironmentCounters,
    /// Held by all readers; a writer that needs room waits for them, since LMDB reuses no page that a reader may see.
    pub(crate) reading: RwLock<()>,
    /// Whether the last wait for readers timed out.
    pub(crate) readers_hang: AtomicBool,
    /// Most bytes of the file.
    pub(crate) bytes: u64,
    pub(crate) page_bytes: u64,
    pub(crate) durability: Durability,
}

/// What is there at one moment, for a reader.
pub(crate) struct Snapshot<'a> {
    // Ends before `_reading`.
    pub(crate) txn: RoTxn<'a, WithTls>,
    _reading: RwLockReadGuard<'a, ()>,
}

impl LmdbDatabase {
    /// What is there now. While it is held, no page that it shows is used again.
    pub(crate) fn snapshot(&self) -> heed::Result<Snapshot<'_>> {
        let reading = self.reading.read();
        Ok(Snapshot { txn: self.env.read_txn()?, _reading: reading })
    }

    /// Pages that are kept free.
    pub(crate) fn reserve_pages(&self) -> u64 {
        (self.bytes / RESERVE_PART).max(RESERVE_MIN).min(self.bytes / RESERVE_PART_MAX) / self.page_bytes
    }

    /// Pages that items and their entries may take.
    pub(crate) fn pages_max(&self) -> u64 {
        self.bytes / self.page_bytes - self.reserve_pages()
    }
}

/// A failure of LMDB's, in words.
pub(crate) fn failure(what: &str, error: &heed::Error) -> Failure {
    match error {
        heed::Error::Mdb(MdbError::MapFull | MdbError::TxnFull) => Failure::Full("lmdb has no room for it".into()),
        error => Failure::Broken(format!("LMDB cannot {what}: {error}")),
    }
}
