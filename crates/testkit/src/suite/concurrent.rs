//! What only several threads at once can break, checked by invariants of single keys that cost little to check.
//!
//! The store has ample memory, so nothing may be lost. Each kind of key has its own promise:
//!
//! - counters: the sum of all that was added, and no increment lost;
//! - swapped numbers: every compare-and-swap that succeeded counted once;
//! - signed values: whole, of that key, and never older than what the same reader saw before;
//! - logs: every successful append there once, each writer's in its order;
//! - locks (add takes, delete releases): one holder at a time;
//! - still keys: in every walk exactly once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write, WriteMode};
use moneta_store::{Clock, Cursor, Deleted, Item, Key, Number, Store, Written};

use super::call::{Driven, Outcome};
use super::operation::{Operation, Payload};
use super::options::{START, SuiteConfig};

/// Operations of each thread.
const STEPS: u64 = 4000;
/// Keys of each kind but the still ones: few, so that threads meet.
const KEYS: usize = 3;
/// Keys that are not written while threads run.
const STILL_KEYS: usize = 200;
/// Longest signed value. Large enough to span whatever an engine copies at once.
const SIGNED_MAX: usize = 3000;

/// What all threads share.
struct ConcurrentShared<S> {
    store: S,
    /// Sum of what was added to each counter.
    added: [AtomicU64; KEYS],
    /// Successful swaps of each number.
    swapped: [AtomicU64; KEYS],
    /// Whether each lock is held.
    held: [AtomicBool; KEYS],
}

/// One thread's view.
struct Worker<'a, S> {
    shared: &'a ConcurrentShared<S>,
    name: usize,
    rng: Rng,
    /// Newest version of each signed key seen from each writer.
    seen: HashMap<(usize, usize), u64>,
    sequence: u64,
    /// What it has appended to each log.
    appended: [u64; KEYS],
}

/// Runs `threads` threads on one store and checks what they saw and left.
///
/// # Panics
/// If a promise is broken. Another run with the same `seed` has the same operations, but not the same interleaving.
pub fn concurrent<S: Store + Sync>(make: impl Fn(SuiteConfig, Arc<Clock>) -> S, threads: usize, seed: u64) {
    let config = SuiteConfig { memory: 256 << 20, value_max: 1 << 20 };
    let shared = ConcurrentShared {
        store: make(config, Arc::new(Clock::manual(START))),
        added: Default::default(),
        swapped: Default::default(),
        held: Default::default(),
    };
    shared.prepare();
    let appended: Vec<[u64; KEYS]> = std::thread::scope(|scope| {
        let shared = &shared;
        let workers: Vec<_> = (0..threads)
            .map(|name| scope.spawn(move || Worker::new(shared, name, seed.wrapping_add(name as u64)).run()))
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker found a broken promise")).collect()
    });
    shared.check(&appended);
}

impl<S: Store> ConcurrentShared<S> {
    fn prepare(&self) {
        let zero = Payload::Text("0".into());
        for key in 0..KEYS {
            self.write(&format!("counter {key}"), zero.clone(), Write::default());
            self.write(&format!("swapped {key}"), zero.clone(), Write::default());
            self.write(&format!("log {key}"), Payload::Text(String::new()), Write::default());
        }
        for key in 0..STILL_KEYS {
            self.write(&format!("still {key}"), Payload::Text(key.to_string()), Write::default());
        }
    }

    fn perform(&self, key: &str, operation: &Operation, compare: Option<u64>) -> Outcome {
        let driven = Driven { store: &self.store, idle: &|_| std::thread::park() };
        let key = Key::new(key.as_bytes(), self.store.seed());
        driven.perform(operation, &key, compare).unwrap_or_else(|reason| panic!("{operation}: {reason}"))
    }

    fn write(&self, key: &str, value: Payload, request: Write) -> Written {
        let compare = request.compare;
        match self.perform(key, &Operation::Set { key: 0, value, request, compare: None }, compare) {
            Outcome::Written(written) => written,
            other => unreachable!("a write ended as {other:?}"),
        }
    }

    fn read(&self, key: &str) -> Option<Item> {
        match self.perform(key, &Operation::Get { key: 0, request: Retrieve::default() }, None) {
            Outcome::Hit(item) => Some(item),
            _ => None,
        }
    }

    fn delete(&self, key: &str) -> Deleted {
        match self.perform(key, &Operation::Delete { key: 0, request: Delete::default(), compare: None }, None) {
            Outcome::Deleted(deleted) => deleted,
            other => unreachable!("a delete ended as {other:?}"),
        }
    }

    fn text(&self, key: &str) -> String {
        let item = self.read(key).unwrap_or_else(|| panic!("{key} is gone"));
        String::from_utf8(item.value.into_vec()).unwrap_or_else(|_| panic!("{key} holds something foreign"))
    }

    /// What must hold when all threads are done.
    fn check(&self, appended: &[[u64; KEYS]]) {
        for key in 0..KEYS {
            let counted = self.text(&format!("counter {key}"));
            assert_eq!(counted, self.added[key].load(Ordering::Relaxed).to_string(), "counter {key} lost count");
            let swapped = self.text(&format!("swapped {key}"));
            assert_eq!(swapped, self.swapped[key].load(Ordering::Relaxed).to_string(), "a swap was lost");
            check_log(&self.text(&format!("log {key}")), &appended.iter().map(|logs| logs[key]).collect::<Vec<_>>());
        }
    }
}

/// Checks that a log of `writer:number;` entries holds each writer's numbers from 0 to its count, in order.
fn check_log(log: &str, counts: &[u64]) {
    let mut next = vec![0; counts.len()];
    for entry in log.split_terminator(';') {
        let parsed =
            entry.split_once(':').and_then(|(writer, number)| Some((writer.parse().ok()?, number.parse().ok()?)));
        let Some((writer, number)) = parsed else { panic!("the log holds the entry {entry:?}") };
        let writer: usize = writer;
        assert_eq!(next.get(writer), Some(&number), "writer {writer}'s entries are out of order");
        next[writer] += 1;
    }
    assert_eq!(next, counts, "an append was lost");
}

/// A value that says which key, writer and version it is, and whose every byte follows from that.
fn signed_value(key: usize, writer: usize, sequence: u64) -> String {
    let head = format!("{key}:{writer}:{sequence}:");
    let mut rng = Rng::with_seed(sequence.wrapping_mul(31).wrapping_add(writer as u64));
    let length = rng.usize(0..SIGNED_MAX);
    head + &std::iter::repeat_with(|| rng.alphanumeric()).take(length).collect::<String>()
}

impl<'a, S: Store> Worker<'a, S> {
    fn new(shared: &'a ConcurrentShared<S>, name: usize, seed: u64) -> Self {
        let rng = Rng::with_seed(seed);
        Self { shared, name, rng, seen: HashMap::new(), sequence: 0, appended: [0; KEYS] }
    }

    /// Works off its operations; tells how much it appended to each log.
    fn run(mut self) -> [u64; KEYS] {
        for step in 0..STEPS {
            let key = self.rng.usize(0..KEYS);
            match self.rng.u8(0..10) {
                0 | 1 => self.count(key),
                2 => self.swap(key),
                3 | 4 => self.write_signed(key),
                5 | 6 => self.read_signed(key),
                7 => self.append(key),
                8 => self.hold(key),
                _ if step % 20 == 0 => self.walk(),
                _ => assert_eq!(self.shared.text(&format!("still {key}")), key.to_string()),
            }
        }
        self.appended
    }

    fn count(&mut self, key: usize) {
        let delta = self.rng.u64(0..100);
        let request = Arithmetic { delta, ..Arithmetic::default() };
        let operation = Operation::Arithmetic { key: 0, request, compare: None };
        match self.shared.perform(&format!("counter {key}"), &operation, None) {
            Outcome::Number(Number::Value { .. }) => self.shared.added[key].fetch_add(delta, Ordering::Relaxed),
            other => panic!("a counter ended in {other:?}"),
        };
    }

    /// Adds one to a number by reading it and writing it back with its CAS value.
    fn swap(&mut self, key: usize) {
        let name = format!("swapped {key}");
        let item = self.shared.read(&name).expect("it is never deleted");
        let number: u64 = std::str::from_utf8(&item.value).ok().and_then(|text| text.parse().ok()).expect("a number");
        let request = Write { compare: Some(item.meta.cas), ..Write::default() };
        match self.shared.write(&name, Payload::Text((number + 1).to_string()), request) {
            Written::Stored { .. } => _ = self.shared.swapped[key].fetch_add(1, Ordering::Relaxed),
            Written::Exists => (),
            other => panic!("a swap ended in {other:?}"),
        }
    }

    fn write_signed(&mut self, key: usize) {
        let name = format!("signed {key}");
        if self.rng.u8(0..8) == 0 {
            self.shared.delete(&name);
            return;
        }
        self.sequence += 1;
        self.seen.insert((key, self.name), self.sequence);
        let value = Payload::Text(signed_value(key, self.name, self.sequence));
        let written = self.shared.write(&name, value, Write::default());
        assert!(matches!(written, Written::Stored { .. }), "a set ended in {written:?}");
    }

    fn read_signed(&mut self, key: usize) {
        let Some(item) = self.shared.read(&format!("signed {key}")) else { return };
        let value = String::from_utf8(item.value.into_vec()).expect("signed values are text");
        let mut parts = value.splitn(4, ':').map(str::parse::<u64>);
        let (Some(Ok(of)), Some(Ok(writer)), Some(Ok(sequence))) = (parts.next(), parts.next(), parts.next()) else {
            panic!("key {key} holds a torn value");
        };
        assert_eq!(of, key as u64, "the value of another key");
        assert_eq!(value, signed_value(key, writer as usize, sequence), "a torn value");
        let seen = self.seen.entry((key, writer as usize)).or_default();
        assert!(*seen <= sequence, "version {sequence} of writer {writer} came after its version {seen}");
        *seen = sequence;
    }

    fn append(&mut self, key: usize) {
        let entry = Payload::Text(format!("{}:{};", self.name, self.appended[key]));
        let request = Write { mode: WriteMode::Append, ..Write::default() };
        let written = self.shared.write(&format!("log {key}"), entry, request);
        assert!(matches!(written, Written::Stored { .. }), "an append ended in {written:?}");
        self.appended[key] += 1;
    }

    /// Takes a lock by adding it, and if it got it, releases it by deleting it.
    fn hold(&mut self, key: usize) {
        let name = format!("lock {key}");
        let add = Write { mode: WriteMode::Add, ..Write::default() };
        match self.shared.write(&name, Payload::Text(self.name.to_string()), add) {
            Written::Stored { .. } => (),
            Written::NotStored => return,
            other => panic!("an add ended in {other:?}"),
        }
        assert!(!self.shared.held[key].swap(true, Ordering::SeqCst), "two hold lock {key}");
        std::thread::yield_now();
        assert!(self.shared.held[key].swap(false, Ordering::SeqCst), "another thread released lock {key}");
        assert_eq!(self.shared.delete(&name), Deleted::Deleted, "lock {key} was lost");
    }

    /// Walks all; the still keys must be there, each once.
    fn walk(&mut self) {
        let mut cursor = Cursor::default();
        let mut shown = HashSet::new();
        let mut twice = Vec::new();
        let mut show = |item: &moneta_store::Walked<'_>| {
            if item.key.starts_with(b"still ") && !shown.insert(item.key.to_vec()) {
                twice.push(item.key.to_vec());
            }
        };
        let driven = Driven { store: &self.shared.store, idle: &|_| std::thread::park() };
        while driven.walk(&mut cursor, &mut show).expect("walks do not fail") {}
        assert!(twice.is_empty(), "a walk showed {} keys twice", twice.len());
        assert_eq!(shown.len(), STILL_KEYS, "a walk left out keys");
    }
}
