//! The feed from the log: a reader that is not told of a gap misses nothing, whatever is written, emptied, stopped and killed
//! beside it. The failure to guard against is silent: a change that no reader is told of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::feed::{Batch, Change, Feed, Place, Reader, Wanted};
use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::versions::{Floor, Versioning};
use moneta_store::{
    Calls, Clock, Component, Deleted, ErrorKind, ItemMeta, ItemRef, Key, Lookup, Origin, Step, Store, Unseen, Value,
    Version, Written,
};
use tempfile::TempDir;

const KEYS: u32 = 300;
/// With regions of 256 KiB.
const TIER: u64 = 8 << 20;

struct Tier {
    config: FlashConfig,
    clock: Arc<Clock>,
    _folder: TempDir,
}

impl Tier {
    fn new(clock: Clock) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = FlashConfig::new(vec![DeviceConfig { path: folder.path().into(), bytes: TIER }]);
        config.io = Io::Threads;
        config.io_threads = 2;
        config.region_bytes = 256 << 10;
        config.item_max = 32 << 10;
        config.flush_interval = Duration::from_millis(20);
        config.threads = 2;
        config.carry_percent = 20;
        config.versioning = Versioning { cluster: true, origin: Origin::new(1, 2), ..Versioning::default() };
        config.feed = true;
        Self { config, clock: Arc::new(clock), _folder: folder }
    }

    fn open(&self) -> Flash {
        Flash::open(&self.config, Arc::clone(&self.clock)).expect("the tier opens")
    }
}

fn done<T>(step: Step<T>) -> T {
    match step {
        Step::Done(ended) => ended.expect("it does not fail"),
        Step::Wait(pending) => pollster::block_on(pending).expect("it does not fail"),
    }
}

fn name(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn number(key: &[u8]) -> u32 {
    std::str::from_utf8(key).expect("text")[4..].parse().expect("a number")
}

fn feed(flash: &Flash) -> &dyn Feed {
    flash.parts().feed.expect("it keeps a feed")
}

/// A change that a client was told has happened.
#[derive(Clone, Copy, Debug)]
struct Done {
    millis: u64,
    key: u32,
    /// The least version that says of it.
    version: Version,
    /// When the item dies, Unix second; 0: never.
    expiry: u32,
}

/// One change of a key, and what is known of it. `last`: the version of the key's last change.
fn change(flash: &Flash, clock: &Clock, rng: &mut Rng, key: u32, last: &mut Version) -> Done {
    let bytes = name(key);
    let key_of = Key::new(&bytes, flash.seed());
    let above = Version(last.0 + 1);
    let mut done_as = |version: Version, expiry: u32| {
        *last = version;
        Done { millis: clock.millis(), key, version, expiry }
    };
    match rng.u8(0..20) {
        0..3 => {
            let deleted = done(flash.delete(&key_of, &Delete::default()));
            assert!(matches!(deleted, Deleted::Deleted | Deleted::NotFound));
            done_as(above, 0)
        }
        3 => {
            let version = Version(flash.next_cas(&key_of));
            match flash.bury(&key_of, version) {
                // Versions run ahead of the clock for a second after a restart.
                Step::Done(Err(error)) if error.kind() == ErrorKind::ClockAhead => {
                    Done { millis: 0, key, version: Version::ZERO, expiry: 0 }
                }
                buried => {
                    assert!(!matches!(done(buried), Deleted::Superseded { .. }));
                    done_as(version, 0)
                }
            }
        }
        4 => {
            let seconds = rng.i64(1..20);
            let write = Write { exptime: Exptime(seconds), ..Write::default() };
            let Written::Stored { cas } = done(flash.set(&key_of, &value(rng), &write)) else { panic!("not stored") };
            done_as(Version(cas), clock.now() + seconds as u32)
        }
        5 => {
            let expiry = Exptime(1000);
            let touch = Retrieve { touch: Some(expiry), ..Retrieve::default() };
            let _ = done(flash.get(&key_of, &touch, &mut Unseen));
            // Longer: the version stays. It may be that nothing is there.
            Done { millis: 0, key, version: Version::ZERO, expiry: 0 }
        }
        _ => {
            let written = done(flash.set(&key_of, &value(rng), &Write::default()));
            let Written::Stored { cas } = written else { panic!("not stored") };
            done_as(Version(cas), 0)
        }
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let length = if rng.u8(0..10) == 0 { rng.usize(0..20_000) } else { rng.usize(0..2000) };
    vec![rng.u8(..); length]
}

/// What a reader was told.
#[derive(Default)]
struct Heard {
    newest: HashMap<u32, Version>,
    /// Changes before this moment may be missing.
    gap: u64,
    gaps: u32,
    /// It was told that the node lost something before this moment.
    lost: u64,
    watermark: u64,
}

impl Heard {
    fn note(&mut self, batch: &Batch) {
        if let Some(gap) = batch.gap {
            assert!(gap >= self.gap, "a gap is told once");
            self.gap = gap;
            self.gaps += 1;
        }
        for told in &batch.changes {
            let (key, version) = match &told.change {
                Change::Item(left) => {
                    assert!(left.value.is_some());
                    (number(&left.key), left.meta.version())
                }
                Change::Deleted(key, version) => (number(key), *version),
                Change::Lost(until) => {
                    self.lost = self.lost.max(*until);
                    continue;
                }
                Change::Flushed(_) => continue,
                Change::Set(_) => panic!("the log has what a key holds"),
            };
            let newest = self.newest.entry(key).or_default();
            *newest = version.max(*newest);
        }
        self.watermark = self.watermark.max(batch.watermark);
    }

    /// That nothing of `journal`, from `from` up to the watermark, was kept from it. `lost`: what the node may have lost.
    fn check(&self, journal: &[Done], from: u64, lost: impl Fn(usize) -> bool) {
        let due = |done: &Done| (from.max(self.gap)..=self.watermark).contains(&done.millis);
        for (place, done) in journal.iter().enumerate().filter(|(_, done)| due(done)) {
            let heard = self.newest.get(&done.key).copied().unwrap_or_default();
            // An item that has expired is told as a delete just below it.
            let least = if done.expiry == 0 { done.version } else { done.version.just_below() };
            let excused = lost(place) && self.lost > done.millis;
            assert!(
                heard >= least || excused,
                "key {} was changed at {} to {:?}, and all that was told is {heard:?} (from {from}, gap {}, watermark {})",
                done.key,
                done.millis,
                done.version,
                self.gap,
                self.watermark
            );
        }
    }
}

/// A reader, as its cursor is kept.
struct Follower {
    from: u64,
    cursor: String,
    heard: Heard,
}

impl Follower {
    fn begin(flash: &Flash, clock: &Clock, rng: &mut Rng) -> Self {
        let back = rng.u64(0..2000);
        let from = if rng.bool() { clock.millis() - back } else { clock.millis() + 1 };
        let place = if from > clock.millis() { feed(flash).end() } else { feed(flash).since(from) };
        Self { from, cursor: place.to_string(), heard: Heard::default() }
    }

    fn reader(&self, flash: &Flash) -> Box<dyn Reader> {
        let place: Place = self.cursor.parse().expect("a cursor");
        feed(flash).reader(place, Wanted { values: true, ..Wanted::default() })
    }

    fn read(&mut self, reader: &mut dyn Reader, limit: usize) -> bool {
        let batch = reader.read(limit, 100_000).expect("the device answers");
        self.heard.note(&batch);
        self.cursor = batch.next.to_string();
        batch.is_end
    }

    fn read_all(&mut self, flash: &Flash) {
        let mut reader = self.reader(flash);
        while !self.read(&mut *reader, 50) {}
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let clock = Arc::clone(&tier.clock);
    let mut flash = tier.open();
    let mut last = vec![Version::ZERO; KEYS as usize];
    let mut journal: Vec<Done> = Vec::new();
    // What was on the device for sure, and which places of the journal may have been lost.
    let (mut synced, mut lost) = (0, Vec::new());
    let mut followers: Vec<Follower> = (0..3).map(|_| Follower::begin(&flash, &clock, &mut rng)).collect();
    let mut gaps = 0;
    for _ in 0..60 {
        for _ in 0..rng.usize(1..400) {
            let key = rng.u32(0..KEYS);
            let done = change(&flash, &clock, &mut rng, key, &mut last[key as usize]);
            if done.version > Version::ZERO {
                journal.push(done);
            }
            if rng.u8(0..20) == 0 {
                clock.advance_millis(rng.u64(1..30));
            }
        }
        match rng.u8(0..20) {
            0 => {
                drop(flash);
                clock.advance_millis(1000);
                flash = tier.open();
                synced = journal.len();
            }
            1 => {
                flash.crash();
                lost.push(synced..journal.len());
                clock.advance_millis(rng.u64(1000..3000));
                flash = tier.open();
            }
            2 => {
                pollster::block_on(flash.sync()).expect("a sync");
                synced = journal.len();
            }
            3 => {
                done(flash.flush(Exptime(0)));
                // What was before is gone, and the floor says so.
                journal.clear();
                (synced, lost) = (0, Vec::new());
                followers = (0..3).map(|_| Follower::begin(&flash, &clock, &mut rng)).collect();
                for follower in &mut followers {
                    follower.from = follower.from.max(clock.millis());
                }
            }
            _ => {}
        }
        let may_be_lost = |place: usize| lost.iter().any(|lost: &std::ops::Range<usize>| lost.contains(&place));
        for follower in &mut followers {
            match rng.u8(0..4) {
                0 => continue,
                1 => {
                    let mut reader = follower.reader(&flash);
                    for _ in 0..rng.u8(1..5) {
                        follower.read(&mut *reader, rng.clone().usize(1..100));
                    }
                }
                _ => {
                    follower.read_all(&flash);
                    clock.advance_millis(1);
                    // Once more: the watermark covers what is there now.
                    follower.read_all(&flash);
                    assert!(!feed(&flash).has_more(follower.cursor.parse().expect("a cursor")));
                }
            }
            follower.heard.check(&journal, follower.from, may_be_lost);
        }
        if rng.u8(0..6) == 0 {
            let at = rng.usize(0..followers.len());
            gaps += followers[at].heard.gaps;
            followers[at] = Follower::begin(&flash, &clock, &mut rng);
        }
    }
    println!("seed {seed}: {} changes, {} crashes, {gaps} gaps", journal.len(), lost.len());
}

#[test]
fn a_reader_misses_nothing_through_restarts_and_kills() {
    let first = moneta_testkit::suite::seed();
    for seed in (0..6).map(|number| first.wrapping_add(number)) {
        println!("MONETA_SEED={seed}");
        run(seed);
    }
}

#[test]
fn a_reader_beside_writers_misses_nothing() {
    let tier = Tier::new(Clock::system());
    let flash = tier.open();
    let clock = Arc::clone(&tier.clock);
    let mut follower = Follower { from: 0, cursor: feed(&flash).since(0).to_string(), heard: Heard::default() };
    let place = feed(&flash).end();
    follower.cursor = place.to_string();
    clock.refresh();
    follower.from = clock.millis() + 1;
    let stop = AtomicBool::new(false);
    let seed = moneta_testkit::suite::seed();
    println!("MONETA_SEED={seed}");
    let (mut journal, mut follower): (Vec<Done>, Follower) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u32)
            .map(|writer| {
                let (flash, clock) = (&flash, &clock);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed + u64::from(writer));
                    let mut last = vec![Version::ZERO; KEYS as usize];
                    let mut journal = Vec::new();
                    for _ in 0..8000 {
                        clock.refresh();
                        let key = rng.u32(0..KEYS / 3) * 3 + writer;
                        journal.push(change(flash, clock, &mut rng, key, &mut last[key as usize]));
                    }
                    journal
                })
            })
            .collect();
        let (flash, stop) = (&flash, &stop);
        let reader = scope.spawn(move || {
            let mut reader = follower.reader(flash);
            while !stop.load(Ordering::Acquire) {
                follower.read(&mut *reader, 200);
            }
            follower
        });
        let journal = writers.into_iter().flat_map(|writer| writer.join().expect("it ends")).collect();
        stop.store(true, Ordering::Release);
        (journal, reader.join().expect("it ends"))
    });
    journal.retain(|done| done.version > Version::ZERO);
    std::thread::sleep(Duration::from_millis(3));
    clock.refresh();
    follower.read_all(&flash);
    println!("{} gaps, {} keys", follower.heard.gaps, follower.heard.newest.len());
    assert!(follower.heard.newest.len() > KEYS as usize / 2);
    follower.heard.check(&journal, follower.from, |_| false);
}

/// Keys that are written once: nothing newer stands in for what is emptied before a reader comes to it.
#[test]
fn a_reader_that_was_overtaken_is_told_of_a_gap_also_after_a_restart() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let mut flash = tier.open();
    let place = feed(&flash).end().to_string();
    let from = tier.clock.millis() + 1;
    let overtaken = || Follower { from, cursor: place.clone(), heard: Heard::default() };
    tier.clock.advance_millis(1);
    let mut journal = Vec::new();
    for key in 0..12_000 {
        let bytes = name(key);
        let written = done(flash.set(&Key::new(&bytes, flash.seed()), &[7; 2000], &Write::default()));
        let Written::Stored { cas } = written else { panic!("not stored") };
        journal.push(Done { millis: tier.clock.millis(), key, version: Version(cas), expiry: 0 });
        if key % 10 == 0 {
            tier.clock.advance_millis(1);
        }
    }
    tier.clock.advance_millis(1);
    for restart in [false, true, true] {
        if restart {
            drop(flash);
            tier.clock.advance(2);
            flash = tier.open();
        }
        let mut follower = overtaken();
        follower.read_all(&flash);
        assert!(follower.heard.gaps > 0 && follower.heard.newest.len() > 1000);
        follower.heard.check(&journal, from, |_| false);
    }
}

#[test]
fn a_flush_is_told_also_after_a_restart() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let flash = tier.open();
    let place = feed(&flash).end();
    done(flash.flush(Exptime(0)));
    let version = flash.floors().newest;
    let told = |flash: &Flash| {
        let batch = feed(flash).reader(place, Wanted::default()).read(100, 1 << 20).expect("the device answers");
        batch.changes.iter().any(|told| matches!(told.change, Change::Flushed(floor) if floor.version == version))
    };
    assert!(told(&flash));
    drop(flash);
    assert!(told(&tier.open()));
}

#[test]
fn a_reader_of_a_node_that_was_killed_is_told_so_until_it_is_past_that() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let flash = tier.open();
    let place = feed(&flash).end();
    flash.crash();
    tier.clock.advance(5);
    let read = |flash: &Flash, place| {
        let batch = feed(flash).reader(place, Wanted::default()).read(100, 1 << 20).expect("the device answers");
        (batch.changes.iter().any(|told| matches!(told.change, Change::Lost(_))), batch.gap, batch.next)
    };
    drop(tier.open());
    tier.clock.advance(5);
    let flash = tier.open();
    let (lost, gap, next) = read(&flash, place);
    assert!(lost && gap.is_none());
    assert!(!read(&flash, next).0);
}

/// What is lost with a kill had versions too. They must not come again, or a reader that was told of them would take what has them
/// now for what it knows already.
#[test]
fn versions_that_were_lost_with_a_kill_do_not_come_again_where_the_clock_was_set_back() {
    let mut tier = Tier::new(Clock::manual(1_700_000_000));
    tier.config.flush_interval = Duration::from_secs(2);
    let flash = tier.open();
    let store = |flash: &Flash, key: u32| {
        let (bytes, write) = (name(key), Write::default());
        let Written::Stored { cas } = done(flash.set(&Key::new(&bytes, flash.seed()), b"value", &write)) else {
            panic!("not stored")
        };
        cas
    };
    store(&flash, 1);
    pollster::block_on(flash.sync()).expect("a sync");
    tier.clock.advance_millis(1900);
    let last = (0..100).map(|key| store(&flash, key)).max().expect("some");
    let mut follower = Follower { from: 0, cursor: feed(&flash).end().to_string(), heard: Heard::default() };
    follower.read_all(&flash);
    flash.crash();
    tier.clock.set_millis(tier.clock.millis() - 3_600_000);
    let flash = tier.open();
    assert!(store(&flash, 7) > last, "a version that was given out before the kill");
    let batch = follower.reader(&flash).read(100, 1 << 20).expect("the device answers");
    let told = |change: &dyn Fn(&Change) -> bool| batch.changes.iter().any(|told| change(&told.change));
    assert!(told(&|change| matches!(change, Change::Lost(_))), "the reader is not told that something was lost");
    assert!(told(&|change| matches!(change, Change::Item(left) if left.key == name(7))), "the change is not told");
}

/// A cursor is not ahead of what is stored later, nor is a flush, however long nothing was written before the restart.
#[test]
fn what_is_stored_after_a_restart_is_newer_than_all_before_where_the_clock_was_set_back() {
    for is_killed in [false, true] {
        let tier = Tier::new(Clock::manual(1_700_000_000));
        let flash = tier.open();
        let bytes = name(7);
        let store = |flash: &Flash| done(flash.set(&Key::new(&bytes, flash.seed()), b"value", &Write::default()));
        let is_there = |flash: &Flash| {
            let found = done(flash.get(&Key::new(&bytes, flash.seed()), &Retrieve::default(), &mut Unseen));
            !matches!(found, Lookup::Miss { .. })
        };
        store(&flash);
        tier.clock.advance(100);
        done(flash.flush(Exptime(0)));
        tier.clock.advance(3600);
        let mut follower = Follower { from: 0, cursor: feed(&flash).end().to_string(), heard: Heard::default() };
        follower.read_all(&flash);
        pollster::block_on(flash.sync()).expect("a sync");
        if is_killed {
            flash.crash()
        } else {
            drop(flash)
        }
        tier.clock.set_millis(tier.clock.millis() - 3_640_000);
        let flash = tier.open();
        store(&flash);
        assert!(is_there(&flash), "killed: {is_killed}: it is below the flush");
        let batch = follower.reader(&flash).read(100, 1 << 20).expect("the device answers");
        let is_told = batch.changes.iter().any(|told| matches!(&told.change, Change::Item(left) if left.key == bytes));
        assert!(is_told, "killed: {is_killed}: the cursor is ahead of it");
    }
}

/// A delete that the log has keeps older versions out behind a restart; and where none can be lost, the horizon stays where it was.
#[test]
fn deletes_are_remembered_over_a_restart() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let flash = tier.open();
    tier.clock.advance(10);
    let bytes = name(1);
    let key = Key::new(&bytes, flash.seed());
    let Written::Stored { cas } = done(flash.set(&key, b"old", &Write::default())) else { panic!("not stored") };
    done(flash.delete(&key, &Delete::default()));
    let began = flash.stats().horizon;
    let comes_back = |flash: &Flash| {
        let meta = ItemMeta { cas, ..ItemMeta::default() };
        let item = ItemRef { meta, value: Value::whole(b"old") };
        done(flash.put_newer(&key, &item, tier.clock.millis()))
    };
    assert!(matches!(comes_back(&flash), Written::Superseded { .. }));
    drop(flash);
    tier.clock.advance(100);
    let flash = tier.open();
    assert!(matches!(comes_back(&flash), Written::Superseded { .. }));
    assert!(flash.stats().horizon <= began + 12_000, "{} after {began}", flash.stats().horizon);
    assert!(flash.stats().tombstones > 0);
    pollster::block_on(flash.sync()).expect("a sync");
    flash.crash();
    tier.clock.advance(100);
    let flash = tier.open();
    assert!(matches!(comes_back(&flash), Written::Superseded { .. }));
    assert!(flash.stats().horizon >= began + 200_000, "a delete of its last moments may be lost");
    drop(flash);
    tier.clock.advance(3700);
    let flash = tier.open();
    assert!(
        flash.stats().horizon >= tier.clock.millis() - 3_601_000 && flash.stats().tombstones == 0,
        "they live for an hour"
    );
}

#[test]
fn a_run_without_a_feed_leaves_a_gap() {
    let mut tier = Tier::new(Clock::manual(1_700_000_000));
    let flash = tier.open();
    let place = feed(&flash).end();
    let gap = |flash: &Flash| {
        feed(flash).reader(place, Wanted::default()).read(100, 1 << 20).expect("the device answers").gap
    };
    assert_eq!(gap(&flash), None);
    drop(flash);
    assert_eq!(gap(&tier.open()), None, "it was stopped, and all is there");
    tier.config.feed = false;
    let flash = tier.open();
    assert!(flash.parts().feed.is_none());
    drop(flash);
    tier.config.feed = true;
    assert!(gap(&tier.open()).is_some());
}

/// A flush of one copy alone takes changes that were not read, and deletes: behind a restart readers are told of that, and nothing that was
/// current before is created.
#[test]
fn what_a_flush_of_one_copy_took_is_known_behind_a_restart() {
    for is_killed in [false, true] {
        let tier = Tier::new(Clock::manual(1_700_000_000));
        let flash = tier.open();
        tier.clock.advance(10);
        let place = feed(&flash).end();
        let bytes = name(1);
        let key = Key::new(&bytes, flash.seed());
        let Written::Stored { cas } = done(flash.set(&key, b"old", &Write::default())) else { panic!("not stored") };
        done(flash.delete(&key, &Delete::default()));
        let as_of = tier.clock.millis();
        tier.clock.advance(10);
        let flushed = tier.clock.millis();
        done(flash.floor(Floor::local(Version(flash.next_cas(&key)))));
        let check = |flash: &Flash, when: &str| {
            let batch = feed(flash).reader(place, Wanted::default()).read(100, 1 << 20).expect("the device answers");
            assert!(batch.gap.is_some_and(|gap| gap > flushed), "{when}, killed: {is_killed}: {:?}", batch.gap);
            assert!(flash.stats().horizon >= flushed, "{when}, killed: {is_killed}: {}", flash.stats().horizon);
            let item = ItemRef { meta: ItemMeta { cas, ..ItemMeta::default() }, value: Value::whole(b"old") };
            let written = done(flash.put_newer(&key, &item, as_of));
            assert!(
                matches!(written, Written::NotStored | Written::Superseded { .. }),
                "{when}, killed: {is_killed}: {written:?}"
            );
        };
        check(&flash, "before");
        if is_killed {
            flash.crash()
        } else {
            drop(flash)
        }
        tier.clock.advance(100);
        check(&tier.open(), "behind a restart");
    }
}

/// A ring round a tier stamps the deletes of clients itself. Behind a restart versions begin ahead of the clock.
#[test]
fn a_restart_refuses_no_delete_of_a_client() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    for _ in 0..3 {
        let flash = tier.open();
        let store = moneta_layers::feed::Feed::new(flash.clone(), 1 << 20, Arc::clone(&tier.clock));
        let name = name(1);
        let key = Key::new(&name, store.seed());
        done(store.set(&key, b"value", &Write::default()));
        assert_eq!(done(store.delete(&key, &Delete::default())), Deleted::Deleted);
        store.close_all();
    }
}
