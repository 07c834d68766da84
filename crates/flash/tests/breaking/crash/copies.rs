//! The crash model of a node that is one of several copies: writes, deletes and flushes come by version, in any order.
//!
//! Guards against what a delete or a floor took, and a crash brings back; and against an older write that comes late, after a
//! crash which took the deletes in RAM with it. Of each key only versions count: what shows is never older than the newest
//! delete or floor that was on the device, and not older than the newest item, unless that may be evicted.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use moneta_flash::testing::{Event, Odds, VolatileMedia};
use moneta_flash::{Flash, FlashConfig};
use moneta_store::versions::{Floor, Versioning};
use moneta_store::{
    Calls, Clock, Cx, Deleted, Expiry, ItemMeta, ItemRef, Lookup, Op, Origin, Store, StoreError, Unseen,
};
use moneta_store::{Value, Version, Written};

use super::super::drive::{START, config, delete, device_bytes, finish, key, set, wait};
use super::super::history::{name, value, version_of};
use super::telling::Crash;
use super::world::{Alone, Below, Stack};

const KEYS: usize = 30;
/// Versions come from so far back and so far ahead of the clock, in milliseconds.
const SPREAD: (u64, u64) = (4000, 400);
/// After a start, until a write may be known to be current, in milliseconds, and more.
const HORIZON: u64 = 2000;

/// What a flush is called.
const FLOOR: &str = "floor";

struct Plan {
    regions: u64,
    operations: usize,
    lives: usize,
    crashes: usize,
    odds: Odds,
    /// Items may be gone, and changes may fail.
    may_miss: bool,
}

/// A change of a key, or of all keys.
#[derive(Clone, Debug)]
struct Change {
    version: Version,
    /// Serial number of the item; `None`: a delete, or a floor.
    item: Option<u32>,
    begun: usize,
    sure: usize,
    /// It ended in an error: it may have taken effect, and is never sure.
    failed: bool,
    what: &'static str,
}

/// What was done, and by when it was on the device.
#[derive(Clone, Default)]
struct Book {
    /// By key; floors are in each of them.
    keys: Vec<Vec<Change>>,
    serial: u32,
    /// The newest flush that was commanded.
    floor: Version,
}

impl Book {
    fn note(&mut self, number: usize, what: &'static str, version: Version, item: Option<u32>, begun: usize) {
        self.keys[number].push(Change { version, item, begun, sure: usize::MAX, failed: false, what });
    }

    fn note_sure(&mut self, events: usize) {
        let sound = self.keys.iter_mut().flatten().filter(|change| !change.failed);
        sound.for_each(|change| change.sure = change.sure.min(events));
    }

    /// The newest delete or floor, and the newest item, that were on the device after so many events.
    fn sure(&self, number: usize, moment: usize) -> (Version, Version) {
        let newest = |is_item: bool| {
            let sure =
                self.keys[number].iter().filter(|change| change.sure <= moment && change.item.is_some() == is_item);
            sure.map(|change| change.version).max().unwrap_or_default()
        };
        (newest(false), newest(true))
    }

    /// Whether a key may show this after a crash that follows so many events.
    fn check(&self, number: usize, shown: Option<(u32, Version)>, moment: usize, may_miss: bool) -> Result<(), String> {
        let (gone, there) = self.sure(number, moment);
        let begun = || self.keys[number].iter().filter(|change| change.begun <= moment);
        let fits = match shown {
            None => may_miss || gone >= there || begun().any(|change| change.sure > moment),
            Some((serial, version)) => {
                let is_known = begun().any(|change| change.item == Some(serial) && change.version == version);
                is_known && version > gone && (may_miss || version >= there)
            }
        };
        if fits {
            return Ok(());
        }
        let shows = format!("key {number} shows {shown:?}; gone below {gone:?}, there {there:?}; ");
        Err(shows + &self.history(number))
    }

    /// What was done to a key.
    fn history(&self, number: usize) -> String {
        let mut told = format!("what was done to key {number}:\n");
        for Change { version, item, begun, sure, what, .. } in &self.keys[number] {
            let _ = writeln!(told, "  {what} {version:?}, item {item:?}, behind {begun}, sure by {sure}");
        }
        told
    }
}

/// A node at work.
struct Node<'n, T> {
    flash: &'n Flash,
    store: &'n T,
    media: &'n VolatileMedia,
    clock: &'n Clock,
    plan: &'n Plan,
    given: HashSet<u64>,
}

impl<T: Store> Node<'_, T> {
    /// A version that another node made, of about now, and that no write has had.
    fn foreign(&mut self, rng: &mut Rng) -> Version {
        loop {
            let now = self.clock.millis();
            let millis = rng.u64(now - SPREAD.0..now + SPREAD.1);
            let local = Version::at(millis).local() + rng.u64(0..1 << 14);
            let version = Version::new(local, Origin::new(3, rng.u8(1..4)));
            if self.given.insert(version.0) {
                return version;
            }
        }
    }

    fn step(&mut self, book: &mut Book, rng: &mut Rng) {
        let (number, begun) = (rng.usize(0..KEYS), self.media.events());
        let name = name(number);
        self.clock.set_millis(self.clock.millis() + rng.u64(0..40));
        book.serial += 1;
        let serial = book.serial;
        // A change that fails may have taken effect.
        let may_miss = self.plan.may_miss;
        let took = |book: &mut Book, what, version, item, ended: Result<bool, StoreError>| {
            assert!(ended.is_ok() || may_miss, "{ended:?}");
            if !matches!(ended, Ok(false)) {
                book.note(number, what, version, item, begun);
                book.keys[number].last_mut().expect("a change").failed = ended.is_err();
            }
        };
        match rng.u8(0..100) {
            0..45 => {
                let version = self.foreign(rng);
                let put = put(self.store, number, serial, version, version.millis());
                took(book, "put", version, Some(serial), put.map(is_stored));
            }
            45..60 => {
                let version = self.foreign(rng);
                let buried = finish(self.store.bury(&key(self.store, &name), version));
                took(book, "bury", version, None, buried.map(|buried| !matches!(buried, Deleted::Superseded { .. })));
            }
            60..70 if self.plan.odds.syncs == 0 => {
                let cas = set(self.store, &name, &value(number, serial), 0).expect("a set");
                book.note(number, "set", Version(cas), Some(serial), begun);
            }
            70..78 if self.plan.odds.syncs == 0 => {
                delete(self.store, &name).expect("a delete");
                let buried = self.store.call(&Cx::outside(), &key(self.store, &name), Op::BuriedAs, &mut Unseen);
                let version = finish(buried).expect("it answers").version();
                book.note(number, "delete", version, None, begun);
            }
            78 => {
                let floor = Floor { version: self.foreign(rng), second: self.clock.now() };
                if floor.version <= book.floor {
                    // Of two flushes the later command counts, wherever it came from.
                    return;
                }
                book.floor = floor.version;
                let ended = finish(self.store.floor(floor));
                (0..KEYS).for_each(|number| book.note(number, FLOOR, floor.bound(), None, begun));
                let sure = if ended.is_ok() { self.media.events() } else { usize::MAX };
                for changes in &mut book.keys {
                    let floor = changes.last_mut().expect("a floor");
                    (floor.sure, floor.failed) = (sure, ended.is_err());
                }
            }
            79..92 => {
                if let Ok(shown) = look(self.store, number) {
                    // Before a crash all that was done counts, but for what failed.
                    let done = book.keys[number].iter().filter(|change| change.item.is_none() && !change.failed);
                    let gone = done.map(|change| change.version).max().unwrap_or_default();
                    let fits = shown.is_none_or(|(_, version)| version > gone);
                    assert!(fits, "key {number} shows {shown:?}, gone below {gone:?}; {}", book.history(number));
                }
            }
            _ => {
                if wait(self.flash.sync()).is_ok() {
                    book.note_sure(self.media.events());
                }
            }
        }
    }
}

pub fn is_stored(written: Written) -> bool {
    matches!(written, Written::Stored { .. })
}

/// Stores an item of another node in mode newer.
pub fn put(
    store: &impl Store,
    number: usize,
    serial: u32,
    version: Version,
    as_of: u64,
) -> Result<Written, StoreError> {
    let bytes = value(number, serial);
    let meta = ItemMeta { cas: version.0, expiry: Expiry::NEVER, ..ItemMeta::default() };
    finish(store.put_newer(&key(store, &name(number)), &ItemRef { meta, value: Value::whole(&bytes) }, as_of))
}

/// The serial number and the version of what a key shows.
pub fn look(store: &impl Store, number: usize) -> Result<Option<(u32, Version)>, StoreError> {
    let mut seen = None;
    let mut visitor = |item: &ItemRef<'_>| seen = Some((item.value.to_vec(), item.meta.version()));
    let shown = match finish(store.peek(&key(store, &name(number)), &mut visitor))? {
        Lookup::Found(item) => Some((item.value.into_vec(), item.meta.version())),
        Lookup::Visited => seen,
        Lookup::Miss { .. } => None,
    };
    Ok(shown.map(|(bytes, version)| (version_of(number, &bytes).expect("a value of the key"), version)))
}

/// Opens a tier that is one of several copies.
pub fn start<S: Stack>(media: Arc<VolatileMedia>, clock: &Arc<Clock>) -> (Flash, S::Store) {
    let versioning = Versioning { origin: Origin::new(1, 1), cluster: true, ..Versioning::default() };
    let config = FlashConfig { versioning, flush_interval: Duration::from_millis(3), ..config() };
    S::start(media, &config, clock)
}

/// What a crash leaves, and what then becomes of writes that come late. Tells what keys hold.
fn reopen<S: Stack>(crash: &Crash<'_>, book: &Book, plan: &Plan, clock: &Arc<Clock>) -> Vec<Option<(u32, Version)>> {
    let before = clock.millis();
    let (flash, store) = start::<S>(VolatileMedia::of(crash.image.to_vec(), 0), clock);
    let fail = |number: usize, wrong: String| panic!("{}: {wrong}{}", crash.what(), crash.tell(number));
    let mut held = Vec::new();
    for number in 0..KEYS {
        let shown = look(&store, number).expect("a get");
        book.check(number, shown, crash.moment, plan.may_miss).unwrap_or_else(|wrong| fail(number, wrong));
        let (gone, there) = book.sure(number, crash.moment);
        let newest = gone.max(there);
        let late = [newest.just_below(), Version::new(newest.local() + 1, Origin::new(3, 9))];
        for (late, as_of) in
            late.into_iter().flat_map(|late| [(late, late.millis().min(before - 1)), (late, before - 1)])
        {
            // What is there may be replaced by what is newer; nothing is created that may have been deleted.
            if late <= Version::ZERO || shown.is_some_and(|(_, version)| version < late) {
                continue;
            }
            let written = put(&store, number, u32::MAX, late, as_of).expect("an answer");
            let after = look(&store, number).expect("a get");
            if is_stored(written) || after != shown {
                let wrong = format!(
                    "{late:?} came as of {as_of}, started at {before}: {written:?}, shows {after:?}, not {shown:?}; "
                );
                fail(number, wrong + &book.history(number));
            }
        }
        held.push(shown);
    }
    flash.crash();
    held
}

fn live<S: Stack>(plan: &Plan) {
    let rounds = std::env::var("MONETA_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for _ in 0..rounds {
        let seed = fastrand::u64(..);
        println!("MONETA_SEED={seed}");
        let mut rng = Rng::with_seed(seed);
        let (mut image, clock) = (vec![0; device_bytes(plan.regions) as usize], Arc::new(Clock::manual(START)));
        let mut book = Book { keys: vec![Vec::new(); KEYS], ..Book::default() };
        for _ in 0..plan.lives {
            image = one_life::<S>(plan, image, &clock, &mut book, &mut rng);
        }
    }
}

fn one_life<S: Stack>(plan: &Plan, image: Vec<u8>, clock: &Arc<Clock>, book: &mut Book, rng: &mut Rng) -> Vec<u8> {
    let media = VolatileMedia::of(image, rng.u64(..));
    let (flash, store) = start::<S>(Arc::clone(&media), clock);
    let begun = media.events();
    // What is stored from then on may be known to be current.
    clock.set_millis(clock.millis() + HORIZON + SPREAD.0);
    media.set(plan.odds);
    let mut node = Node { flash: &flash, store: &store, media: &media, clock, plan, given: HashSet::new() };
    (0..plan.operations).for_each(|_| node.step(book, rng));
    flash.crash();
    let (log, mut replay, mut applied) = (media.log(), media.replay(), 0);
    let mut moments: Vec<usize> = (0..plan.crashes).map(|_| rng.usize(begun..=log.len())).collect();
    moments.sort_unstable();
    let last = rng.usize(0..moments.len());
    let mut next = None;
    for (number, moment) in moments.into_iter().enumerate() {
        log[applied..moment].iter().for_each(|event: &Event| replay.apply(event));
        applied = moment;
        let image = replay.image(rng);
        let crash = Crash { moment, unsynced: replay.cached(), log: &log, image: &image };
        clock.set_millis(clock.millis() + 5);
        let held = reopen::<S>(&crash, book, plan, clock);
        if number == last {
            let gone: BTreeMap<usize, Version> =
                (0..KEYS).map(|number| (number, book.sure(number, moment).0)).collect();
            next = Some((image, held, gone));
        }
    }
    let (image, held, gone) = next.expect("there are crashes");
    for (number, held) in held.into_iter().enumerate() {
        let change =
            |version, item| Change { version, item, begun: 0, sure: 0, failed: false, what: "the life before" };
        let held = held.map(|(serial, version)| change(version, Some(serial)));
        book.keys[number] = std::iter::once(change(gone[&number], None)).chain(held).collect();
    }
    image
}

fn plan() -> Plan {
    let odds = Odds { pause: Duration::from_micros(200), ..Odds::default() };
    Plan { regions: 40, operations: 700, lives: 3, crashes: 30, odds, may_miss: false }
}

#[test]
fn nothing_that_a_copy_deleted_or_flushed_comes_back() {
    live::<Alone>(&plan());
    live::<Below>(&Plan { lives: 2, ..plan() });
}

#[test]
fn nothing_that_a_copy_deleted_or_flushed_comes_back_while_regions_are_emptied() {
    live::<Alone>(&Plan { regions: 16, operations: 1800, may_miss: true, ..plan() });
    live::<Below>(&Plan { regions: 16, operations: 1800, lives: 2, may_miss: true, ..plan() });
}

#[test]
fn nothing_that_a_copy_deleted_or_flushed_comes_back_after_a_sync_that_failed() {
    let odds = Odds { writes: 300, syncs: 12, forgets: true, ..plan().odds };
    live::<Alone>(&Plan { odds, may_miss: true, ..plan() });
    live::<Below>(&Plan { odds, may_miss: true, lives: 2, ..plan() });
}
