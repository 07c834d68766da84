//! The engines on libraries, as far as this build has them.

use std::sync::Arc;

use moneta_store::{Any, Clock};

use crate::options::lmdb::LmdbSettings;
use crate::options::rocks::RocksSettings;

/// RocksDB.
///
/// # Errors
/// If the folder is not fit, or the build has no RocksDB; options that ask for it there are refused before.
#[cfg(feature = "rocks")]
pub fn rocks(tier: &RocksSettings, item_max: usize, clock: &Arc<Clock>) -> anyhow::Result<Any> {
    use anyhow::Context;
    use moneta_rocks::{Compaction, Compression, Filter, Log, Rocks, RocksConfig};
    /// Bits of a filter for each key: one in a hundred files is asked in vain.
    const FILTER_BITS: f64 = 10.0;
    let config = RocksConfig {
        shards: tier.shards,
        item_max,
        compaction: match tier.compaction {
            "universal" => Compaction::Universal,
            "level" => Compaction::Level,
            _ => Compaction::Fifo,
        },
        filter: match tier.filter {
            "ribbon" => Filter::Ribbon(FILTER_BITS),
            "none" => Filter::Off,
            _ => Filter::Bloom(FILTER_BITS),
        },
        log: match tier.log {
            "on" => Log::On,
            "every-write" => Log::EveryWrite,
            _ => Log::Off,
        },
        flush_interval: tier.flush_interval,
        block_cache: tier.block_cache,
        direct_reads: tier.direct,
        compression: if tier.compression == "lz4" { Compression::Lz4 } else { Compression::Off },
        read_threads: tier.threads,
        ..RocksConfig::new(&tier.path, tier.bytes)
    };
    Ok(Any::new(Rocks::open(&config, Arc::clone(clock)).context("the RocksDB tier cannot start")?))
}

/// RocksDB, which this build does not have.
#[cfg(not(feature = "rocks"))]
pub fn rocks(_: &RocksSettings, _: usize, _: &Arc<Clock>) -> anyhow::Result<Any> {
    anyhow::bail!("this build has no RocksDB")
}

/// LMDB.
///
/// # Errors
/// If the folder is not fit, or the build has no LMDB; options that ask for it there are refused before.
#[cfg(feature = "lmdb")]
pub fn lmdb(tier: &LmdbSettings, item_max: usize, clock: &Arc<Clock>) -> anyhow::Result<Any> {
    use anyhow::Context;
    use moneta_lmdb::{Durability, Lmdb, LmdbConfig};
    let config = LmdbConfig {
        item_max,
        durability: if tier.every_write { Durability::EveryWrite } else { Durability::Interval },
        flush_interval: tier.flush_interval,
        read_threads: tier.threads,
        ..LmdbConfig::new(&tier.path, tier.bytes)
    };
    Ok(Any::new(Lmdb::open(&config, Arc::clone(clock)).context("the LMDB tier cannot start")?))
}

/// LMDB, which this build does not have.
#[cfg(not(feature = "lmdb"))]
pub fn lmdb(_: &LmdbSettings, _: usize, _: &Arc<Clock>) -> anyhow::Result<Any> {
    anyhow::bail!("this build has no LMDB")
}
