//! The engines on libraries, as far as this build has them.

use std::sync::Arc;

use moneta_store::versions::Versioning;
use moneta_store::{Clock, Store};

use crate::options::sections::lmdb::LmdbSettings;
use crate::options::sections::rocks::RocksSettings;

/// RocksDB.
///
/// # Errors
/// If the folder is not fit, or the build has no RocksDB; options that ask for it there are refused before.
#[cfg(feature = "rocks")]
pub fn rocks(
    tier: &RocksSettings,
    item_max: usize,
    versioning: Versioning,
    clock: &Arc<Clock>,
) -> anyhow::Result<Arc<dyn Store>> {
    use anyhow::Context;
    use moneta_rocks::{Compaction, Compression, Filter, Log, Rocks, RocksConfig};

    use crate::options::sections::rocks as wanted;
    /// Bits of a filter for each key: one in a hundred files is read without need.
    const FILTER_BITS: f64 = 10.0;
    let config = RocksConfig {
        shards: tier.shards,
        item_max,
        compaction: match tier.compaction {
            wanted::Compaction::Fifo => Compaction::Fifo,
            wanted::Compaction::Universal => Compaction::Universal,
            wanted::Compaction::Level => Compaction::Level,
        },
        filter: match tier.filter {
            wanted::Filter::Bloom => Filter::Bloom(FILTER_BITS),
            wanted::Filter::Ribbon => Filter::Ribbon(FILTER_BITS),
            wanted::Filter::Off => Filter::Off,
        },
        log: match tier.log {
            wanted::Log::Off => Log::Off,
            wanted::Log::On => Log::On,
            wanted::Log::EveryWrite => Log::EveryWrite,
        },
        flush_interval: tier.flush_interval,
        block_cache: tier.block_cache,
        direct_reads: tier.direct,
        compression: match tier.compression {
            wanted::Compression::Off => Compression::Off,
            wanted::Compression::Lz4 => Compression::Lz4,
        },
        read_threads: tier.threads,
        versioning,
        ..RocksConfig::new(&tier.path, tier.bytes)
    };
    Ok(Arc::new(Rocks::open(&config, Arc::clone(clock)).context("the RocksDB tier cannot start")?))
}

/// RocksDB, which this build does not have.
#[cfg(not(feature = "rocks"))]
pub fn rocks(_: &RocksSettings, _: usize, _: Versioning, _: &Arc<Clock>) -> anyhow::Result<Arc<dyn Store>> {
    anyhow::bail!("this build has no RocksDB")
}

/// LMDB.
///
/// # Errors
/// If the folder is not fit, or the build has no LMDB; options that ask for it there are refused before.
#[cfg(feature = "lmdb")]
pub fn lmdb(
    tier: &LmdbSettings,
    item_max: usize,
    versioning: Versioning,
    clock: &Arc<Clock>,
) -> anyhow::Result<Arc<dyn Store>> {
    use anyhow::Context;
    use moneta_lmdb::{Durability, Lmdb, LmdbConfig};

    use crate::options::sections::lmdb as wanted;

    let config = LmdbConfig {
        item_max,
        durability: match tier.durability {
            wanted::Durability::Interval => Durability::Interval,
            wanted::Durability::EveryWrite => Durability::EveryWrite,
        },
        flush_interval: tier.flush_interval,
        read_threads: tier.threads,
        versioning,
        ..LmdbConfig::new(&tier.path, tier.bytes)
    };
    Ok(Arc::new(Lmdb::open(&config, Arc::clone(clock)).context("the LMDB tier cannot start")?))
}

/// LMDB, which this build does not have.
#[cfg(not(feature = "lmdb"))]
pub fn lmdb(_: &LmdbSettings, _: usize, _: Versioning, _: &Arc<Clock>) -> anyhow::Result<Arc<dyn Store>> {
    anyhow::bail!("this build has no LMDB")
}
