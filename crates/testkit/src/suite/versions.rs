//! What versions order: writes of this store and of others, in any order of arrival, beside a model of versions.
//!
//! The model knows of each key the newest write, and of the store the flushes. Versions that the store makes itself are taken
//! from it, and must be above all that it knows of the key.

use std::collections::HashMap;
use std::sync::Arc;

use fastrand::Rng;
use moneta_store::request::{Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::versions::{Floor, Floors, Standing, Verdict, Versioning, digest};
use moneta_store::{
    Calls, Clock, Cursor, Deleted, ErrorKind, Expiry, ItemMeta, ItemRef, Key, Lookup, Origin, Put, Step, Store,
    StoreError, Value, Version, Walking, Written,
};

use super::options::{START, SuiteConfig};

const KEYS: usize = 10;
const OPERATIONS: usize = 1500;
const ROUNDS: u64 = 12;

/// The newest write of a key.
#[derive(Clone, Debug)]
enum Known {
    Item {
        version: Version,
        expiry: Expiry,
        flags: u32,
        value: Vec<u8>,
    },
    /// Deleted here, under a version between these; or elsewhere, where both are the same.
    Deleted {
        above: Version,
        below: Version,
    },
}

struct World<'s, S> {
    store: &'s S,
    clock: Arc<Clock>,
    rng: Rng,
    keys: HashMap<usize, Known>,
    floors: Floors,
}

/// Runs random writes in mode newer, among ordinary ones, on stores that `make` makes: they must be of a cluster, have ample
/// memory, and remember all deletes of two hours.
///
/// # Panics
/// If a store shows or answers something else than the model.
pub fn versions<S: Store>(make: impl Fn(SuiteConfig, Versioning, Arc<Clock>) -> S, seed: u64) {
    for round in 0..ROUNDS {
        let seed = seed.wrapping_add(round);
        let clock = Arc::new(Clock::manual(START));
        let config = SuiteConfig { memory: 64 << 20, value_max: 256 << 10 };
        let versioning = Versioning {
            origin: Origin::new(1, 1),
            salt: seed,
            cluster: true,
            tombstone_ttl: 7200,
            ..Versioning::default()
        };
        let store = make(config, versioning, Arc::clone(&clock));
        // From here on the store knows all deletes, whatever clock is meant.
        clock.advance_millis(versioning.skew_max);
        let (keys, floors) = (HashMap::new(), Floors::default());
        let mut world = World { store: &store, clock, rng: Rng::with_seed(seed), keys, floors };
        for number in 0..OPERATIONS {
            let operation = world.step();
            world.check_all(&format!("MONETA_SEED={seed}, operation {number}: {operation}"));
        }
        world.check_walk();
        world.check_marks_of_nothing();
        world.check_local_flush();
    }
}

fn wait<T>(step: Step<T>) -> Result<T, StoreError> {
    match step {
        Step::Done(ended) => ended,
        Step::Wait(pending) => pollster::block_on(pending),
    }
}

fn name(key: usize) -> String {
    format!("key {key}")
}

impl Known {
    fn newest(&self) -> Version {
        match self {
            Self::Item { version, .. } => *version,
            Self::Deleted { below, .. } => *below,
        }
    }
}

impl<S: Store> World<'_, S> {
    fn key<'n>(&self, name: &'n str) -> Key<'n> {
        Key::new(name.as_bytes(), self.store.seed())
    }

    fn now(&self) -> u32 {
        self.clock.now()
    }

    /// What a key shows, if anything.
    fn live(&self, key: usize) -> Option<(Version, Expiry, u32, &[u8])> {
        match self.keys.get(&key)? {
            Known::Item { version, expiry, flags, value }
                if !expiry.is_dead(self.now()) && !self.floors.takes(*version) =>
            {
                Some((*version, *expiry, *flags, value))
            }
            _ => None,
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = if self.rng.u8(0..20) == 0 { self.rng.usize(60_000..150_000) } else { self.rng.usize(0..40) };
        vec![self.rng.u8(..); length]
    }

    fn exptime(&mut self) -> Exptime {
        Exptime(if self.rng.u8(0..4) == 0 { self.rng.i64(1..60) } else { 0 })
    }

    fn next(&self, key: usize) -> Version {
        let name = name(key);
        Version(self.store.next_cas(&self.key(&name)))
    }

    fn step(&mut self) -> String {
        let key = self.rng.usize(0..KEYS);
        match self.rng.u8(0..100) {
            0..15 => self.set(key),
            15..22 => self.delete(key),
            22..28 => self.touch(key),
            28..32 => self.append(key),
            32..62 => self.put_newer(key),
            62..78 => self.bury(key),
            78..80 => self.put_ahead(key),
            80..82 => self.flush(),
            82..84 => self.floor(),
            84..96 => self.advance_by(|rng| rng.u64(1..900)),
            _ => self.advance_by(|rng| rng.u64(1000..30_000)),
        }
    }

    fn advance_by(&mut self, millis: impl FnOnce(&mut Rng) -> u64) -> String {
        let millis = millis(&mut self.rng);
        self.clock.advance_millis(millis);
        let waited = self.floors.pending;
        self.floors.settle(self.now());
        if waited.is_some() && self.floors.pending.is_none() {
            // What was stored before the second may go whatever its version is, and what is newer may stay.
            for key in 0..KEYS {
                if self.live(key).is_some() && self.shown(key).is_none() {
                    let newest = self.keys[&key].newest();
                    self.keys.insert(key, Known::Deleted { above: self.floors.bound, below: newest });
                }
            }
        }
        format!("{millis} ms pass")
    }

    fn note_stored(&mut self, key: usize, cas: u64, expiry: Expiry, flags: u32, value: Vec<u8>) {
        let version = Version(cas);
        let before = self.keys.get(&key).map_or(Version::ZERO, Known::newest);
        assert!(version > before, "{version:?} is not above {before:?}, of key {key}");
        assert!(version >= self.floors.bound, "{version:?} is below the last flush");
        self.keys.insert(key, Known::Item { version, expiry, flags, value });
    }

    fn set(&mut self, key: usize) -> String {
        let (name, value, exptime, flags) = (name(key), self.value(), self.exptime(), self.rng.u32(0..3));
        let request = Write { exptime, flags, ..Write::default() };
        match wait(self.store.set(&self.key(&name), &value, &request)) {
            Ok(Written::Stored { cas }) => {
                let expiry = Expiry::resolve(exptime, self.now());
                self.note_stored(key, cas, expiry, flags, value);
            }
            other => panic!("a set ended in {other:?}"),
        }
        format!("set of {name}")
    }

    fn append(&mut self, key: usize) -> String {
        let name = name(key);
        let request = Write { mode: WriteMode::Append, ..Write::default() };
        let written = wait(self.store.set(&self.key(&name), b"+", &request)).expect("an answer");
        match self.live(key).map(|(_, expiry, flags, value)| (expiry, flags, [value, b"+"].concat())) {
            None => assert_eq!(written, Written::NotStored, "append to {name}"),
            Some((expiry, flags, value)) => match written {
                Written::Stored { cas } => self.note_stored(key, cas, expiry, flags, value),
                other => panic!("an append to {name} ended in {other:?}"),
            },
        }
        format!("append to {name}")
    }

    fn delete(&mut self, key: usize) -> String {
        let name = name(key);
        let was_live = self.live(key).is_some();
        let above = self.next(key);
        let deleted = wait(self.store.delete(&self.key(&name), &Delete::default())).expect("an answer");
        assert_eq!(deleted == Deleted::Deleted, was_live, "a delete of {name} ended in {deleted:?}");
        let below = self.next(key);
        self.keys.insert(key, Known::Deleted { above, below });
        format!("delete of {name}")
    }

    /// A touch that shortens a life is a new version; one that lengthens it is not.
    fn touch(&mut self, key: usize) -> String {
        let (name, exptime) = (name(key), self.exptime());
        let request = Retrieve { touch: Some(exptime), ..Retrieve::default() };
        let found = wait(self.store.get(&self.key(&name), &request, &mut |_: &ItemRef<'_>| {})).expect("an answer");
        let expiry = Expiry::resolve(exptime, self.now());
        let Some((version, before, flags, value)) = self.live(key) else {
            assert!(matches!(found, Lookup::Miss { .. }), "a touch of {name} ended in {found:?}");
            return format!("touch of {name}");
        };
        let (value, moment) = (value.to_vec(), |expiry: Expiry| if expiry.0 == 0 { u32::MAX } else { expiry.0 });
        let now = self.shown(key).unwrap_or_else(|| panic!("{name} is gone after a touch")).0.version();
        if moment(expiry) < moment(before) {
            assert!(now > version, "a shorter life of {name} is not a new version");
            self.note_stored(key, now.0, expiry, flags, value);
        } else {
            assert_eq!(now, version, "a longer life of {name} is a new version");
            self.keys.insert(key, Known::Item { version, expiry, flags, value });
        }
        format!("touch of {name} to {}", exptime.0)
    }

    /// A version that another copy could have made, most often lately.
    fn foreign_version(&mut self, key: usize) -> Version {
        if let Some(known) = self.keys.get(&key).filter(|_| self.rng.u8(0..4) == 0) {
            return match known {
                Known::Item { version, .. } => *version,
                Known::Deleted { above, below } if above == below => *below,
                Known::Deleted { above, .. } => Version(above.0.max(2) - 1),
            };
        }
        let millis = self.clock.millis() + 400 - self.rng.u64(0..3000).min(self.rng.u64(0..3000));
        Version(Version::at(millis).0 | self.rng.u64(0..1 << 14) << 8 | 0x21)
    }

    /// How a write stands to what is known; `None` if that cannot be told.
    fn verdict(&self, key: usize, written: &Standing, version: Version) -> Option<Verdict> {
        if self.floors.takes(version) {
            return Some(Verdict::Older);
        }
        match self.keys.get(&key) {
            // What a flush took is as if it had never been.
            Some(known) if self.floors.takes(known.newest()) => Some(Verdict::Newer),
            Some(Known::Deleted { above, below }) if above != below => (version <= *above || version > *below)
                .then_some(match version > *below {
                    true => Verdict::Newer,
                    false => Verdict::Older,
                }),
            Some(Known::Deleted { below, .. }) => Some(written.against(&Standing::Deleted(*below))),
            Some(Known::Item { version, expiry, flags, value }) => {
                let meta = ItemMeta { flags: *flags, ..ItemMeta::default() };
                let digest = digest(&meta, [&value[..]]);
                Some(written.against(&Standing::Item { version: *version, expiry: *expiry, digest }))
            }
            None => Some(Verdict::Newer),
        }
    }

    fn put_newer(&mut self, key: usize) -> String {
        let (name, version) = (name(key), self.foreign_version(key));
        let same = match self.keys.get(&key) {
            Some(Known::Item { version: known, value, flags, expiry }) if *known == version && self.rng.bool() => {
                Some((value.clone(), *flags, *expiry))
            }
            _ => None,
        };
        let (value, flags, expiry) = same.unwrap_or_else(|| {
            let (value, exptime) = (self.value(), self.exptime());
            (value, self.rng.u32(0..3), Expiry::resolve(exptime, self.now()))
        });
        let meta = ItemMeta { flags, cas: version.0, expiry, ..ItemMeta::default() };
        let standing = Standing::Item { version, expiry, digest: digest(&meta, [&value[..]]) };
        let operation = format!("put of {name} as {version:?}, {} bytes, {expiry:?}", value.len());
        let Some(verdict) = self.verdict(key, &standing, version) else { return format!("no {operation}") };
        // The store knows no deletes from before its start. It replaces what is there all the same.
        let is_old = self.rng.u8(0..10) == 0 && (self.live(key).is_some() || !self.keys.contains_key(&key));
        let as_of = if is_old { u64::from(START) * 1000 - 1 } else { self.clock.millis() };
        let item = ItemRef { meta, value: Value::whole(&value) };
        let base = self.base(key, version);
        let put = self.store.put(&self.key(&name), &item, Put::Newer { as_of, base });
        let operation = format!("{operation} from {base:?}");
        let written = wait(put).expect("an answer");
        // The version that won is told, if at all: as far as it is known.
        let superseded = match written {
            Written::Superseded { by } => {
                assert!(
                    by == Version::ZERO || by >= version || base.is_some_and(|base| by > base || base == Version::ZERO),
                    "{operation}: superseded by {by:?}"
                );
                written
            }
            _ => Written::Superseded { by: Version::ZERO },
        };
        let expected = match verdict {
            Verdict::Older => superseded,
            Verdict::Newer if !self.stands_on(key, base) => superseded,
            Verdict::Newer if is_old && self.live(key).is_none() => Written::NotStored,
            Verdict::Newer => Written::Stored { cas: version.0 },
            Verdict::Same => Written::Unchanged { cas: version.0 },
        };
        // What has died may be forgotten, and is then stored anew; a protocol may call both stored.
        let written = if verdict == Verdict::Same && written == (Written::Stored { cas: version.0 }) {
            expected
        } else {
            written
        };
        assert_eq!(written, expected, "{operation} over {:?}, as of {as_of}", self.keys.get(&key));
        if matches!(expected, Written::Stored { .. } | Written::Unchanged { .. }) {
            self.keys.insert(key, Known::Item { version, expiry, flags, value });
        }
        operation
    }

    /// A version that a write could say it was made from: any, that of what is there, one below that, or nothing.
    fn base(&mut self, key: usize, version: Version) -> Option<Version> {
        let live = self.live(key).map(|live| live.0);
        match self.rng.u8(0..6) {
            0 => live.map(|live| live.min(version.just_below())),
            1 => live.map(Version::just_below).filter(|base| *base > Version::ZERO),
            2 => Some(Version::ZERO),
            3 => Some(version.just_below()),
            _ => None,
        }
    }

    /// Whether a write that was made from `base` stands on what the key has, as far as that is known.
    fn stands_on(&self, key: usize, base: Option<Version>) -> bool {
        let live = self.live(key).map(|live| live.0);
        let Some(base) = base else { return true };
        if self.floors.takes_write(Version(u64::MAX), Some(base)) {
            return false;
        }
        match (live, self.keys.get(&key)) {
            (Some(live), _) => base != Version::ZERO && live <= base,
            (None, Some(Known::Deleted { below, .. })) if !self.floors.takes(*below) => {
                base == Version::ZERO || *below <= base
            }
            _ => true,
        }
    }

    fn bury(&mut self, key: usize) -> String {
        let (name, version) = (name(key), self.foreign_version(key));
        let operation = format!("delete of {name} as {version:?}");
        let Some(verdict) = self.verdict(key, &Standing::Deleted(version), version) else {
            return format!("no {operation}");
        };
        let was_live = self.live(key).is_some();
        let deleted = wait(self.store.bury(&self.key(&name), version)).expect("an answer");
        match verdict {
            Verdict::Older | Verdict::Same => {
                let is_told = matches!(deleted, Deleted::Superseded { by } if by == Version::ZERO || by >= version);
                assert!(is_told, "{operation} over {:?}: {deleted:?}", self.keys.get(&key));
            }
            _ => {
                let is_superseded = matches!(deleted, Deleted::Superseded { .. });
                assert!(!is_superseded, "{operation} over {:?}", self.keys.get(&key));
                assert!(deleted == Deleted::Deleted || !was_live, "{operation} ended in {deleted:?}");
                self.keys.insert(key, Known::Deleted { above: version, below: version });
            }
        }
        operation
    }

    fn put_ahead(&mut self, key: usize) -> String {
        let name = name(key);
        let version = Version::at(self.clock.millis() + 502);
        let item = ItemRef { meta: ItemMeta { cas: version.0, ..ItemMeta::default() }, value: Value::whole(b"ahead") };
        let put = wait(self.store.put_newer(&self.key(&name), &item, self.clock.millis()));
        assert_eq!(put.map_err(|error| error.kind()), Err(ErrorKind::ClockAhead), "put of {name} half a second ahead");
        let buried = wait(self.store.bury(&self.key(&name), version));
        assert_eq!(buried.map_err(|error| error.kind()), Err(ErrorKind::ClockAhead));
        format!("put of {name} too far ahead")
    }

    /// A flush of a client of this store.
    fn flush(&mut self) -> String {
        let delay = Exptime(if self.rng.bool() { 0 } else { self.rng.i64(1..40) });
        let above = self.next(0);
        wait(self.store.flush(delay)).expect("a flush");
        let floors = self.store.floors();
        assert!(floors.newest > above, "the flush has a version that is not new: {floors:?}");
        let floor = Floor::new(floors.newest, Expiry::resolve(delay, self.now()), self.now());
        assert!(self.floors.note(floor, self.now()));
        assert_eq!(self.floors.pending, floors.pending);
        format!("flush in {} s", delay.0)
    }

    /// A flush of a client of another copy.
    fn floor(&mut self) -> String {
        let version = self.foreign_version(0);
        if self.keys.values().any(|known| known.newest().local() == version.local()) {
            return "no flush: two clocks made it in one moment with a write".into();
        }
        let moment = if self.rng.bool() { Expiry(0) } else { Expiry(self.now() + self.rng.u32(0..40)) };
        let floor = Floor::new(version, moment, Version::millis(version).div_euclid(1000) as u32);
        wait(self.store.floor(floor)).expect("a flush");
        let before = self.floors.bound;
        self.floors.note(floor, self.now());
        for key in (0..KEYS).filter(|_| self.floors.bound < before) {
            // It undid one that had taken effect: what that took may be gone all the same, and be remembered as deleted or not.
            let taken = self.keys.get(&key).map(Known::newest).filter(|newest| *newest < before);
            if let Some(newest) = taken.filter(|_| self.shown(key).is_none()) {
                self.keys.insert(key, Known::Deleted { above: self.floors.bound, below: newest });
            }
        }
        format!("{floor:?} from elsewhere")
    }

    /// What the store shows of a key.
    fn shown(&self, key: usize) -> Option<(ItemMeta, Vec<u8>)> {
        let (name, mut seen) = (name(key), None);
        let found = wait(self.store.peek(&self.key(&name), &mut |item: &ItemRef<'_>| {
            seen = Some((item.meta, item.value.to_vec()));
        }));
        match found.expect("an answer") {
            Lookup::Found(item) => Some((item.meta, item.value.into_vec())),
            Lookup::Visited => seen,
            Lookup::Miss { .. } => None,
        }
    }

    fn check_all(&self, what: &str) {
        for key in 0..KEYS {
            let shown = self.shown(key).map(|(meta, value)| (meta.version(), meta.expiry, meta.flags, value));
            let known = self.live(key).map(|(version, expiry, flags, value)| (version, expiry, flags, value.to_vec()));
            assert!(
                shown == known,
                "{what}: key {key} shows {:?}, and the newest write is {:?} with flushes {:?}",
                shown.as_ref().map(|shown| (shown.0, shown.1, shown.2, shown.3.len())),
                self.keys.get(&key).map(|known| (known.newest(), matches!(known, Known::Item { .. }))),
                self.floors
            );
        }
    }

    /// A mark of what is not here, and a delete on a condition, are no deletes: no other copy is told of one, so it must keep
    /// nothing out that others hold. (A log tells what it writes down.)
    fn check_marks_of_nothing(&mut self) {
        if self.store.parts().feed.is_some() {
            return;
        }
        let mark = Delete { invalidate: true, ..Delete::default() };
        let requests = [mark, Delete { drop_value: true, ..mark }, Delete { compare: Some(5), ..Delete::default() }];
        for (number, request) in requests.iter().enumerate() {
            let name = format!("nothing {number}");
            let key = Key::new(name.as_bytes(), self.store.seed());
            let version = Version(self.store.next_cas(&key));
            let deleted = wait(self.store.delete(&key, request)).expect("an answer");
            assert_eq!(deleted, Deleted::NotFound, "{request:?}");
            let item = ItemRef { meta: ItemMeta { cas: version.0, ..ItemMeta::default() }, value: Value::whole(b"x") };
            let put = wait(self.store.put_newer(&key, &item, self.clock.millis()));
            assert!(matches!(put, Ok(Written::Stored { .. })), "{put:?} behind {request:?} of nothing");
            assert_eq!(wait(self.store.delete(&key, &Delete::default())).expect("an answer"), Deleted::Deleted);
        }
    }

    /// A flush of this copy alone takes everything, and other copies can give it back.
    fn check_local_flush(&mut self) {
        let key = Key::new(b"given back", self.store.seed());
        // No flush waits any more.
        self.clock.advance_millis(41_000);
        self.floors.settle(self.now());
        let version = self.next(0);
        let item = ItemRef { meta: ItemMeta { cas: version.0, ..ItemMeta::default() }, value: Value::whole(b"x") };
        let before = self.clock.millis();
        let put = |as_of| wait(self.store.put_newer(&key, &item, as_of)).expect("an answer");
        assert!(matches!(put(before), Written::Stored { .. }));
        let floors = self.store.floors();
        wait(self.store.floor(Floor::local(version))).expect("a flush");
        assert_eq!(self.store.floors(), floors, "a flush that others are not told of is known as one");
        assert!((0..KEYS).all(|key| self.shown(key).is_none()), "an item is left");
        assert!(matches!(put(before), Written::NotStored), "deletes from before the flush may be forgotten");
        self.clock.advance_millis(2 * Versioning::default().skew_max + 1);
        let again = put(self.clock.millis());
        assert!(matches!(again, Written::Stored { .. }), "another copy cannot give it back: {again:?}, {floors:?}");
    }

    /// Walks show what lives, and no tombstones.
    fn check_walk(&self) {
        let mut shown: Vec<String> = Vec::new();
        let mut cursor = Cursor::default();
        loop {
            let show =
                &mut |item: &moneta_store::Walked<'_>| shown.push(String::from_utf8_lossy(item.key).into_owned());
            match self.store.walk(&mut cursor, show) {
                Walking::More => {}
                Walking::End => break,
                Walking::Wait(pending) => pollster::block_on(pending).expect("a walk"),
            }
        }
        shown.sort_unstable();
        shown.dedup();
        let mut live: Vec<String> = (0..KEYS).filter(|key| self.live(*key).is_some()).map(name).collect();
        live.sort_unstable();
        assert_eq!(shown, live);
    }
}
