//! Copies of one another by their feeds, simulated: whatever is written where, and however late, twice or out of order the changes
//! arrive, at rest all copies hold the same. A seed repeats a run, and taking out a guard makes some seed fail.

use std::sync::Arc;

use fastrand::Rng;
use moneta_layers::feed::Feed;
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::feed::{Batch, Change, Place, Wanted};
use moneta_store::holding::{Held, held};
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, Component, Cx, ErrorKind, Item, ItemRef, Key, KeyHash, Lookup, Origin, Version};
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
}

/// One copy.
struct Node {
    store: Feed<Memory>,
    clock: Arc<Clock>,
    /// The newest version that each key has shown since the node started.
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
    read: [[Place; COPIES]; COPIES],
    under_way: Vec<Message>,
    rng: Rng,
    guard: Guard,
}

fn name(key: usize) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

fn number(name: &[u8]) -> usize {
    usize::from(name[name.len() - 1] - b'0')
}

fn node(number: usize, clock: &Arc<Clock>, guard: Guard, salt: u64) -> Node {
    let versioning = Versioning {
        origin: Origin::new(number as u8, 0),
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
        let nodes: Vec<Node> = (0..COPIES)
            .map(|number| {
                // Clocks are up to 400 ms apart.
                let clock = Arc::new(Clock::manual(0));
                clock.set_millis(START + rng.u64(0..400));
                node(number, &clock, guard, rng.u64(..))
            })
            .collect();
        let read = std::array::from_fn(|from| [feed(&nodes[from]).end(); COPIES]);
        Self { nodes, read, under_way: Vec::new(), rng, guard }
    }

    fn step(&mut self) {
        let (node, key) = (self.rng.usize(0..COPIES), self.rng.usize(0..KEYS));
        match self.rng.u8(0..100) {
            0..40 => self.write(node, key),
            40..65 => self.read_feed(node),
            65..90 => self.deliver(),
            90..97 => {
                let millis = if self.rng.u8(0..2) == 0 { self.rng.u64(5000..15_000) } else { self.rng.u64(1..400) };
                // No reader is away for longer than deletes are remembered. What arrives again may be under way for longer.
                self.read_all();
                self.nodes.iter().for_each(|node| node.clock.advance_millis(millis));
                self.read_all();
            }
            97 => {
                // A clock that is set back by some seconds: what its node makes goes on from what it made.
                let clock = &self.nodes[node].clock;
                let back = self.rng.u64(0..100);
                clock.set_millis(clock.millis() - back);
            }
            _ if self.rng.u8(0..4) == 0 => self.restart(node),
            _ => {}
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
            0..8 => drop(store.set(&key, &value, &write(WriteMode::Set)).now()),
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
        for change in batch.changes.iter().map(|told| &told.change) {
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
            batch.changes.iter().for_each(|told| self.send(from, to, &told.change, false));
            self.read[from][to] = batch.next;
        }
        let (late, mut arriving): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.under_way).into_iter().partition(|message| message.again);
        self.under_way = late;
        self.rng.shuffle(&mut arriving);
        arriving.into_iter().for_each(|message| self.arrive(message));
    }

    fn send(&mut self, from: usize, to: usize, change: &Change, again: bool) {
        let node = &self.nodes[from];
        let told = match change {
            Change::Set(key) => {
                match pollster::block_on(held(&node.store, &Cx::outside(), key)).expect("RAM answers") {
                    Held::Item(item) => Told::Set(number(key), item),
                    Held::Buried(version) => Told::Deleted(number(key), version),
                    Held::Unknown => return,
                }
            }
            Change::Deleted(..) if self.guard == Guard::Deletes => return,
            Change::Deleted(key, version) => Told::Deleted(number(key), *version),
            Change::Flushed(_) if self.guard == Guard::Floors => return,
            Change::Flushed(floor) => Told::Flushed(*floor),
            Change::Item(_) | Change::Lost(_) => unreachable!("RAM tells keys, and is told of nothing it lost"),
        };
        self.under_way.push(Message { to, change: told, as_of: node.clock.millis(), again });
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
        let kind = match &message.change {
            Told::Set(key, item) => {
                let name = name(*key);
                let as_of = if self.guard == Guard::AsOf { u64::MAX } else { message.as_of };
                let key = Key::new(&name, KeyHash::seeded(0));
                node.store.put_newer(&key, &item.as_ref(), as_of).now().map(drop)
            }
            Told::Deleted(key, version) => {
                let name = name(*key);
                node.store.bury(&Key::new(&name, KeyHash::seeded(0)), *version).now().map(drop)
            }
            Told::Flushed(floor) => pollster::block_on(finished(node.store.floor(*floor))),
        };
        // From a clock that is ahead: it comes again later.
        if kind.is_err_and(|error| error.kind() == ErrorKind::ClockAhead) {
            self.under_way.push(message);
        }
    }

    /// A node loses all it had, and reads the others' feeds from their beginning.
    fn restart(&mut self, number: usize) {
        let clock = Arc::clone(&self.nodes[number].clock);
        self.nodes[number] = node(number, &clock, self.guard, self.rng.u64(..));
        for other in (0..COPIES).filter(|other| *other != number) {
            self.read[other][number] = feed(&self.nodes[other]).since(START);
            self.read[number][other] = feed(&self.nodes[number]).since(clock.millis());
        }
    }

    /// No node shows a key older than it showed before.
    fn check(&mut self) -> Result<(), String> {
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
        for _ in 0..20 {
            for (from, to) in
                (0..COPIES * COPIES).map(|pair| (pair / COPIES, pair % COPIES)).filter(|(from, to)| from != to)
            {
                let mut place = feed(&self.nodes[from]).since(START);
                loop {
                    let batch = batch_of(&self.nodes[from], place, 100);
                    batch.changes.iter().for_each(|told| self.send(from, to, &told.change, false));
                    place = batch.next;
                    if batch.changes.is_empty() {
                        break;
                    }
                }
                let mut arriving = std::mem::take(&mut self.under_way);
                self.rng.shuffle(&mut arriving);
                arriving.into_iter().for_each(|message| self.arrive(message));
            }
            self.nodes.iter().for_each(|node| node.clock.advance(4));
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

fn batch_of(node: &Node, from: Place, limit: usize) -> Batch {
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

#[test]
fn at_rest_all_copies_hold_the_same() {
    let first = suite::seed();
    for seed in (0..SEEDS).map(|number| first.wrapping_add(number)) {
        run(seed, Guard::None).unwrap_or_else(|wrong| panic!("MONETA_SEED={seed}: {wrong}"));
    }
}

#[test]
fn without_any_of_the_guards_some_seed_fails() {
    for guard in [Guard::AsOf, Guard::Floors, Guard::Deletes, Guard::VersionedDeletes] {
        let failure = (0..SEEDS).find_map(|seed| run(seed, guard).err().map(|wrong| (seed, wrong)));
        let (seed, wrong) = failure.unwrap_or_else(|| panic!("{guard:?} is taken out, and nothing shows it"));
        println!("{guard:?}: seed {seed}: {wrong}");
    }
}
