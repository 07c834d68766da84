//! LMDB as a library that keeps bytes under keys: one shard, as it knows one writer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heed::{Env, EnvFlags, EnvOpenOptions};
use moneta_embedded::{Database, EmbeddedError, EngineShared, Failure, Identity, Settings};
use moneta_store::metric::Sample;
use moneta_store::{Health, StoreStats};
use parking_lot::RwLock;

use crate::batch::LmdbBatch;
use crate::config::{Durability, LmdbConfig};
use crate::environment::{EnvironmentCounters, LmdbDatabase, failure};
use crate::metrics;
use crate::tables::Tables;

/// Version of what the engine writes: the records', and the trees. In version 1 keys were hashed by another
/// function, and a folder of it keeps that.
const FORMAT: u32 = 2;
/// The file's size is a multiple of this, as it must be of any system's page.
const SIZE_STEP: u64 = 64 << 10;
/// Longest time for which room waits for those who read: a read from a device that works takes milliseconds.
const READERS_WAIT: Duration = Duration::from_secs(5);
/// The same after such a wait has timed out, until one succeeds: else every write would wait as long as one read hangs.
const READERS_WAIT_AGAIN: Duration = Duration::from_millis(10);
/// Reader slots besides the pool's: for maintenance and for statistics.
const READERS_MORE: u32 = 256;
/// Says that the file was written to without syncs, and so cannot be trusted once the machine has gone down.
const UNSYNCED: &str = "moneta.unsynced";

impl Database for LmdbDatabase {
    type Config = LmdbConfig;
    type Batch<'a> = LmdbBatch<'a>;

    fn settings(config: &LmdbConfig) -> Result<Settings, EmbeddedError> {
        config.check()?;
        Ok(Settings {
            folder: config.path.clone(),
            identity: Identity { engine: "lmdb", format: FORMAT, shards: 1 },
            item_max: config.item_max,
            interval: config.flush_interval,
            readers: config.read_threads,
            versioning: config.versioning,
        })
    }

    fn open(config: &LmdbConfig, shared: &Arc<EngineShared>) -> Result<Self, EmbeddedError> {
        let folder = &config.path;
        prepare(config, shared).map_err(|source| EmbeddedError::Io {
            path: folder.clone(),
            what: "prepare its files",
            source,
        })??;
        let refuse = |error| EmbeddedError::Folder {
            path: folder.clone(),
            reason: format!(
                "LMDB cannot open it ({error}): restore it, or remove the whole folder to start without items"
            ),
        };
        let bytes = config.bytes / SIZE_STEP * SIZE_STEP;
        let env = open_env(config, bytes).map_err(refuse)?;
        let (tables, page_bytes) = Tables::open(&env).map_err(refuse)?;
        let (shared, durability) = (Arc::clone(shared), config.durability);
        let (counters, reading) = (EnvironmentCounters::default(), RwLock::default());
        let readers_hang = AtomicBool::new(false);
        Ok(Self { env, tables, shared, counters, reading, readers_hang, bytes, page_bytes, durability })
    }

    fn begin(&self, _shard: usize) -> Result<LmdbBatch<'_>, Failure> {
        LmdbBatch::begin(self)
    }

    fn read(&self, _shard: usize, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let snapshot = self.snapshot().map_err(|error| failure("read", &error))?;
        let found = self.tables.items.get(&snapshot.txn, key).map_err(|error| failure("read", &error))?;
        if let Some(record) = found {
            look(record);
        }
        Ok(found.is_some())
    }

    fn scan(
        &self,
        _shard: usize,
        after: Option<&[u8]>,
        look: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Failure> {
        use std::ops::Bound::{Excluded, Unbounded};
        let walk = |error| failure("walk", &error);
        let snapshot = self.snapshot().map_err(walk)?;
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        for found in self.tables.items.range(&snapshot.txn, &range).map_err(walk)? {
            let (key, record) = found.map_err(walk)?;
            if !look(key, record) {
                break;
            }
        }
        Ok(())
    }

    /// Removes some of the oldest items when no reader is left: LMDB reuses no page that a reader may see.
    fn make_room(&self, _shard: usize) -> Result<bool, Failure> {
        self.counters.map_full.fetch_add(1, Ordering::Relaxed);
        // Those who begin to read after this see only what there is now.
        let wait = if self.readers_hang.load(Ordering::Relaxed) { READERS_WAIT_AGAIN } else { READERS_WAIT };
        let readers_hang = self.reading.try_write_for(wait).is_none();
        self.readers_hang.store(readers_hang, Ordering::Relaxed);
        if readers_hang { Ok(false) } else { self.evict_some() }
    }

    /// Syncs whatever becomes of the sweep.
    fn maintain(&self) -> Result<(), Failure> {
        let swept = self.sweep();
        self.sync()?;
        swept
    }

    fn sync(&self) -> Result<(), Failure> {
        if self.durability == Durability::Interval {
            self.env.force_sync().map_err(|error| failure("sync", &error))?;
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn stats(&self, stats: &mut StoreStats) {
        let count = || self.tables.items.len(&self.snapshot()?.txn);
        stats.items = count().unwrap_or(0);
        stats.evictions = self.counters.evicted.load(Ordering::Relaxed);
        stats.reclaimed = self.counters.expired.load(Ordering::Relaxed);
    }

    fn metrics(&self) -> Vec<Sample> {
        metrics::of(self)
    }

    fn health(&self, _health: &mut Health) {}
}

/// Notes whether the file is written without syncs; removes one that was when the machine went down.
fn prepare(config: &LmdbConfig, shared: &EngineShared) -> std::io::Result<Result<(), EmbeddedError>> {
    let (data, lock) = (config.path.join("data.mdb"), config.path.join("lock.mdb"));
    let mark = config.path.join(UNSYNCED);
    if shared.manifest().was_interrupted() && mark.try_exists()? {
        tracing::warn!("the machine went down while LMDB's file was not synced: the engine starts empty");
        remove(&data)?;
        remove(&lock)?;
    }
    if let Ok(found) = std::fs::metadata(&data)
        && found.len() > config.bytes
    {
        let reason = format!("its file has {} bytes already: give it as many, or an empty folder", found.len());
        return Ok(Err(EmbeddedError::Folder { path: config.path.clone(), reason }));
    }
    match config.durability {
        Durability::Interval => std::fs::File::create(&mark)?.sync_all()?,
        Durability::EveryWrite if mark.try_exists()? => {
            // A killed process may have left pages that are not on the device yet.
            sync_if_there(&data)?;
            remove(&mark)?;
        }
        Durability::EveryWrite => (),
    }
    std::fs::File::open(&config.path)?.sync_all()?;
    Ok(Ok(()))
}

fn remove(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync_if_there(file: &Path) -> std::io::Result<()> {
    match std::fs::File::open(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        opened => opened?.sync_all(),
    }
}

fn open_env(config: &LmdbConfig, bytes: u64) -> heed::Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(usize::try_from(bytes).unwrap_or(usize::MAX)).max_dbs(Tables::COUNT);
    options.max_readers(u32::try_from(config.read_threads).unwrap_or(u32::MAX).saturating_add(READERS_MORE));
    // Items are read at random: readahead would load unrelated pages.
    let mut flags = EnvFlags::NO_READ_AHEAD;
    if config.durability == Durability::Interval {
        flags |= EnvFlags::NO_SYNC;
    }
    // SAFETY: neither flag makes a write reach memory that is mapped. NO_SYNC leaves the order in which pages reach the device
    // to the system, which matters only when the machine goes down; the file is removed then (`prepare`).
    unsafe { options.flags(flags) };
    // SAFETY: the file must not change under the map but through LMDB. The folder is locked for this process, which opens it
    // here alone, and is on a local file system as any tier's; a process that overwrites it breaks any database.
    unsafe { options.open(&config.path) }
}
