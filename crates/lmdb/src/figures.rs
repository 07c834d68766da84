//! What LMDB says of its file, under names of the metrics.

use std::sync::atomic::Ordering;

use moneta_store::{Figure, FigureKind};

use crate::database::LmdbDatabase;

/// All of it.
pub(crate) fn figures(lmdb: &LmdbDatabase) -> Vec<Figure> {
    let figure = |name, help, kind, value: u64| Figure { name, help, kind, labels: Vec::new(), value: value as f64 };
    let counters = &lmdb.counters;
    let counted = [
        ("lmdb_commits_total", "Transactions of requests; those that come together share one.", &counters.commits),
        ("lmdb_syncs_total", "Syncs of the file beside those of commits.", &counters.syncs),
        ("lmdb_evicted_total", "Live items that went because room was needed, oldest first.", &counters.evicted),
        ("lmdb_evicted_bytes_total", "Bytes of their values.", &counters.evicted_bytes),
        ("lmdb_expired_total", "Items that went because their time was up.", &counters.expired),
        ("lmdb_flushed_total", "Items that went because a flush covered them.", &counters.flushed),
        ("lmdb_map_full_total", "Batches that found no room at first.", &counters.map_full),
    ];
    let info = lmdb.env.info();
    let size = lmdb.env.real_disk_size().unwrap_or(0);
    let states = [
        ("lmdb_map_bytes", "Most bytes of the file.", info.map_size as u64),
        ("lmdb_file_bytes", "Bytes of the file.", size),
        ("lmdb_last_transaction", "Number of the last transaction.", info.last_txn_id as u64),
        ("lmdb_readers", "Slots of readers that are in use.", u64::from(info.number_of_readers)),
    ];
    counted
        .into_iter()
        .map(|(name, help, counter)| figure(name, help, FigureKind::Counter, counter.load(Ordering::Relaxed)))
        .chain(states.into_iter().map(|(name, help, value)| figure(name, help, FigureKind::Gauge, value)))
        .chain(trees(lmdb).unwrap_or_default())
        .collect()
}

/// Size and depth of each tree.
fn trees(lmdb: &LmdbDatabase) -> heed::Result<Vec<Figure>> {
    let snapshot = lmdb.snapshot()?;
    let mut figures = Vec::new();
    for (name, tree) in lmdb.tables.named() {
        let stat = tree.stat(&snapshot.txn)?;
        let pages = (stat.branch_pages + stat.leaf_pages + stat.overflow_pages) as u64;
        let of_tree = |figure, help, value: u64| Figure {
            name: figure,
            help,
            kind: FigureKind::Gauge,
            labels: vec![("tree", name.to_owned())],
            value: value as f64,
        };
        figures.push(of_tree("lmdb_tree_bytes", "Bytes of a tree.", pages * u64::from(stat.page_size)));
        figures.push(of_tree("lmdb_tree_entries", "Entries of a tree.", stat.entries as u64));
        figures.push(of_tree("lmdb_tree_depth", "Levels of a tree.", u64::from(stat.depth)));
    }
    // A name's figures stand together.
    figures.sort_by_key(|figure| figure.name);
    Ok(figures)
}
