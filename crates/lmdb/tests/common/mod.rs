//! Engines in folders that go with them.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Arc;
use std::time::Duration;

use moneta_lmdb::{Lmdb, LmdbConfig};
use moneta_store::{Calls, Clock};
use moneta_testkit::suite::{Restarting, SuiteConfig};
use tempfile::TempDir;

/// More than a sequence ever writes.
pub const AMPLE: u64 = 1 << 30;
/// Little: a sequence in lossy mode writes several times as much.
pub const SHORT: u64 = 16 << 20;

/// A configuration for tests.
pub fn config(folder: &TempDir, bytes: u64) -> LmdbConfig {
    LmdbConfig { flush_interval: Duration::from_millis(50), read_threads: 2, ..LmdbConfig::new(folder.path(), bytes) }
}

/// A folder with an engine in it. Every answer outlives a kill.
pub struct Folder {
    pub config: LmdbConfig,
    pub clock: Arc<Clock>,
    _folder: TempDir,
}

impl Folder {
    pub fn new(suite: SuiteConfig, clock: Arc<Clock>, bytes: u64, change: impl FnOnce(&mut LmdbConfig)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = LmdbConfig { item_max: suite.value_max, ..config(&folder, bytes) };
        change(&mut config);
        Self { config, clock, _folder: folder }
    }

    pub fn open(&self) -> Lmdb {
        Lmdb::open(&self.config, Arc::clone(&self.clock)).expect("the folder opens")
    }
}

impl Restarting for Folder {
    type Store = Lmdb;

    fn start(&mut self) -> Lmdb {
        self.open()
    }

    fn stop(&mut self, store: Lmdb) {
        store.close_all();
    }

    fn kill(&mut self, store: Lmdb) {
        store.crash();
    }
}
