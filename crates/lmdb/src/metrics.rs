//! What LMDB says of its file, under names of the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use heed::DatabaseStat;
use moneta_store::metric::{Metric, Reading, Sample, Unit, Values, samples};

use crate::environment::LmdbDatabase;

const METRICS: &[Reading<LmdbDatabase>] = &[
    Metric::counter("lmdb_commits_total", Unit::Count, "Transactions of requests; those that come together share one.")
        .read(|lmdb| load(&lmdb.counters.commits)),
    Metric::counter("lmdb_syncs_total", Unit::Count, "Syncs of the file beside those of commits.")
        .read(|lmdb| load(&lmdb.counters.syncs)),
    Metric::counter("lmdb_evicted_total", Unit::Count, "Live items that went because room was needed, oldest first.")
        .read(|lmdb| load(&lmdb.counters.evicted)),
    Metric::counter("lmdb_evicted_bytes_total", Unit::Bytes, "Bytes of their values.")
        .read(|lmdb| load(&lmdb.counters.evicted_bytes)),
    Metric::counter("lmdb_expired_total", Unit::Count, "Items that went because their time was up.")
        .read(|lmdb| load(&lmdb.counters.expired)),
    Metric::counter("lmdb_flushed_total", Unit::Count, "Items that went because a flush covered them.")
        .read(|lmdb| load(&lmdb.counters.flushed)),
    Metric::counter("lmdb_map_full_total", Unit::Count, "Batches that found no room at first.")
        .read(|lmdb| load(&lmdb.counters.map_full)),
    Metric::gauge("lmdb_map_bytes", Unit::Bytes, "Most bytes of the file.")
        .read(|lmdb| (lmdb.env.info().map_size as u64).into()),
    Metric::gauge("lmdb_file_bytes", Unit::Bytes, "Bytes of the file.")
        .read(|lmdb| lmdb.env.real_disk_size().unwrap_or(0).into()),
    Metric::gauge("lmdb_last_transaction", Unit::Count, "Number of the last transaction.")
        .read(|lmdb| (lmdb.env.info().last_txn_id as u64).into()),
    Metric::gauge("lmdb_readers", Unit::Count, "Slots of readers that are in use.")
        .read(|lmdb| u64::from(lmdb.env.info().number_of_readers).into()),
    Metric::gauge("lmdb_tree_bytes", Unit::Bytes, "Bytes of a tree.")
        .labels(&["tree"])
        .read(|lmdb| by_tree(lmdb, |stat| pages(stat) * u64::from(stat.page_size))),
    Metric::gauge("lmdb_tree_entries", Unit::Count, "Entries of a tree.")
        .labels(&["tree"])
        .read(|lmdb| by_tree(lmdb, |stat| stat.entries as u64)),
    Metric::gauge("lmdb_tree_depth", Unit::Count, "Levels of a tree.")
        .labels(&["tree"])
        .read(|lmdb| by_tree(lmdb, |stat| u64::from(stat.depth))),
];

fn load(counter: &AtomicU64) -> Values {
    counter.load(Ordering::Relaxed).into()
}

/// A number of each tree; none if the file cannot be read.
fn by_tree(lmdb: &LmdbDatabase, number: fn(&DatabaseStat) -> u64) -> Values {
    let read = || -> heed::Result<Values> {
        let snapshot = lmdb.snapshot()?;
        let mut all = Values::NONE;
        for (name, tree) in lmdb.tables.named() {
            all = all.and([name], number(&tree.stat(&snapshot.txn)?));
        }
        Ok(all)
    };
    read().unwrap_or_default()
}

fn pages(stat: &DatabaseStat) -> u64 {
    (stat.branch_pages + stat.leaf_pages + stat.overflow_pages) as u64
}

/// The declarations of the engine's metrics.
pub fn metrics() -> impl Iterator<Item = Metric> {
    METRICS.iter().map(Reading::metric)
}

/// The library's own metrics, as they are now.
pub(crate) fn of(lmdb: &LmdbDatabase) -> Vec<Sample> {
    samples(METRICS, lmdb)
}
