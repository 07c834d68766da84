//! The least library there can be: a sorted map for each shard, kept by the test over restarts. What goes wrong on it is the
//! engine's own fault, not a library's.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use moneta_embedded::{Batch, Database, Embedded, EmbeddedError, EngineShared, Failure, Header, Identity, Settings};
use moneta_store::metric::Sample;
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, Health, Key, StoreStats};
use moneta_testkit::suite::{Restarting, SuiteConfig};
use parking_lot::{Mutex, MutexGuard};
use tempfile::TempDir;

const SHARDS: usize = 3;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the library keeps.
type Shelves = Arc<[Mutex<Records>; SHARDS]>;

/// What a test does to the library, and sees of it.
#[derive(Default)]
pub struct Strings {
    /// While set, nothing can be opened or written.
    pub broken: AtomicBool,
    /// While set, writes and maintenance panic.
    pub panics: AtomicBool,
    /// Holds up batches that have begun, while a test has it.
    pub begun: Gate,
    /// Holds up reads that know what they will show.
    pub read: Gate,
    /// Deletes in batches.
    pub deletes: AtomicU64,
    /// Times that maintenance called.
    pub tends: AtomicU64,
}

/// A place where others wait while a test holds it.
#[derive(Default)]
pub struct Gate {
    came: AtomicU64,
    door: Mutex<()>,
}

impl Gate {
    fn pass(&self) {
        self.came.fetch_add(1, Ordering::SeqCst);
        drop(self.hold());
    }

    /// Lets no request through until the guard goes.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.door.lock()
    }

    /// How many have come so far.
    pub fn came(&self) -> u64 {
        self.came.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
pub struct ShelfConfig {
    pub folder: PathBuf,
    pub shelves: Shelves,
    /// Most items of a shard; the first by key go when there are more.
    pub items_max: usize,
    pub item_max: usize,
    /// Time between two turns of maintenance.
    pub interval: Duration,
    pub strings: Arc<Strings>,
    pub versioning: Versioning,
}

pub struct Shelf {
    shelves: Shelves,
    items_max: usize,
    strings: Arc<Strings>,
}

/// Changes that are not yet made.
pub struct Changes<'a> {
    shelf: &'a Mutex<Records>,
    items_max: usize,
    strings: &'a Strings,
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Database for Shelf {
    type Config = ShelfConfig;
    type Batch<'a> = Changes<'a>;

    fn settings(config: &ShelfConfig) -> Result<Settings, EmbeddedError> {
        Ok(Settings {
            folder: config.folder.clone(),
            identity: Identity { engine: "shelf", format: 1, shards: SHARDS },
            item_max: config.item_max,
            interval: config.interval,
            readers: 2,
            versioning: config.versioning,
        })
    }

    /// Empties shelves that were open when the machine went down.
    fn open(config: &ShelfConfig, shared: &Arc<EngineShared>) -> Result<Self, EmbeddedError> {
        let (shelves, strings) = (Arc::clone(&config.shelves), Arc::clone(&config.strings));
        if strings.broken.load(Ordering::Relaxed) {
            return Err(EmbeddedError::Config("the shelf is broken".into()));
        }
        if shared.manifest().was_interrupted() {
            shelves.iter().for_each(|shelf| shelf.lock().clear());
        }
        Ok(Self { shelves, items_max: config.items_max, strings })
    }

    fn begin(&self, shard: usize) -> Result<Changes<'_>, Failure> {
        self.strings.begun.pass();
        if self.strings.broken.load(Ordering::Relaxed) {
            return Err(Failure::Broken("the shelf is broken".into()));
        }
        let (shelf, strings) = (&self.shelves[shard], &*self.strings);
        Ok(Changes { shelf, items_max: self.items_max, strings, changes: Vec::new() })
    }

    fn read(&self, shard: usize, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let found = self.shelves[shard].lock().get(key).cloned();
        self.strings.read.pass();
        Ok(found.map(|record| look(&record)).is_some())
    }

    fn scan(
        &self,
        shard: usize,
        after: Option<&[u8]>,
        look: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Failure> {
        let shelf = self.shelves[shard].lock();
        let behind = |key: &&Vec<u8>| after.is_none_or(|after| key.as_slice() > after);
        let _ = shelf.iter().filter(|(key, _)| behind(key)).all(|(key, record)| look(key, record));
        Ok(())
    }

    fn make_room(&self, shard: usize) -> Result<bool, Failure> {
        let mut shelf = self.shelves[shard].lock();
        Ok((0..self.items_max / 4).filter_map(|_| shelf.pop_first()).count() > 0)
    }

    fn maintain(&self) -> Result<(), Failure> {
        self.strings.tends.fetch_add(1, Ordering::SeqCst);
        assert!(!self.strings.panics.load(Ordering::Relaxed), "the shelf panics");
        Ok(())
    }

    fn sync(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn stats(&self, stats: &mut StoreStats) {
        stats.items = self.shelves.iter().map(|shelf| shelf.lock().len() as u64).sum();
    }

    fn metrics(&self) -> Vec<Sample> {
        Vec::new()
    }

    fn health(&self, _health: &mut Health) {}
}

impl Batch for Changes<'_> {
    fn read(&mut self, key: &Key<'_>, into: &mut Vec<u8>) -> Result<bool, Failure> {
        let shelf = self.shelf.lock();
        let changed = self.changes.iter().rev().find(|(changed, _)| changed == key.bytes);
        let record = changed.map_or_else(|| shelf.get(key.bytes), |(_, record)| record.as_ref());
        into.clear();
        into.extend_from_slice(record.map_or(&[], |record| record));
        Ok(record.is_some())
    }

    fn put(&mut self, key: &Key<'_>, _header: &Header, record: &[u8]) -> Result<(), Failure> {
        assert!(!self.strings.panics.load(Ordering::Relaxed), "the shelf panics");
        let items = self.shelf.lock().len() + self.changes.len();
        if items >= self.items_max {
            return Err(Failure::Full("the shelf is full".into()));
        }
        self.changes.push((key.bytes.into(), Some(record.into())));
        Ok(())
    }

    fn delete(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        self.strings.deletes.fetch_add(1, Ordering::SeqCst);
        self.changes.push((key.bytes.into(), None));
        Ok(())
    }

    fn commit(self) -> Result<(), Failure> {
        let mut shelf = self.shelf.lock();
        for (key, record) in self.changes {
            match record {
                Some(record) => _ = shelf.insert(key, record),
                None => _ = shelf.remove(&key),
            }
        }
        Ok(())
    }
}

/// A folder and what the library keeps.
pub struct Rig {
    pub config: ShelfConfig,
    pub clock: Arc<Clock>,
    _folder: TempDir,
}

impl Rig {
    pub fn new(suite: SuiteConfig, clock: Arc<Clock>, items_max: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = ShelfConfig {
            folder: folder.path().into(),
            shelves: Shelves::default(),
            items_max,
            item_max: suite.value_max,
            interval: Duration::from_millis(20),
            strings: Arc::default(),
            versioning: Versioning::default(),
        };
        Self { config, clock, _folder: folder }
    }
}

impl Restarting for Rig {
    type Store = Embedded<Shelf>;

    fn start(&mut self) -> Self::Store {
        Embedded::open(&self.config, Arc::clone(&self.clock)).expect("the folder opens")
    }

    fn stop(&mut self, store: Self::Store) {
        store.close_all();
    }

    fn kill(&mut self, store: Self::Store) {
        store.crash();
    }
}
