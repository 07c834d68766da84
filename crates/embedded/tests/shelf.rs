//! The engine on the least library there can be: a sorted map for each shard, kept by the test over restarts. What goes wrong
//! here is the engine's own fault, not a library's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moneta_embedded::testing::{get, set, until};
use moneta_embedded::{Batch, Database, Embedded, EmbeddedError, Failure, Header, Identity, Settings, Shared};
use moneta_store::suite::{self, Options, Restarting, SuiteConfig};
use moneta_store::{Clock, Figure, Health, Key, Store, StoreStats};
use tempfile::TempDir;

const SHARDS: usize = 3;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the library keeps.
type Shelves = Arc<[Mutex<Records>; SHARDS]>;

#[derive(Clone)]
struct ShelfConfig {
    folder: PathBuf,
    shelves: Shelves,
    /// Most items of a shard; the first by key go when there are more.
    items_max: usize,
    item_max: usize,
    /// While set, nothing can be written.
    broken: Arc<AtomicBool>,
}

struct Shelf {
    broken: Arc<AtomicBool>,
    shelves: Shelves,
    items_max: usize,
}

/// Changes that are not yet made.
struct Changes<'a> {
    shelf: &'a Mutex<Records>,
    items_max: usize,
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
            interval: Duration::from_millis(20),
            readers: 2,
        })
    }

    fn open(config: &ShelfConfig, _shared: &Arc<Shared>) -> Result<Self, EmbeddedError> {
        let (shelves, broken) = (Arc::clone(&config.shelves), Arc::clone(&config.broken));
        Ok(Self { shelves, broken, items_max: config.items_max })
    }

    fn begin(&self, shard: usize) -> Result<Changes<'_>, Failure> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Failure::Broken("the shelf is broken".into()));
        }
        Ok(Changes { shelf: &self.shelves[shard], items_max: self.items_max, changes: Vec::new() })
    }

    fn read(&self, shard: usize, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let shelf = self.shelves[shard].lock().expect("no panic under it");
        shelf.get(key).map(|record| look(record)).map_or(Ok(false), |()| Ok(true))
    }

    fn scan(
        &self,
        shard: usize,
        after: Option<&[u8]>,
        look: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Failure> {
        let shelf = self.shelves[shard].lock().expect("no panic under it");
        let behind = |key: &&Vec<u8>| after.is_none_or(|after| key.as_slice() > after);
        let _ = shelf.iter().filter(|(key, _)| behind(key)).all(|(key, record)| look(key, record));
        Ok(())
    }

    fn make_room(&self, shard: usize) -> Result<bool, Failure> {
        let mut shelf = self.shelves[shard].lock().expect("no panic under it");
        for _ in 0..self.items_max / 4 {
            shelf.pop_first();
        }
        Ok(true)
    }

    fn tend(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn sync(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn stats(&self, stats: &mut StoreStats) {
        stats.items = self.shelves.iter().map(|shelf| shelf.lock().expect("no panic under it").len() as u64).sum();
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn health(&self, _health: &mut Health) {}
}

impl Batch for Changes<'_> {
    fn read(&mut self, key: &Key<'_>, into: &mut Vec<u8>) -> Result<bool, Failure> {
        let shelf = self.shelf.lock().expect("no panic under it");
        let changed = self.changes.iter().rev().find(|(changed, _)| changed == key.bytes);
        let record = changed.map_or_else(|| shelf.get(key.bytes), |(_, record)| record.as_ref());
        into.clear();
        into.extend_from_slice(record.map_or(&[], |record| record));
        Ok(record.is_some())
    }

    fn put(&mut self, key: &Key<'_>, _header: &Header, record: &[u8]) -> Result<(), Failure> {
        let items = self.shelf.lock().expect("no panic under it").len() + self.changes.len();
        if items >= self.items_max {
            return Err(Failure::Full("the shelf is full".into()));
        }
        self.changes.push((key.bytes.into(), Some(record.into())));
        Ok(())
    }

    fn delete(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        self.changes.push((key.bytes.into(), None));
        Ok(())
    }

    fn commit(self) -> Result<(), Failure> {
        let mut shelf = self.shelf.lock().expect("no panic under it");
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
struct Rig {
    config: ShelfConfig,
    clock: Arc<Clock>,
    _folder: TempDir,
}

impl Rig {
    fn new(suite: SuiteConfig, clock: Arc<Clock>, items_max: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let shelves = Shelves::default();
        let (path, broken) = (folder.path().into(), Arc::default());
        let config = ShelfConfig { folder: path, shelves, items_max, item_max: suite.value_max, broken };
        Self { config, clock, _folder: folder }
    }
}

impl Restarting for Rig {
    type Store = Embedded<Shelf>;

    fn start(&mut self) -> Self::Store {
        Embedded::open(&self.config, Arc::clone(&self.clock)).expect("the folder opens")
    }

    fn stop(&mut self, store: Self::Store) {
        store.close();
    }

    fn kill(&mut self, store: Self::Store) {
        store.crash();
    }
}

fn options(options: Options) -> Options {
    options.last_access_slack(u32::MAX).fetched_slack()
}

#[test]
fn comes_back_as_it_was() {
    let ample = |suite: SuiteConfig, clock| Rig::new(suite, clock, usize::MAX);
    suite::run_restarting(ample, options(Options::exact()).rounds(8).operations(1500));
}

#[test]
fn makes_room_and_does_not_err() {
    let short = |suite: SuiteConfig, clock| Rig::new(suite, clock, 100);
    suite::run_restarting(short, options(Options::lossy()).rounds(4).operations(3000));
}

#[test]
fn threads_neither_lose_nor_tear() {
    let folder = tempfile::tempdir().expect("a folder");
    let make = |suite: SuiteConfig, clock| {
        let (folder, shelves) = (folder.path().into(), Shelves::default());
        let (item_max, broken) = (suite.value_max, Arc::default());
        let config = ShelfConfig { folder, shelves, items_max: usize::MAX, item_max, broken };
        Embedded::<Shelf>::open(&config, clock).expect("the folder opens")
    };
    suite::concurrent(make, 4, 7);
}

#[test]
fn what_a_failed_write_was_to_replace_is_not_served() {
    let suite = SuiteConfig { memory: 0, value_max: 1000 };
    let mut rig = Rig::new(suite, Arc::new(Clock::manual(1_000_000_000)), usize::MAX);
    let (store, broken) = (rig.start(), Arc::clone(&rig.config.broken));
    for key in ["replaced", "other", "left alone", "written again"] {
        set(&store, key, b"old", 0).expect("a set");
    }
    broken.store(true, Ordering::Relaxed);
    for key in ["replaced", "written again"] {
        assert!(set(&store, key, b"new", 0).is_err());
        assert_eq!(get(&store, key), None, "the old value of {key}");
    }
    assert_eq!(get(&store, "left alone").as_deref(), Some(&b"old"[..]));
    assert!(!store.health().notes.is_empty());
    broken.store(false, Ordering::Relaxed);
    set(&store, "written again", b"newest", 0).expect("a set");
    // The keeper has what is left removed, and not what was written since.
    until("no key is in doubt", || !store.health().notes.iter().any(|note| note.contains("not served")));
    assert_eq!((get(&store, "replaced"), get(&store, "written again")), (None, Some(b"newest".to_vec())));
    assert_eq!(store.stats().items, 3);
}
