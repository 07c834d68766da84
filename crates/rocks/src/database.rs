//! RocksDB as a library that keeps bytes under keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use moneta_embedded::{Database, EmbeddedError, EngineShared, Failure, Identity, Settings};
use moneta_store::metric::Sample;
use moneta_store::{Health, StoreStats};
use rocksdb::{ReadOptions, properties};

use crate::batch::RocksBatch;
use crate::config::{Compaction, Log, RocksConfig};
use crate::metrics;
use crate::options::{options, write_options};
use crate::shard::{Bound, Shard, broken};
use crate::shards::RocksDatabase;

/// Version of what the engine writes: the records', and what lies in which folder. In version 1 parts were by another hash, and a
/// folder of it keeps that.
const FORMAT: u32 = 2;

impl Database for RocksDatabase {
    type Config = RocksConfig;
    type Batch<'a> = RocksBatch<'a>;

    fn settings(config: &RocksConfig) -> Result<Settings, EmbeddedError> {
        config.check()?;
        // Files in order of one kind of compaction cannot be opened under each other one.
        let engine = match config.compaction {
            Compaction::Fifo => "rocks-fifo",
            Compaction::Universal => "rocks-universal",
            Compaction::Level => "rocks-level",
        };
        Ok(Settings {
            folder: config.path.clone(),
            identity: Identity { engine, format: FORMAT, shards: config.shards },
            item_max: config.item_max,
            interval: config.flush_interval,
            readers: config.read_threads,
            versioning: config.versioning,
        })
    }

    fn open(config: &RocksConfig, shared: &Arc<EngineShared>) -> Result<Self, EmbeddedError> {
        let removed = Arc::default();
        let options = options(config, shared, &removed)?;
        let bound = (config.compaction != Compaction::Fifo)
            .then(|| Bound { bytes_max: config.files_bytes(), file_bytes: config.buffer_bytes() / 2 });
        let open = |number| {
            let path = config.path.join(format!("shard-{number:03}"));
            Shard::open(&options, &path, write_options(config.log), bound)
        };
        let shards = (0..config.shards).map(open).collect::<Result<_, _>>()?;
        Ok(Self { shards, options, removed, log: config.log })
    }

    fn begin(&self, shard: usize) -> Result<RocksBatch<'_>, Failure> {
        Ok(RocksBatch::new(&self.shards[shard]))
    }

    fn read(&self, shard: usize, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool, Failure> {
        let found = self.shards[shard].db.get_pinned(key).map_err(|error| broken("read", &error))?;
        if let Some(record) = &found {
            look(record);
        }
        Ok(found.is_some())
    }

    fn scan(
        &self,
        shard: usize,
        after: Option<&[u8]>,
        look: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let mut records = self.shards[shard].db.raw_iterator_opt(options);
        match after {
            Some(key) => records.seek(key),
            None => records.seek_to_first(),
        }
        while let Some((key, record)) = records.item() {
            if after != Some(key) && !look(key, record) {
                return Ok(());
            }
            records.next();
        }
        records.status().map_err(|error| broken("walk", &error))
    }

    /// Compaction may have made some since the last count.
    fn make_room(&self, shard: usize) -> Result<bool, Failure> {
        Ok(self.shards[shard].count_bytes())
    }

    fn maintain(&self) -> Result<(), Failure> {
        self.sync()?;
        for shard in &self.shards {
            shard.count_bytes();
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Failure> {
        if self.log != Log::Off {
            return self.shards.iter().try_for_each(Shard::sync_log);
        }
        // All begin before any is waited for.
        for wait in [false, true] {
            self.shards.iter().try_for_each(|shard| shard.flush(wait))?;
        }
        Ok(())
    }

    /// Items are RocksDB's own estimate: versions and deletes not yet compacted count, too.
    fn stats(&self, stats: &mut StoreStats) {
        stats.items = self.sum(properties::ESTIMATE_NUM_KEYS);
        stats.reclaimed = self.removed.expired.load(Ordering::Relaxed);
    }

    fn metrics(&self) -> Vec<Sample> {
        metrics::of(self)
    }

    fn health(&self, health: &mut Health) {
        let errors = self.sum(properties::BACKGROUND_ERRORS);
        if errors > 0 {
            health.notes.push(format!("RocksDB failed {errors} flushes or compactions; its LOG files tell why"));
        }
        if self.sum(properties::IS_WRITE_STOPPED) > 0 {
            health.notes.push("RocksDB takes no writes until compaction has caught up".into());
        }
        if self.shards.iter().any(Shard::refuses) {
            health.notes.push("rocks has used up its bytes and refused writes".into());
        }
    }
}
