//! A reader that goes on at another copy: from its watermark less a margin it misses nothing that reached the copies within that
//! margin of each other, and without the margin it does.

use std::sync::Arc;

use fastrand::Rng;
use moneta_layers::feed::Feed;
use moneta_memory::Memory;
use moneta_store::feed::{Change, FeedPlace, Recorded};
use moneta_store::holding::{Held, held};
use moneta_store::request::{Delete, Write};
use moneta_store::{Calls, Clock, Cx, Item, Key, KeyHash, Origin, Version};

use super::{Guard, KEYS, Node, SEEDS, START, batch_of, feed, finished, name, node, number};

/// Longest time that a change needs from one copy to the other, in milliseconds.
const DELAY_MAX: u64 = 3000;
/// Clocks are as far apart as this, at most, in milliseconds.
const CLOCKS_APART: u64 = 400;

/// A change on its way to the other copy.
struct Message {
    to: usize,
    arrives: u64,
    key: usize,
    change: What,
}

enum What {
    Item(Item),
    Deleted(Version),
}

/// Two copies that read each other's feeds, and a third that reads the feed of one at a time.
struct World {
    copies: [Node; 2],
    clock: Arc<Clock>,
    reader: Feed<Memory>,
    under_way: Vec<Message>,
    read: [FeedPlace; 2],
    /// Which copy the reader reads, how far, and up to when it has been told all.
    at: usize,
    place: FeedPlace,
    watermark: u64,
    rng: Rng,
    margin: u64,
}

fn look(node: &Node, change: &Recorded) -> Option<(usize, What)> {
    match change {
        Recorded::KeyOnly(key) => {
            match pollster::block_on(held(&node.store, &Cx::outside(), key)).expect("RAM answers") {
                Held::Item(item) => Some((number(key), What::Item(item))),
                Held::Buried(version) => Some((number(key), What::Deleted(version))),
                Held::Unknown => None,
            }
        }
        Recorded::Whole(Change::Delete { key, version }) => Some((number(key), What::Deleted(*version))),
        _ => unreachable!("there are no flushes here"),
    }
}

fn apply(store: &Feed<Memory>, key: usize, what: &What, as_of: u64) {
    let name = name(key);
    let key = Key::new(&name, KeyHash::seeded(0));
    match what {
        What::Item(item) => drop(store.put_newer(&key, &item.as_ref(), as_of).now().expect("it is not ahead")),
        What::Deleted(version) => drop(store.bury(&key, *version).now().expect("it is not ahead")),
    }
}

impl World {
    fn new(seed: u64, margin: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let clock = |millis| {
            let clock = Arc::new(Clock::manual(0));
            clock.set_millis(START + millis);
            clock
        };
        let mut copy = |number| {
            let clock = clock(rng.u64(0..CLOCKS_APART));
            node(Origin::new(number, 0), &clock, Guard::None, rng.u64(..))
        };
        let copies = [copy(0), copy(1)];
        let time = clock(0);
        let reader = node(Origin::new(2, 0), &time, Guard::None, 0).store;
        let read = [0, 1].map(|number| feed(&copies[number]).end());
        Self {
            read,
            at: 0,
            place: read[0],
            watermark: 0,
            copies,
            clock: time,
            reader,
            under_way: Vec::new(),
            rng,
            margin,
        }
    }

    fn step(&mut self) {
        let (node, name) = (self.rng.usize(0..2), name(self.rng.usize(0..KEYS)));
        let key = Key::new(&name, KeyHash::seeded(0));
        match self.rng.u8(0..10) {
            0..3 => {
                let value = self.rng.u16(..).to_string().into_bytes();
                drop(self.copies[node].store.set(&key, &value, &Write::default()).now());
            }
            3 => drop(pollster::block_on(finished(self.copies[node].store.delete(&key, &Delete::default())))),
            4..6 => self.pass(),
            6..9 => self.read(),
            _ if self.watermark > 0 && self.rng.u8(0..4) == 0 => {
                self.at = 1 - self.at;
                self.place = feed(&self.copies[self.at]).since(self.watermark.saturating_sub(self.margin));
            }
            _ => {}
        }
    }

    /// Time passes: what a copy was told is on its way to the other, and some of it arrives.
    fn pass(&mut self) {
        let millis = self.rng.u64(1..600);
        for from in 0..2 {
            let batch = batch_of(&self.copies[from], self.read[from], usize::MAX);
            self.read[from] = batch.next;
            let arrives = self.clock.millis() + self.rng.u64(1..DELAY_MAX - 600);
            let told = batch.entries.iter().filter_map(|entry| look(&self.copies[from], &entry.recorded));
            self.under_way.extend(told.map(|(key, change)| Message { to: 1 - from, arrives, key, change }));
        }
        self.clock.advance_millis(millis);
        self.copies.iter().for_each(|copy| copy.clock.advance_millis(millis));
        let now = self.clock.millis();
        let (arrived, later) =
            std::mem::take(&mut self.under_way).into_iter().partition(|message| message.arrives <= now);
        self.under_way = later;
        arrived.iter().for_each(|Message { to, key, change, .. }| apply(&self.copies[*to].store, *key, change, now));
    }

    fn read(&mut self) {
        let batch = batch_of(&self.copies[self.at], self.place, usize::MAX);
        (self.place, self.watermark) = (batch.next, batch.watermark);
        let now = self.clock.millis();
        for (key, what) in batch.entries.iter().filter_map(|entry| look(&self.copies[self.at], &entry.recorded)) {
            apply(&self.reader, key, &what, now);
        }
    }

    /// What the reader lacks when all that was under way has arrived and it has read on.
    fn lacking(mut self) -> Result<(), String> {
        while !self.under_way.is_empty() {
            self.pass();
        }
        (0..20).for_each(|_| self.pass());
        self.read();
        let shown = |store: &Feed<Memory>, key: usize| {
            let held = pollster::block_on(held(store, &Cx::outside(), &name(key))).expect("RAM answers");
            match held {
                Held::Item(item) => Some((item.meta.version(), item.value)),
                Held::Buried(_) | Held::Unknown => None,
            }
        };
        for key in 0..KEYS {
            let (there, here) = (shown(&self.copies[self.at].store, key), shown(&self.reader, key));
            if there != here {
                return Err(format!("key {key}: the copy has {there:?} and its reader {here:?}"));
            }
        }
        Ok(())
    }
}

fn run(seed: u64, margin: u64) -> Result<(), String> {
    let mut world = World::new(seed, margin);
    (0..200).for_each(|_| world.step());
    world.lacking()
}

#[test]
fn from_the_watermark_less_a_margin_nothing_is_missed() {
    for seed in 0..SEEDS {
        run(seed, DELAY_MAX + 2 * CLOCKS_APART).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn without_the_margin_some_seed_fails() {
    let failure = (0..SEEDS).find_map(|seed| run(seed, 0).err().map(|wrong| (seed, wrong)));
    let (seed, wrong) = failure.expect("the margin is taken out, and nothing shows it");
    println!("seed {seed}: {wrong}");
}
