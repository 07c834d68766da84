//! Copies of one another by their feeds, simulated: whatever is written where, and however late, twice or out of order the
//! changes arrive, at rest all copies hold the same. A seed repeats a run, and taking out a guard makes some seed fail. Clocks
//! are a little apart; in some runs the nodes make the same versions, and in some the clock of one is wrong by seconds.

mod elsewhere;

use std::sync::Arc;

use fastrand::Rng;
use moneta_layers::feed::Feed;
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::feed::{Batch, Change, FeedPlace, Recorded, Wanted};
use moneta_store::holding::{Held, held};
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::versions::Versioning;
use moneta_store::{
    Calls, Clock, Component, Cx, ErrorKind, Item, ItemRef, Key, KeyHash, Lookup, Origin, StoreError, Version, Written,
};
use moneta_testkit::suite;

const COPIES: usize = 3;
const KEYS: usize = 5;
const START: u64 = 1_700_000_000_000;
const SEEDS: u64 = 1000;

/// What the simulated readers and nodes leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// Nothing: all guards are there.
    None,
    /// Sets arrive as if their value had been looked up at their arrival.
    AsOf,
    /// Flushes stay where they were commanded.
    Floors,
    /// Deletes are not told.
    Deletes,
    /// Nodes do not know that they are copies: a delete leaves nothing behind.
    VersionedDeletes,
    /// What is told to be deleted goes, and nothing of that is remembered.
    Tombstones,
    /// What has the version of what is there is taken for the same.
    TieBreak,
    /// Versions are taken however far ahead of the clock they are.
    SkewBound,
}

/// What is out of the ordinary in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// All nodes have one origin, one clock and one salt: they make the same versions.
    Twins,
    /// The clock of the last node is ahead by this many milliseconds.
    Ahead(u64),
}

/// How far ahead of its clock a node takes versions, in milliseconds.
const SKEW_MAX: u64 = 500;
/// Writes this far apart, in milliseconds, are told apart by nodes with right clocks.
const APART: u64 = 1500;

/// One copy.
struct Node {
    store: Feed<Memory>,
    clock: Arc<Clock>,
    /// The newest version that each key has shown since the node started, or a flush was taken back.
    shown: [Version; KEYS],
}

/// A change on its way.
struct Message {
    to: usize,
    change: Told,
    /// When the sender looked the value up.
    as_of: u64,
    /// It was sent before: it may come at any time, or much later.
    again: bool,
}

enum Told {
    Set(usize, Item),
    Deleted(usize, Version),
    Flushed(moneta_store::versions::Floor),
}

struct World {
    nodes: Vec<Node>,
    /// How far `[from][to]` was read.
    read: [[FeedPlace; COPIES]; COPIES],
    under_way: Vec<Message>,
    rng: Rng,
    guard: Guard,
    kind: Kind,
    /// The right time, in milliseconds since the Unix epoch.
    now: u64,
    /// The last set of each key at a node with a right clock: when, and its version.
    written: [(u64, Version); KEYS],
    wrong: Option<String>,
}

fn name(key: usize) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

fn number(name: &[u8]) -> usize {
    usize::from(name[name.len() - 1] - b'0')
}

fn node(origin: Origin, clock: &Arc<Clock>, guard: Guard, salt: u64) -> Node {
    let versioning = Versioning {
        origin,
        skew_max: SKEW_MAX,
        salt,
        cluster: guard != Guard::VersionedDeletes,
        tombstone_ttl: 20,
        ..Versioning::default()
    };
    let config = MemoryConfig {
        limit: 16 << 20,
        item_max: 1 << 10,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: KeyHash::seeded(0),
        versioning,
    };
    let memory = Memory::new(&config, Arc::clone(clock)).expect("a possible configuration");
    let store = Feed::new(memory, 1 << 20, Arc::clone(clock));
    Node { store, clock: Arc::clone(clock), shown: [Version::ZERO; KEYS] }
}

impl Kind {
    fn origin(self, number: usize) -> Origin {
        Origin::new(if self == Self::Twins { 0 } else { number as u8 }, 0)
    }

    fn salt(self, rng: &mut Rng) -> u64 {
        let salt = rng.u64(..);
        if self == Self::Twins { 7 } else { salt }
    }
}

impl Told {
    fn version(&self) -> Version {
        match self {
            Self::Set(_, item) => item.meta.version(),
            Self::Deleted(_, version) => *version,
            Self::Flushed(floor) => floor.version,
        }
    }
}

impl Node {
    fn peek(&self, key: usize) -> Option<Item> {
        let name = name(key);
        let mut seen = None;
        let key = Key::new(&name, KeyHash::seeded(0));
        let lookup = self.store.peek(&key, &mut |item: &ItemRef<'_>| seen = Some(Item::copy(item)));
        match lookup.now().expect("RAM answers") {
            Lookup::Found(item) => Some(item),
            _ => seen,
        }
    }
}

impl World {
    fn new(seed: u64, guard: Guard) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kind = match rng.u8(0..4) {
            0 => Kind::Twins,
            1 => Kind::Ahead(rng.u64(2000..8000)),
            _ => Kind::Plain,
        };
        let nodes: Vec<Node> = (0..COPIES)
            .map(|number| {
                let clock = Arc::new(Clock::manual(0));
                clock.set_millis(match kind {
                    Kind::Twins => START,
                    Kind::Ahead(millis) if number == COPIES - 1 => START + millis,
                    // Clocks are up to 400 ms apart.
                    Kind::Ahead(_) | Kind::Plain => START + rng.u64(0..400),
                });
                node(kind.origin(number), &clock, guard, kind.salt(&mut rng))
            })
            .collect();
        let read = std::array::from_fn(|from| [feed(&nodes[from]).end(); COPIES]);
        let written = [(START, Version::ZERO); KEYS];
        Self { nodes, read, under_way: Vec::new(), rng, guard, kind, now: START, written, wrong: None }
    }

    fn step(&mut self) {
        let (node, key) = (self.rng.usize(0..COPIES), self.rng.usize(0..KEYS));
        match self.rng.u8(0..100) {
            0..40 => self.write(node, key),
            40..65 => self.read_feed(node),
            65..90 => self.deliver(),
            90..97 => {
                // More often where the clock of a node is wrong: what it writes then reaches some nodes before others.
                let often = if self.kind == Kind::Plain || self.kind == Kind::Twins { 2 } else { 8 };
                if self.rng.u8(0..often) > 0 {
                    let millis = self.rng.u64(1..900);
                    return self.pass(millis);
                }
                // No reader is away for longer than deletes are remembered. What arrives again may be under way for longer.
                self.read_all();
                let millis = self.rng.u64(5000..12_000);
                self.pass(millis);
                self.read_all();
            }
            97 if self.kind != Kind::Twins => {
                // A clock that is set back by some seconds: what its node makes goes on from what it made.
                let clock = &self.nodes[node].clock;
                let back = self.rng.u64(0..100);
                clock.set_millis(clock.millis() - back);
            }
            _ if self.rng.u8(0..4) == 0 => self.restart(node),
            _ => {}
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        self.nodes.iter().for_each(|node| node.clock.advance_millis(millis));
    }

    /// A set was answered: of two that are well apart the later one must be the newer one, whatever the clock of another node.
    fn note_set(&mut self, node: usize, key: usize, cas: u64) {
        if matches!(self.kind, Kind::Ahead(_)) && node == COPIES - 1 {
            return;
        }
        let (then, before) = std::mem::replace(&mut self.written[key], (self.now, Version(cas)));
        if self.now >= then + APART && Version(cas) <= before {
            self.wrong = Some(format!("key {key} was written {} ms later under an older version", self.now - then));
        }
    }

    /// A client's write of any kind.
    fn write(&mut self, node: usize, key: usize) {
        let name = name(key);
        let key = Key::new(&name, KeyHash::seeded(0));
        let store = &self.nodes[node].store;
        let value = self.rng.u16(..).to_string().into_bytes();
        let exptime = Exptime(if self.rng.u8(0..5) == 0 { self.rng.i64(1..40) } else { 0 });
        let write = |mode| Write { mode, exptime, ..Write::default() };
        match self.rng.u8(0..22) {
            0..8 => {
                if let Ok(Written::Stored { cas }) = store.set(&key, &value, &write(WriteMode::Set)).now() {
                    self.note_set(node, number(&name), cas);
                }
            }
            8 => drop(store.set(&key, &value, &write(WriteMode::Add)).now()),
            9 => drop(store.set(&key, b"1", &write(WriteMode::Append)).now()),
            10 => {
                let request = Arithmetic { delta: 3, ..Arithmetic::default() };
                drop(store.arithmetic(&key, &request).now());
            }
            11..16 => drop(pollster::block_on(finished(store.delete(&key, &Delete::default())))),
            16 => drop(store.delete(&key, &Delete { invalidate: true, ..Delete::default() }).now()),
            17..20 => {
                let request = Retrieve { touch: Some(exptime), ..Retrieve::default() };
                drop(store.get(&key, &request, &mut |_: &ItemRef<'_>| {}).now());
            }
            20 => {
                if let Some(item) = self.nodes[node].peek(number(&name)) {
                    let request = Delete { compare: Some(item.meta.cas), ..Delete::default() };
                    drop(pollster::block_on(finished(store.delete(&key, &request))));
                }
            }
            _ if self.rng.u8(0..4) == 0 => {
                let delay = Exptime(if self.rng.bool() { 0 } else { self.rng.i64(1..10) });
                drop(pollster::block_on(finished(store.flush(delay))));
            }
            _ => {}
        }
    }

    /// Another node reads on in the feed of `from`; what it is told is then on its way.
    fn read_feed(&mut self, from: usize) {
        let to = (from + self.rng.usize(1..COPIES)) % COPIES;
        let batch = batch_of(&self.nodes[from], self.read[from][to], self.rng.usize(1..8));
        for change in batch.entries.iter().map(|entry| &entry.recorded) {
            let twice = self.rng.u8(0..8) == 0;
            self.send(from, to, change, false);
            if twice {
                self.send(from, to, change, true);
            }
        }
        // Now and then the reader is lost before it wrote down how far it came.
        if self.rng.u8(0..6) != 0 {
            self.read[from][to] = batch.next;
        }
    }

    /// Every reader comes to the end of what it reads.
    fn read_all(&mut self) {
        for (from, to) in
            (0..COPIES * COPIES).map(|pair| (pair / COPIES, pair % COPIES)).filter(|(from, to)| from != to)
        {
            let batch = batch_of(&self.nodes[from], self.read[from][to], usize::MAX);
            batch.entries.iter().for_each(|entry| self.send(from, to, &entry.recorded, false));
            self.read[from][to] = batch.next;
        }
        let (late, mut arriving): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.under_way).into_iter().partition(|message| message.again);
        self.under_way = late;
        self.rng.shuffle(&mut arriving);
        arriving.into_iter().for_each(|message| self.arrive(message));
    }

    fn send(&mut self, from: usize, to: usize, change: &Recorded, again: bool) {
        let node = &self.nodes[from];
        let told = match change {
            Recorded::KeyOnly(key) => {
                match pollster::block_on(held(&node.store, &Cx::outside(), key)).expect("RAM answers") {
                    Held::Item(item) => Told::Set(number(key), item),
                    Held::Buried(version) => Told::Deleted(number(key), version),
                    Held::Unknown => return,
                }
            }
            Recorded::Whole(Change::Delete { .. }) if self.guard == Guard::Deletes => return,
            Recorded::Whole(Change::Delete { key, version }) => Told::Deleted(number(key), *version),
            Recorded::Whole(Change::Flush(_)) if self.guard == Guard::Floors => return,
            Recorded::Whole(Change::Flush(floor)) => Told::Flushed(*floor),
            Recorded::Whole(_) => unreachable!("RAM tells keys, and is told of nothing it lost"),
        };
        self.under_way.push(Message { to, change: told, as_of: node.clock.millis().min(self.now + SKEW_MAX), again });
    }

    /// Any of the changes that are under way arrives.
    fn deliver(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let message = self.under_way.swap_remove(self.rng.usize(0..self.under_way.len()));
        if message.again && self.rng.u8(0..12) != 0 {
            self.under_way.push(message);
        } else {
            self.arrive(message);
        }
    }

    fn arrive(&mut self, message: Message) {
        let node = &self.nodes[message.to];
        let before = node.clock.millis();
        let flushed = node.store.floors().bound;
        if self.guard == Guard::SkewBound {
            // As if the clock were as far, for a moment.
            node.clock.set_millis(before.max(message.change.version().millis()));
        }
        let kind = match &message.change {
            Told::Set(key, item)
                if self.guard == Guard::TieBreak
                    && node.peek(*key).is_some_and(|there| there.meta.cas == item.meta.cas) =>
            {
                Ok(())
            }
            Told::Set(key, item) => {
                let name = name(*key);
                let as_of = if self.guard == Guard::AsOf { u64::MAX } else { message.as_of };
                let key = Key::new(&name, KeyHash::seeded(0));
                node.store.put_newer(&key, &item.as_ref(), as_of).now().map(drop)
            }
            Told::Deleted(key, version) if self.guard == Guard::Tombstones => {
                if node.peek(*key).is_some_and(|item| item.meta.version() <= *version) {
                    node.store.forget(&Key::new(&name(*key), KeyHash::seeded(0)));
                }
                Ok(())
            }
            Told::Deleted(key, version) => {
                let name = name(*key);
                node.store.bury(&Key::new(&name, KeyHash::seeded(0)), *version).now().map(drop)
            }
            // Sessions refuse these.
            Told::Flushed(floor)
                if floor.version.millis() > node.clock.millis() + SKEW_MAX
                    && floor.version > node.store.floors().newest =>
            {
                Err(StoreError::clock_ahead())
            }
            Told::Flushed(floor) => pollster::block_on(finished(node.store.floor(*floor))),
        };
        node.clock.set_millis(before);
        // A delayed flush took effect before the later one that replaces it arrived: what it dropped is as good as evicted.
        if node.store.floors().bound < flushed {
            self.nodes[message.to].shown = [Version::ZERO; KEYS];
        }
        // From a clock that is ahead: it comes again later.
        if kind.is_err_and(|error| error.kind() == ErrorKind::ClockAhead) {
            self.under_way.push(message);
        }
    }

    /// A node loses all it had, and reads the others' feeds from their beginning.
    fn restart(&mut self, number: usize) {
        let clock = Arc::clone(&self.nodes[number].clock);
        let salt = self.kind.salt(&mut self.rng);
        self.nodes[number] = node(self.kind.origin(number), &clock, self.guard, salt);
        // What no other node was told may be lost.
        self.written = [(self.now, Version::ZERO); KEYS];
        for other in (0..COPIES).filter(|other| *other != number) {
            self.read[other][number] = feed(&self.nodes[other]).since(START);
            self.read[number][other] = feed(&self.nodes[number]).since(clock.millis());
        }
    }

    /// No node shows a key older than it showed before.
    fn check(&mut self) -> Result<(), String> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        for (number, node) in self.nodes.iter_mut().enumerate() {
            for key in 0..KEYS {
                let Some(version) = node.peek(key).map(|item| item.meta.version()) else { continue };
                if version < node.shown[key] {
                    return Err(format!("node {number} shows key {key} as {version:?} after {:?}", node.shown[key]));
                }
                node.shown[key] = version;
            }
        }
        Ok(())
    }

    /// Every reader reads every feed from its beginning, until nothing is under way and nothing changes.
    fn come_to_rest(&mut self) {
        if let Kind::Ahead(_) = self.kind {
            // The clock is set right.
            self.nodes[COPIES - 1].clock.set_millis(self.now);
        }
        for _ in 0..20 {
            for (from, to) in
                (0..COPIES * COPIES).map(|pair| (pair / COPIES, pair % COPIES)).filter(|(from, to)| from != to)
            {
                let mut place = feed(&self.nodes[from]).since(START);
                loop {
                    let batch = batch_of(&self.nodes[from], place, 100);
                    batch.entries.iter().for_each(|entry| self.send(from, to, &entry.recorded, false));
                    place = batch.next;
                    if batch.entries.is_empty() {
                        break;
                    }
                }
                let mut arriving = std::mem::take(&mut self.under_way);
                self.rng.shuffle(&mut arriving);
                arriving.into_iter().for_each(|message| self.arrive(message));
            }
            self.pass(4000);
        }
    }

    fn check_equal(&self) -> Result<(), String> {
        for key in 0..KEYS {
            let held: Vec<_> = (0..COPIES)
                .map(|number| {
                    let item = self.nodes[number].peek(key)?;
                    Some((item.meta.version(), item.meta.expiry, item.meta.flags, item.meta.stale, item.value))
                })
                .collect();
            if held.iter().any(|item| *item != held[0]) {
                return Err(format!("key {key} at rest: {held:?}"));
            }
        }
        Ok(())
    }
}

fn batch_of(node: &Node, from: FeedPlace, limit: usize) -> Batch {
    feed(node).reader(from, Wanted::default()).read(limit, usize::MAX).expect("a ring does not fail")
}

fn feed(node: &Node) -> &dyn moneta_store::feed::Feed {
    node.store.parts().feed.expect("it tells of its changes")
}

async fn finished<T>(step: moneta_store::Step<T>) -> Result<T, moneta_store::StoreError> {
    moneta_store::steps::finish(step).await
}

fn run(seed: u64, guard: Guard) -> Result<(), String> {
    let mut world = World::new(seed, guard);
    for _ in 0..250 {
        world.step();
        world.check()?;
    }
    world.come_to_rest();
    world.check_equal()
}

/// Seeds that have shown a fault.
const MENDED: [u64; 1] = [
    // Two flushes under one version, of which one copy held the later: its feed did not tell of that one.
    2425,
];

#[test]
fn at_rest_all_copies_hold_the_same() {
    let first = suite::seed();
    for seed in MENDED.into_iter().chain((0..SEEDS).map(|number| first.wrapping_add(number))) {
        run(seed, Guard::None).unwrap_or_else(|wrong| panic!("MONETA_SEED={seed}: {wrong}"));
    }
}

#[test]
fn without_any_of_the_guards_some_seed_fails() {
    let guards = [
        Guard::AsOf,
        Guard::Floors,
        Guard::Deletes,
        Guard::VersionedDeletes,
        Guard::Tombstones,
        Guard::TieBreak,
        Guard::SkewBound,
    ];
    for guard in guards {
        // Versions that run ahead must show as what they harm.
        let counts = |wrong: &String| guard != Guard::SkewBound || wrong.contains("written");
        let failed = |seed| run(seed, guard).err().filter(counts).map(|wrong| (seed, wrong));
        let failure = (0..SEEDS).find_map(failed);
        let (seed, wrong) = failure.unwrap_or_else(|| panic!("{guard:?} is taken out, and nothing shows it"));
        println!("{guard:?}: seed {seed}: {wrong}");
    }
}
