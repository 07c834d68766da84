//! What the engine promises beside the suite: what it refuses, what goes when room is needed, how large its file gets.

mod common;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::config;
use moneta_embedded::Database as _;
use moneta_embedded::testing::{end, get, set, until};
use moneta_lmdb::{Durability, Lmdb, LmdbConfig};
use moneta_store::component::{RemovalCause, Removed};
use moneta_store::request::{Exptime, Write};
use moneta_store::{Calls, Clock, Key, Observer, Store, Written};
use tempfile::TempDir;

const NOW: u32 = 1_700_000_000;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn clock() -> Arc<Clock> {
    Arc::new(Clock::manual(NOW))
}

fn open(config: &LmdbConfig, clock: &Arc<Clock>) -> Lmdb {
    Lmdb::open(config, Arc::clone(clock)).expect("the folder opens")
}

fn refusal(config: &LmdbConfig) -> String {
    Lmdb::open(config, clock()).expect_err("it is refused").to_string()
}

fn metric(lmdb: &Lmdb, name: &str) -> f64 {
    let samples = lmdb.metrics();
    let sample = samples.iter().find(|sample| sample.metric.name == name);
    sample.unwrap_or_else(|| panic!("no metric {name}")).value.number()
}

/// Keeps what it is told.
#[derive(Default)]
struct Departures(Mutex<Vec<(String, RemovalCause)>>);

impl Observer for Departures {
    fn removed(&self, item: &Removed<'_>) {
        let key = String::from_utf8_lossy(item.key).into_owned();
        self.0.lock().expect("no panic under it").push((key, item.cause));
    }
}

impl Departures {
    fn take(&self) -> Vec<(String, RemovalCause)> {
        std::mem::take(&mut *self.0.lock().expect("no panic under it"))
    }

    fn count(&self) -> usize {
        self.0.lock().expect("no panic under it").len()
    }
}

#[test]
fn the_file_keeps_to_its_bytes_and_the_oldest_go_first() {
    const BYTES: u64 = 32 << 20;
    let (folder, clock) = (folder(), clock());
    let lmdb = open(&config(&folder, BYTES), &clock);
    let departures = Arc::new(Departures::default());
    lmdb.observe(Some(Arc::clone(&departures) as Arc<dyn Observer>));
    let value = vec![7; 3000];
    let count = 4 * BYTES / 4096;
    for key in 0..count {
        set(&lmdb, &format!("key {key}"), &value, 0).expect("a set");
        if key == 10 {
            set(&lmdb, "key 0", b"written again, and so younger than the others", 0).expect("a set");
        }
    }
    let gone = departures.take();
    assert_eq!(gone[0], ("key 1".into(), RemovalCause::Evicted), "the oldest is the first to go");
    assert_eq!(gone[10], ("key 0".into(), RemovalCause::Evicted), "by its last write");
    let there = (0..count).filter(|key| get(&lmdb, &format!("key {key}")).is_some()).count() as u64;
    assert_eq!(there + gone.len() as u64, count, "what went was told");
    assert!(there * 4096 > BYTES / 2, "only {there} items of 4 KiB fit {BYTES} bytes");
    assert_eq!((lmdb.stats().items, lmdb.stats().evictions), (there, gone.len() as u64));
    let file = std::fs::metadata(folder.path().join("data.mdb")).expect("it is there").len();
    assert!(file <= BYTES, "the file has {file} bytes");
}

#[test]
fn large_values_of_all_sizes_find_room_again_and_again() {
    let (folder, clock) = (folder(), clock());
    let lmdb = open(&LmdbConfig { item_max: 2 << 20, ..config(&folder, 32 << 20) }, &clock);
    for round in 0..600 {
        let bytes = if round % 3 == 0 { fastrand::usize(1 << 20..2 << 20) } else { fastrand::usize(0..20_000) };
        let key = format!("key {}", fastrand::u32(0..200));
        let ended = set(&lmdb, &key, &vec![1; bytes], 0);
        assert!(matches!(ended, Ok(Written::Stored { .. })), "{bytes} bytes: {ended:?}");
        assert_eq!(get(&lmdb, &key).map(|value| value.len()), Some(bytes));
    }
}

/// LMDB keeps every page that a reader may see; a slow one must cost a write its time, not its place, nor others theirs.
#[test]
fn room_is_waited_for_while_someone_reads() {
    const ITEMS: usize = 20;
    let (folder, clock) = (folder(), clock());
    let lmdb = open(&LmdbConfig { item_max: 2 << 20, ..config(&folder, 64 << 20) }, &clock);
    let value = vec![1; (2 << 20) - 1000];
    for key in 0..ITEMS {
        assert!(matches!(set(&lmdb, &format!("key {key}"), &value, 0), Ok(Written::Stored { .. })));
    }
    let (reading, is_read) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let reader = lmdb.clone();
        scope.spawn(move || {
            let slowly = &mut |_: &[u8], _: &[u8]| {
                reading.send(()).expect("someone waits");
                std::thread::sleep(Duration::from_millis(500));
                false
            };
            reader.database().scan(0, None, slowly).expect("a scan");
        });
        is_read.recv().expect("a reader");
        for round in 0..4 * ITEMS {
            let key = format!("key {}", round % ITEMS);
            let ended = set(&lmdb, &key, &value, 0);
            assert!(matches!(ended, Ok(Written::Stored { .. })), "write {round}: {ended:?}");
        }
    });
    let there = (0..ITEMS).filter(|key| get(&lmdb, &format!("key {key}")).is_some()).count();
    assert!(there > ITEMS / 2, "{there} items are left");
}

#[test]
fn what_goes_for_its_own_next_version_is_not_evicted() {
    let (folder, clock) = (folder(), clock());
    let lmdb = open(&LmdbConfig { item_max: 4000, ..config(&folder, 8 << 20) }, &clock);
    let departures = Arc::new(Departures::default());
    lmdb.observe(Some(Arc::clone(&departures) as Arc<dyn Observer>));
    let store = |key: usize| {
        set(&lmdb, &format!("key {key}"), &[7; 3000], 0).expect("a set");
    };
    let mut stored = (0..).inspect(|key| store(*key));
    let last = stored.find(|_| departures.count() > 0).expect("it gets full");
    let mut oldest_first: VecDeque<usize> = (departures.take().len()..=last).collect();
    for _ in 0..last {
        let oldest = oldest_first.pop_front().expect("many are there");
        store(oldest);
        for (gone, _) in departures.take() {
            let next = oldest_first.pop_front().expect("many are there");
            assert_eq!(gone, format!("key {next}"), "when key {oldest} was written again");
        }
        oldest_first.push_back(oldest);
    }
    let items = oldest_first.len() as u64;
    assert_eq!(lmdb.stats().items, items);
    assert_eq!(lmdb.stats().evictions, last as u64 + 1 - items);
}

/// Sets keys, many at a time, as many clients do; tells how many were not stored.
fn refused(lmdb: &Lmdb, keys: impl Iterator<Item = usize>, value: &[u8], exptime: i64) -> usize {
    let write = Write { exptime: Exptime(exptime), ..Write::default() };
    let set = |key: usize| lmdb.set(&Key::new(format!("key {key}").as_bytes(), lmdb.seed()), value, &write);
    let keys: Vec<_> = keys.collect();
    let ended = keys.chunks(1000).flat_map(|some| some.iter().map(|key| set(*key)).collect::<Vec<_>>()).map(end);
    ended.filter(|ended| !matches!(ended, Ok(Written::Stored { .. }))).count()
}

/// Keys in an order that is not theirs, so that each has a separate leaf; more than `count` begin anew.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    (0..).map(move |number| number * 7919 % count)
}

#[test]
fn small_values_wait_for_readers_too() {
    const ITEMS: usize = 50_000;
    let (folder, clock) = (folder(), clock());
    let lmdb = open(&config(&folder, 32 << 20), &clock);
    let value = [1; 500];
    assert_eq!(refused(&lmdb, scattered(ITEMS).take(ITEMS), &value, 0), 0);
    assert!(lmdb.stats().evictions > 0, "the file is full");
    let (reading, is_read) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let reader = lmdb.clone();
        scope.spawn(move || {
            let slowly = &mut |_: &[u8], _: &[u8]| {
                reading.send(()).expect("someone waits");
                std::thread::sleep(Duration::from_millis(500));
                false
            };
            reader.database().scan(0, None, slowly).expect("a scan");
        });
        is_read.recv().expect("a reader");
        assert_eq!(refused(&lmdb, scattered(ITEMS).take(10_000), &value, 0), 0, "while someone reads");
    });
}

/// As one would on a device that answers no more. Were each write to wait as long as the first, this would take half an hour.
#[test]
fn a_read_that_hangs_holds_up_one_write_and_not_each() {
    const ITEMS: usize = 20_000;
    let (folder, clock) = (folder(), clock());
    let config = LmdbConfig { flush_interval: Duration::from_secs(3600), ..config(&folder, 8 << 20) };
    let lmdb = open(&LmdbConfig { item_max: 1000, ..config }, &clock);
    assert_eq!(refused(&lmdb, scattered(ITEMS).take(ITEMS), &[1; 500], 0), 0);
    let overwritten = || scattered(ITEMS).skip(ITEMS - 5000).take(500);
    let hanging = &mut |_: &[u8], _: &[u8]| {
        let refused = refused(&lmdb, overwritten(), &[2; 500], 0);
        assert!((1..500).contains(&refused), "{refused} are refused");
        false
    };
    lmdb.database().scan(0, None, hanging).expect("a scan");
    let old = overwritten().filter(|key| get(&lmdb, &format!("key {key}")).is_some_and(|value| value != [2; 500]));
    assert_eq!(old.count(), 0, "none is served that could not be replaced");
    assert_eq!(refused(&lmdb, overwritten(), &[3; 500], 0), 0, "all is well again");
}

/// Removing an item copies a leaf of each tree, so what makes room must not need more of it than there is.
#[test]
fn room_is_made_among_small_values_a_little_at_a_time() {
    const ITEMS: usize = 150_000;
    let (folder, clock) = (folder(), clock());
    let config = LmdbConfig { flush_interval: Duration::from_secs(3600), ..config(&folder, 16 << 20) };
    let lmdb = open(&LmdbConfig { item_max: 1000, ..config }, &clock);
    assert_eq!(refused(&lmdb, scattered(ITEMS).take(ITEMS), &[1; 50], 0), 0);
    let before = lmdb.stats();
    for _ in 0..20 {
        assert!(lmdb.database().make_room(0).expect("room is made"));
    }
    let after = lmdb.stats();
    let evicted = after.evictions - before.evictions;
    assert_eq!(before.items - after.items, evicted, "each is counted");
    assert!(evicted > 20 && evicted < before.items / 2, "{evicted} of {} items went", before.items);
}

#[test]
fn what_has_expired_is_swept_and_told() {
    let (folder, clock) = (folder(), clock());
    let lmdb = open(&config(&folder, 16 << 20), &clock);
    let departures = Arc::new(Departures::default());
    lmdb.observe(Some(Arc::clone(&departures) as Arc<dyn Observer>));
    for key in 0..3000 {
        set(&lmdb, &format!("key {key}"), b"value", if key < 2500 { 10 } else { 20 }).expect("a set");
    }
    // Its first expiry counts no longer.
    set(&lmdb, "key 7", b"value", 20).expect("a set");
    clock.advance(10);
    assert_eq!(get(&lmdb, "key 0"), None, "exact, swept or not");
    lmdb.maintain().expect("a turn");
    assert_eq!(lmdb.stats().items, 501);
    // The keeper sweeps too, and tells of what it has removed after its transaction.
    until("all is told", || departures.count() >= 2499);
    let gone = departures.take();
    assert_eq!(gone.len(), 2499);
    assert!(gone.iter().all(|(key, why)| *why == RemovalCause::Expired && key != "key 7"));
    assert!(get(&lmdb, "key 7").is_some());
    end(lmdb.flush(Exptime(0))).expect("a flush");
    lmdb.maintain().expect("a turn");
    assert_eq!((lmdb.stats().items, departures.take().len()), (0, 0), "what a flush covers goes untold");
    let left = |tree: &str| {
        let of = |sample: &&moneta_store::metric::Sample| {
            sample.metric.name == "lmdb_tree_entries" && sample.labels == [tree]
        };
        lmdb.metrics().iter().find(of).expect("a sample").value.number()
    };
    assert_eq!((left("items"), left("order"), left("expiry")), (0.0, 0.0, 0.0));
}

#[test]
fn a_small_file_full_of_expired_items_is_swept() {
    const ITEMS: usize = 50_000;
    let (folder, clock) = (folder(), clock());
    let config = LmdbConfig { flush_interval: Duration::from_secs(3600), ..config(&folder, 8 << 20) };
    let lmdb = open(&LmdbConfig { item_max: 1000, ..config }, &clock);
    // In another order than they were written in.
    for (index, exptime) in [30, 10, 20].into_iter().enumerate() {
        let keys = scattered(ITEMS).skip(index).step_by(3).take(ITEMS / 3);
        assert_eq!(refused(&lmdb, keys, &[1; 20], exptime), 0);
    }
    let before = lmdb.stats();
    assert!(before.evictions > 0, "the file is full");
    clock.advance(30);
    for _ in 0..5 {
        lmdb.maintain().expect("a turn");
    }
    let after = lmdb.stats();
    assert_eq!((after.items, after.reclaimed - before.reclaimed), (0, before.items));
}

#[test]
fn folders_of_others_are_refused_and_left_alone() {
    let folder = folder();
    let config = config(&folder, 16 << 20);
    let first = open(&config, &clock());
    assert!(refusal(&config).contains("another process has it open"));
    set(&first, "key", &vec![1; 500_000], 0).expect("a set");
    for key in 0..30 {
        set(&first, &format!("key {key}"), &vec![1; 500_000], 0).expect("a set");
    }
    drop(first);
    assert!(refusal(&LmdbConfig { bytes: 8 << 20, item_max: 1000, ..config.clone() }).contains("bytes already"));
    assert!(refusal(&LmdbConfig { bytes: 1 << 20, ..config.clone() }).contains("at least"));
    assert!(refusal(&LmdbConfig { item_max: 2 << 20, ..config.clone() }).contains("sixteenth"));
    assert!(get(&open(&LmdbConfig { bytes: 32 << 20, ..config }, &clock()), "key 29").is_some(), "more can be given");
}

#[test]
fn a_file_that_was_not_synced_when_the_machine_went_down_is_not_trusted() {
    for (durability, kept) in [(Durability::Interval, false), (Durability::EveryWrite, true)] {
        let folder = folder();
        let config = LmdbConfig { durability, ..config(&folder, 16 << 20) };
        let lmdb = open(&config, &clock());
        set(&lmdb, "key", b"value", 0).expect("a set");
        lmdb.crash();
        assert!(get(&open(&config, &clock()), "key").is_some(), "a killed process loses nothing");
        let lmdb = open(&config, &clock());
        let cas = moneta_store::Calls::next_cas(&lmdb, &moneta_store::Key::new(b"key", lmdb.seed()));
        lmdb.crash();
        // As a machine leaves it that goes down: its next start has another name.
        let manifest = folder.path().join("moneta.ledger");
        let written = std::fs::read_to_string(&manifest).expect("it is there");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux tells");
        assert!(written.contains(boot.trim()));
        std::fs::write(&manifest, written.replace(boot.trim(), "an earlier start")).expect("a write");
        let lmdb = open(&config, &clock());
        assert_eq!(get(&lmdb, "key").is_some(), kept, "{durability:?}");
        let next = moneta_store::Calls::next_cas(&lmdb, &moneta_store::Key::new(b"key", lmdb.seed()));
        assert!(next > cas, "no CAS value comes again");
    }
}

/// What a killed process wrote without syncs is not on the device yet when the next one syncs its own.
#[test]
fn a_file_counts_as_unsynced_until_it_is_synced() {
    let folder = folder();
    let config = config(&folder, 16 << 20);
    let lmdb = open(&config, &clock());
    set(&lmdb, "key", b"value", 0).expect("a set");
    lmdb.crash();
    let (data, aside) = (folder.path().join("data.mdb"), folder.path().join("aside"));
    let mark = folder.path().join("moneta.unsynced");
    // A file that cannot be synced, as it cannot be opened.
    std::fs::rename(&data, &aside).expect("it is there");
    std::os::unix::fs::symlink(&data, &data).expect("a link to itself");
    let config = LmdbConfig { durability: Durability::EveryWrite, ..config };
    refusal(&config);
    assert!(mark.exists(), "it is not trusted");
    std::fs::rename(&aside, &data).expect("it comes back");
    assert!(get(&open(&config, &clock()), "key").is_some());
    assert!(!mark.exists(), "it is synced");
}

#[test]
fn metrics_have_names_of_their_own_and_meanings() {
    let folder = folder();
    let lmdb = open(&config(&folder, 16 << 20), &clock());
    set(&lmdb, "key", b"value", 0).expect("a set");
    assert!(metric(&lmdb, "lmdb_commits_total") >= 1.0);
    assert!(metric(&lmdb, "lmdb_file_bytes") > 4096.0);
    let samples = lmdb.metrics();
    assert!(samples.iter().all(|sample| sample.metric.name.starts_with("lmdb_") && sample.metric.help.ends_with('.')));
    let mut names: Vec<_> = samples.iter().map(|sample| (sample.metric.name, &sample.labels)).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a metric is there twice");
}
