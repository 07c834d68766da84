//! Three regions of two copies each that relay to each other, simulated: stores and feeds are the shipped ones, and so are the relay's
//! pump, its marks, what is kept of its progress, and what it makes of a change. Copies are away and get what they missed late, relays
//! are killed and go on at another copy, changes arrive twice, and long after. Clocks are two seconds apart, and a region may lose
//! all that it has. After a gap and a switch a repair follows. No version falls but by such a loss. At rest all agree, and what was
//! deleted everywhere lives nowhere. A seed repeats a run (`MONETA_SEED`), and without any of the guards some seed fails. How old a
//! change counts is tested beside `dated.rs`: here a repair mends what it would break.

mod carrying;
mod region;

use fastrand::Rng;
use moneta_feed::Change;
use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::steps::finish;
use moneta_store::{Calls, ErrorKind, Item, ItemRef, Key, Store, Version};

use crate::carrying::{Carrier, margin};
use crate::region::Region;

const REGIONS: usize = 3;
/// Copies of a region: zones.
const COPIES: usize = 2;
const KEYS: usize = 6;
const START: u64 = 1_790_000_000_000;
/// How far apart the clocks are.
const APART: u64 = 2_000;
/// What comes out of a connection may have been read so much later than the last mark said, in milliseconds.
const MARKS: u64 = 5_000;
const SEEDS: u64 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    None,
    /// What was touched elsewhere is left out, as a filter by region alone would.
    Touches,
    /// Deletes are not carried.
    Deletes,
    /// What arrives takes the place of whatever is there.
    Versions,
    /// Another copy is read from where the last one was, and no repair follows.
    Margin,
    /// A mark counts once it is read, and not once all before it has ended.
    Settled,
}

/// A change that arrives once more, long after.
struct Late {
    to: usize,
    change: Change,
}

/// A delete that was made, and which copies have taken it.
struct Deleted {
    key: usize,
    version: Version,
    taken: [[bool; COPIES]; REGIONS],
}

struct World {
    regions: Vec<Region>,
    carriers: Vec<Carrier>,
    late: Vec<Late>,
    random: Rng,
    guard: Guard,
    now: u64,
    /// What is late is later than in others.
    is_slow: bool,
    /// A version that fell.
    fell: Option<String>,
    /// What was made there after a switch may be missing elsewhere for good: a repair creates nothing.
    may_lack: bool,
    deletes: Vec<Deleted>,
}

fn name(key: usize) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

impl World {
    fn new(seed: u64, guard: Guard) -> Self {
        let mut random = Rng::with_seed(seed);
        let ahead = |number: usize| START + APART * number as u64 / (REGIONS as u64 - 1);
        let regions: Vec<Region> = (0..REGIONS).map(|number| Region::new(number, ahead(number), &mut random)).collect();
        let pairs = (0..REGIONS).flat_map(|from| (0..REGIONS).map(move |to| (from, to)));
        let carriers = pairs.filter(|(from, to)| from != to).map(|(from, to)| Carrier::new(from, to, ahead(from)));
        let carriers = carriers.collect();
        let (late, deletes) = (Vec::new(), Vec::new());
        let is_slow = seed % 4 == 1 && guard != Guard::Margin;
        Self { regions, carriers, late, random, guard, now: START, is_slow, fell: None, may_lack: false, deletes }
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        self.regions.iter().for_each(|region| region.clock.advance_millis(millis));
    }

    fn step(&mut self, loses: bool) {
        let (at, key) = (self.random.usize(0..REGIONS), self.random.usize(0..KEYS));
        let carrier = self.random.usize(0..self.carriers.len());
        match self.random.u8(0..100) {
            0..28 => self.write(at, key),
            28..55 => {
                let lines = if self.random.bool() { usize::MAX } else { self.random.usize(1..12) };
                self.read(carrier, lines);
            }
            55..65 if self.is_slow && self.random.u8(0..8) != 0 => {}
            55..65 => self.bring(at),
            65..70 => self.arrive_late(),
            70..76 => self.carriers[carrier].keep(),
            76..80 => self.carriers[carrier].restart(self.guard),
            80..84 => self.goes_or_comes(at),
            91..97 if self.is_slow => {
                let millis = self.random.u64(20_000..120_000);
                self.pass(millis);
            }
            84..97 => {
                let millis = self.random.u64(1..1500);
                self.pass(millis);
            }
            // Without the margin all that is late is late by less than that: for more it would not help.
            97..99 if self.guard != Guard::Margin => {
                let millis = self.random.u64(20_000..120_000);
                self.pass(millis);
            }
            _ if loses && self.random.u8(0..2) == 0 => {
                self.regions[at].lose(&mut self.random);
            }
            _ => {}
        }
    }

    /// Takes note of the versions that a region has.
    fn look(&mut self, at: usize) {
        if let Some((copy, key, from, to)) = self.regions[at].fallen() {
            let fell = format!("key {key} on copy {copy} of region {at}: its version fell from {from} to {to}");
            self.fell.get_or_insert(fell);
        }
        for deleted in &mut self.deletes {
            for copy in 0..COPIES {
                deleted.taken[at][copy] |= self.regions[at].buried(copy, deleted.key) >= deleted.version;
            }
        }
    }

    fn write(&mut self, at: usize, key: usize) {
        let Some(home) = self.regions[at].there().next() else { return };
        let (store, before) = (self.regions[at].copies[home].store.clone(), self.regions[at].copies[home].end());
        let name = name(key);
        let named = Key::new(&name, store.seed());
        let value = self.random.u32(..).to_string();
        let exptime = Exptime(self.random.i64(5_000..50_000));
        match self.random.u8(0..10) {
            0..5 => {
                let request = Write { exptime, ..Write::default() };
                pollster::block_on(finish(store.set(&named, value.as_bytes(), &request))).expect("RAM takes it");
            }
            5..8 => {
                let request = Retrieve { touch: Some(exptime), bump: true, ..Retrieve::default() };
                let touch = store.get(&named, &request, &mut |_: &ItemRef<'_>| {});
                pollster::block_on(finish(touch)).expect("RAM answers");
            }
            _ => {
                pollster::block_on(finish(store.delete(&named, &Delete::default()))).expect("RAM takes it");
                if let Some(Change::Delete { version, .. }) = self.regions[at].copies[home].told_since(before).pop() {
                    self.deletes.push(Deleted { key, version, taken: Default::default() });
                }
            }
        }
        self.regions[at].spread(home, before, &mut self.random);
        self.look(at);
    }

    /// A relay reads on. Where the copy is away, it goes on at another one, if that is there.
    fn read(&mut self, number: usize, lines: usize) {
        let (guard, from, to) = (self.guard, self.carriers[number].from, self.carriers[number].to);
        let copy = self.carriers[number].copy;
        if self.regions[from].copies[copy].is_away {
            let Some(other) = self.regions[from].there().next() else { return };
            let whole = self.carriers[number].whole();
            // What it lacked for longer than is read again, a repair finds where something older is.
            let lacks_long = |since: u64| since < whole.saturating_sub(margin());
            self.may_lack |= self.regions[from].lacks_since(copy).is_some_and(lacks_long);
            let due = self.carriers[number].due;
            self.carriers[number].switch(other, guard);
            if guard == Guard::Margin {
                self.carriers[number].due = due;
            }
        }
        let read = self.carriers[number].read(&mut self.regions, lines, guard, &mut self.random);
        for change in read.applied {
            if self.random.u8(0..8) == 0 {
                self.late.push(Late { to, change });
            }
        }
        self.look(to);
    }

    fn bring(&mut self, at: usize) {
        if !self.regions[at].hints.is_empty() {
            let number = self.random.usize(0..self.regions[at].hints.len());
            self.regions[at].bring(number);
            self.look(at);
        }
    }

    fn arrive_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let Late { to, change } = self.late.swap_remove(self.random.usize(0..self.late.len()));
        self.regions[to].apply(&change);
        self.look(to);
    }

    /// A copy goes away, or comes back. One of each region is always there.
    fn goes_or_comes(&mut self, at: usize) {
        let copy = self.random.usize(0..COPIES);
        let copies = &mut self.regions[at].copies;
        let is_last = (0..COPIES).all(|other| other == copy || copies[other].is_away);
        copies[copy].is_away = !copies[copy].is_away && !is_last;
    }

    fn rest(&mut self) {
        self.regions.iter_mut().flat_map(|region| &mut region.copies).for_each(|copy| copy.is_away = false);
        for _ in 0..40 {
            self.pass(1_000);
            for at in 0..REGIONS {
                (0..self.regions[at].hints.len()).rev().for_each(|number| self.regions[at].bring(number));
                self.look(at);
            }
            (0..self.carriers.len()).for_each(|number| self.read(number, usize::MAX));
            while !self.late.is_empty() {
                self.arrive_late();
            }
        }
        let has_lost = self.regions.iter().any(|region| region.has_lost);
        for number in 0..self.carriers.len() {
            if self.carriers[number].due.is_some() || has_lost {
                self.repair(number);
            }
        }
    }

    /// As a gap or a switch starts one: of two versions the newer is copied, what one side has deleted goes from the other one, and
    /// nothing is created.
    fn repair(&mut self, number: usize) {
        let Carrier { from, to, copy, due, .. } = self.carriers[number];
        let since = due.unwrap_or(0);
        for key in 0..KEYS {
            let Some(item) = self.regions[from].copies[copy].held(key) else { continue };
            let version = item.meta.version();
            if version.millis() < since && !self.regions[from].has_lost && !self.regions[to].has_lost {
                continue;
            }
            let name = name(key);
            for other in 0..COPIES {
                let there = &self.regions[to].copies[other];
                let named = Key::new(&name, there.store.seed());
                if there.held(key).is_some() {
                    match pollster::block_on(finish(there.store.put_newer(&named, &item.as_ref(), 1))) {
                        Ok(_) => {}
                        // Without the guard of versions some are ahead: then the regions differ.
                        Err(error) if error.kind() == ErrorKind::ClockAhead => {}
                        Err(error) => panic!("{error}"),
                    }
                    continue;
                }
                let buried = self.regions[to].buried(other, key);
                if buried >= version {
                    for copy in &self.regions[from].copies {
                        let bury = copy.store.bury(&named, buried);
                        pollster::block_on(finish(bury)).expect("RAM takes it");
                    }
                }
            }
        }
        self.look(to);
    }

    /// What is wrong at rest.
    fn wrong(&self) -> Option<String> {
        if self.fell.is_some() {
            return self.fell.clone();
        }
        let is_whole = !self.may_lack && self.regions.iter().all(|region| !region.has_lost);
        for key in 0..KEYS {
            let copies = self.regions.iter().flat_map(|region| &region.copies);
            let held: Vec<Option<Item>> = copies.map(|copy| copy.held(key)).collect();
            let shown = |item: &Item| (item.meta.version(), item.meta.expiry.0, item.value.clone().into_vec());
            let mut different: Vec<_> = held.iter().flatten().map(shown).collect();
            different.sort();
            different.dedup();
            let lacking = held.iter().filter(|held| held.is_none()).count();
            if different.len() > 1 || is_whole && !different.is_empty() && lacking > 0 {
                return Some(format!("key {key}: {different:?}, {lacking} without it"));
            }
            let all_took = |deleted: &&Deleted| deleted.taken.iter().flatten().all(|taken| *taken);
            if let Some((version, ..)) = different.first()
                && let Some(deleted) = self
                    .deletes
                    .iter()
                    .filter(all_took)
                    .find(|deleted| deleted.key == key && deleted.version >= *version)
            {
                return Some(format!("key {key}: {version:?} lives, which all have deleted by {:?}", deleted.version));
            }
        }
        None
    }
}

fn wrong_in(seed: u64, guard: Guard) -> Option<String> {
    let mut world = World::new(seed, guard);
    let loses = seed.is_multiple_of(2);
    let steps = world.random.usize(60..400);
    (0..steps).for_each(|_| world.step(loses));
    world.rest();
    world.wrong()
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_125u64);
    first..first + count
}

#[test]
fn at_rest_all_regions_agree_and_nothing_deleted_lives() {
    for seed in seeds(SEEDS) {
        assert_eq!(wrong_in(seed, Guard::None), None, "MONETA_SEED={seed}");
    }
}

#[test]
fn without_any_of_the_guards_some_seed_fails() {
    use Guard::{Deletes, Margin, Settled, Touches, Versions};
    for guard in [Touches, Deletes, Versions, Margin, Settled] {
        let failing = seeds(2 * SEEDS).find_map(|seed| Some((seed, wrong_in(seed, guard)?)));
        let (seed, wrong) = failing.unwrap_or_else(|| panic!("nothing fails without {guard:?}"));
        println!("without {guard:?} seed {seed} fails: {wrong}");
    }
}
