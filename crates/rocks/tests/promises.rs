//! What the engine promises beside the suite: what it refuses, what compaction leaves out, how much room it takes.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::config;
use moneta_embedded::testing::{delete, end, get, set, until, wait};
use moneta_embedded::{Batch as _, Database as _, Failure, Header};
use moneta_rocks::{Compaction, Filter, Log, Rocks, RocksConfig};
use moneta_store::request::Exptime;
use moneta_store::{Calls, Clock, ItemMeta, Key, Store, Written};
use tempfile::TempDir;

const NOW: u32 = 1_700_000_000;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn clock() -> Arc<Clock> {
    Arc::new(Clock::manual(NOW))
}

fn open(config: &RocksConfig, clock: &Arc<Clock>) -> Rocks {
    Rocks::open(config, Arc::clone(clock)).expect("the folder opens")
}

fn refusal(config: &RocksConfig) -> String {
    Rocks::open(config, clock()).expect_err("it is refused").to_string()
}

fn metric(rocks: &Rocks, name: &str) -> f64 {
    let samples = rocks.metrics();
    let sample = samples.iter().find(|sample| sample.metric.name == name);
    sample.unwrap_or_else(|| panic!("no metric {name}")).value.number()
}

/// A value that compression makes nothing of.
fn noise(bytes: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(bytes).collect()
}

#[test]
fn folders_of_others_are_refused_and_left_alone() {
    let folder = folder();
    let config = RocksConfig { flush_interval: Duration::from_millis(50), ..config(&folder, 64 << 20) };
    let first = open(&config, &clock());
    assert!(refusal(&config).contains("another process has it open"));
    set(&first, "key", b"value", 0).expect("a set");
    drop(first);
    assert!(refusal(&RocksConfig { shards: 3, ..config.clone() }).contains("say 2"));
    assert!(refusal(&RocksConfig { compaction: Compaction::Level, ..config.clone() }).contains("rocks-fifo"));
    let manifest = folder.path().join("moneta.ledger");
    let written = std::fs::read_to_string(&manifest).expect("it is there");
    std::fs::write(&manifest, written.replace("\"format\":2", "\"format\":3")).expect("a write");
    assert!(refusal(&config).contains("newer build"));
    std::fs::write(&manifest, written).expect("a write");
    assert_eq!(get(&open(&config, &clock()), "key").as_deref(), Some(&b"value"[..]));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = folder();
    let config = config(&folder, 64 << 20);
    assert!(refusal(&RocksConfig { bytes: 1 << 20, ..config.clone() }).contains("give it more"));
    assert!(refusal(&RocksConfig { shards: 0, ..config.clone() }).contains("shards"));
    assert!(refusal(&RocksConfig { item_max: (4 << 20) + 1, ..config.clone() }).contains("eighth"));
    assert!(refusal(&RocksConfig { write_buffer: Some(64 << 20), ..config.clone() }).contains("write buffer"));
    assert!(refusal(&RocksConfig { filter: Filter::Bloom(0.0), ..config.clone() }).contains("bits"));
    assert!(refusal(&RocksConfig { flush_interval: Duration::ZERO, ..config.clone() }).contains("interval"));
    let is_empty = std::fs::read_dir(folder.path()).expect("a folder").next().is_none();
    assert!(is_empty, "a refused folder is left as it was");
    drop(open(&RocksConfig { item_max: 4 << 20, ..config }, &clock()));
    drop(open(&RocksConfig::new(folder.path().join("least"), 32 << 20), &clock()));
}

#[test]
fn a_database_that_is_damaged_is_named_and_left_alone() {
    let folder = folder();
    let config = config(&folder, 64 << 20);
    drop(open(&config, &clock()));
    let current = folder.path().join("shard-001/CURRENT");
    std::fs::write(&current, "MANIFEST-999999\n").expect("a write");
    let said = refusal(&config);
    assert!(said.contains("shard-001") && said.contains("RocksDB"), "{said}");
    assert_eq!(std::fs::read_to_string(current).expect("it is there"), "MANIFEST-999999\n");
}

#[test]
fn compaction_leaves_out_what_is_dead_and_brings_nothing_older_back() {
    for compaction in [Compaction::Level, Compaction::Universal] {
        let (folder, clock) = (folder(), clock());
        let rocks = open(&RocksConfig { compaction, ..config(&folder, 64 << 20) }, &clock);
        for key in 0..100 {
            let name = format!("key {key}");
            set(&rocks, &name, b"older", 0).expect("a set");
        }
        // The older versions lie below, in files of their own.
        wait(rocks.sync()).expect("a sync");
        rocks.database().compact();
        for key in 0..100 {
            set(&rocks, &format!("key {key}"), b"newer", if key < 50 { 10 } else { 0 }).expect("a set");
        }
        wait(rocks.sync()).expect("a sync");
        clock.advance(10);
        rocks.database().compact();
        assert_eq!(metric(&rocks, "rocks_compaction_expired_total"), 50.0);
        for key in 0..100 {
            let expected = (key >= 50).then_some(&b"newer"[..]);
            assert_eq!(get(&rocks, &format!("key {key}")).as_deref(), expected, "key {key} after compaction");
        }
        end(rocks.flush(Exptime(0))).expect("a flush");
        rocks.database().compact();
        assert_eq!(metric(&rocks, "rocks_compaction_flushed_total"), 50.0);
        assert_eq!(get(&rocks, "key 99"), None);
        assert_eq!(metric(&rocks, "rocks_table_bytes"), 0.0, "nothing is left of the dead");
    }
}

#[test]
fn fifo_keeps_to_its_bytes_and_lets_the_oldest_go() {
    const BYTES: u64 = 16 << 20;
    let (folder, clock) = (folder(), clock());
    let rocks = open(&config(&folder, BYTES), &clock);
    let count = 3 * BYTES / (16 << 10);
    for key in 0..count {
        set(&rocks, &format!("key {key}"), &noise(16 << 10), 0).expect("a set");
    }
    wait(rocks.sync()).expect("a sync");
    // Files go in the background. That they do is what is to be seen, not when.
    until("the files keep to their bytes", || rocks.database().file_bytes() <= BYTES);
    let there = |key: u64| get(&rocks, &format!("key {key}")).is_some();
    assert!((0..count / 3).all(|key| !there(key)), "the oldest third is gone");
    let kept = (0..count).filter(|key| there(*key)).count() as u64;
    assert!(kept * (16 << 10) > BYTES / 2, "only {kept} items are left of {count}");
    assert!(there(count - 1), "the newest is there");
    assert!(metric(&rocks, "rocks_fifo_deletions_total") > 0.0);
}

/// What RocksDB says it was told, its defaults included.
fn told(folder: &TempDir, option: &str) -> String {
    let files = std::fs::read_dir(folder.path().join("shard-000")).expect("a shard").map(|file| file.expect("a file"));
    let options = files.filter(|file| file.file_name().to_string_lossy().starts_with("OPTIONS"));
    let newest = options.map(|file| file.path()).max().expect("RocksDB writes its options down");
    let text = std::fs::read_to_string(newest).expect("it is there");
    let told = text.lines().find_map(|line| line.trim().strip_prefix(option)?.strip_prefix('='));
    told.unwrap_or_else(|| panic!("no option {option}")).to_owned()
}

/// By default RocksDB drops or rewrites files that are 30 days old.
#[test]
fn files_age_only_as_they_were_told_to() {
    let rewrite_after = Duration::from_secs(40 * 24 * 60 * 60);
    for (compaction, rewritten) in
        [(Compaction::Fifo, "0"), (Compaction::Universal, "3456000"), (Compaction::Level, "3456000")]
    {
        let folder = folder();
        let _rocks = open(&RocksConfig { compaction, rewrite_after, ..config(&folder, 64 << 20) }, &clock());
        let aged = (told(&folder, "ttl"), told(&folder, "periodic_compaction_seconds"));
        assert_eq!(aged, ("0".into(), rewritten.into()), "{compaction:?}");
    }
}

#[test]
fn other_compaction_refuses_what_does_not_fit_and_serves_nothing_out_of_date() {
    let (folder, clock) = (folder(), clock());
    let bytes = 8 << 20;
    let rocks = open(&RocksConfig { compaction: Compaction::Level, ..config(&folder, bytes) }, &clock);
    set(&rocks, "first", b"old", 0).expect("a set");
    let is_stored = |key: &str, bytes| match set(&rocks, key, &noise(bytes), 0).expect("an answer") {
        Written::Stored { .. } => true,
        Written::OutOfMemory => false,
        other => panic!("{other:?}"),
    };
    // Whatever keys are spread like, every shard gets more than it holds.
    let keys = (0..3 * bytes / (16 << 10)).map(|key| format!("key {key}"));
    let refused: Vec<_> = keys.filter(|key| !is_stored(key, 16 << 10)).collect();
    assert!(refused.len() > 1, "three times as much does not fit");
    assert!(refused.iter().all(|key| get(&rocks, key).is_none()));
    assert!((0..100).any(|key| !is_stored(&format!("more {key}"), 64 << 10)));
    // The value that could not be replaced is not served any more.
    assert!(!is_stored("first", 1 << 20));
    assert_eq!(get(&rocks, "first"), None);
    assert!(rocks.stats().out_of_memory > 0);
    let files = rocks.database().file_bytes();
    assert!(files <= bytes, "files of {files} bytes where {bytes} are allowed");
    // A count in between may find that compaction made room.
    let says_so = || rocks.health().notes.iter().any(|note| note.contains("refused writes"));
    assert!((0..100).any(|_| !is_stored("first", 1 << 20) && says_so()));
    delete(&rocks, "key 0");
    assert_eq!(get(&rocks, "key 0"), None, "deletes are not refused");
}

/// Between two counts of what there is, an engine goes by what it was told to write.
#[test]
fn files_keep_to_their_bytes_whatever_records_they_are_full_of_and_however_rarely_they_are_counted() {
    for (compaction, value) in [
        (Compaction::Level, 16 << 10),
        (Compaction::Universal, 16 << 10),
        (Compaction::Level, 40 << 10),
        (Compaction::Level, 3000),
        (Compaction::Level, 300),
    ] {
        let bytes = 4 << 20;
        let folder = folder();
        let flush_interval = Duration::from_secs(3600);
        let rocks = open(&RocksConfig { compaction, flush_interval, ..config(&folder, bytes) }, &clock());
        let refused = (0..2 * bytes / value as u64).filter(|key| {
            let written = set(&rocks, &format!("key {key}"), &noise(value), 0).expect("an answer");
            assert!(matches!(written, Written::Stored { .. } | Written::OutOfMemory), "{written:?}");
            written == Written::OutOfMemory
        });
        assert!(refused.count() > 0, "twice as much does not fit");
        wait(rocks.sync()).expect("a sync");
        let flushed = rocks.database().file_bytes();
        rocks.database().compact();
        let files = rocks.database().file_bytes();
        for files in [flushed, files] {
            assert!(files <= bytes, "{compaction:?}, {value}: files of {files} bytes where {bytes} are allowed");
        }
        assert!(files > bytes / 2, "{compaction:?}, {value}: files of {files} bytes, and no more fits into {bytes}");
    }
}

#[test]
fn deletes_take_room_too_and_are_never_refused() {
    let folder = folder();
    let flush_interval = Duration::from_secs(3600);
    let config = RocksConfig { compaction: Compaction::Level, flush_interval, ..config(&folder, 8 << 20) };
    let rocks = open(&config, &clock());
    let deletes = || {
        let mut batch = rocks.database().begin(0)?;
        for number in 0..20_000 {
            batch.delete(&Key::new(format!("{number:0>250}").as_bytes(), rocks.seed()))?;
        }
        batch.commit()
    };
    deletes().expect("deletes of five million bytes");
    deletes().expect("deletes beyond the shard's four");
    let key = Key::new(b"key", rocks.seed());
    let mut batch = rocks.database().begin(0).expect("a batch");
    let header = Header { meta: ItemMeta::default(), sequence: 1 };
    let put = batch.put(&key, &header, b"a record");
    assert!(matches!(put, Err(Failure::Full(_))), "{put:?}");
}

#[test]
fn a_flush_is_kept_over_a_kill_and_so_is_one_to_come() {
    let (folder, clock) = (folder(), clock());
    let config = RocksConfig { log: Log::On, ..config(&folder, 64 << 20) };
    let rocks = open(&config, &clock);
    set(&rocks, "before", b"value", 0).expect("a set");
    end(rocks.flush(Exptime(0))).expect("a flush");
    set(&rocks, "between", b"value", 0).expect("a set");
    end(rocks.flush(Exptime(100))).expect("a flush");
    rocks.crash();
    let rocks = open(&config, &clock);
    assert_eq!(moneta_store::Calls::pending_flush(&rocks), Some(NOW + 100));
    assert_eq!((get(&rocks, "before"), get(&rocks, "between").is_some()), (None, true));
    rocks.crash();
    clock.advance(100);
    let rocks = open(&config, &clock);
    assert_eq!(get(&rocks, "between"), None);
    set(&rocks, "after", b"value", 0).expect("a set");
    rocks.crash();
    assert!(get(&open(&config, &clock), "after").is_some(), "it happens once");
}

#[test]
fn metrics_have_names_of_their_own_and_meanings() {
    let folder = folder();
    let rocks = open(&RocksConfig { block_cache: 1 << 20, log: Log::On, ..config(&folder, 64 << 20) }, &clock());
    set(&rocks, "key", &noise(1000), 0).expect("a set");
    assert!(get(&rocks, "key").is_some());
    assert!(metric(&rocks, "rocks_log_bytes_written_total") > 1000.0);
    assert!(metric(&rocks, "rocks_memtable_hits_total") >= 1.0);
    let samples = rocks.metrics();
    assert!(samples.iter().all(|sample| sample.metric.name.starts_with("rocks_") && sample.metric.help.ends_with('.')));
    let mut names: Vec<_> = samples.iter().map(|sample| (sample.metric.name, &sample.labels)).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a metric is there twice");
    assert!(Path::new(&folder.path().join("shard-000")).is_dir());
}
