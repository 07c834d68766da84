//! The memory engine, called as a session calls it.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::{Retrieve, Write};
use moneta_store::{Calls, Clock, ItemRef, Key, KeyHash, Lookup, Store, Written};

use crate::{VALUE, key, shuffled};

/// More than the processor's caches hold: 180 MB of items.
const ITEMS: u64 = 1_000_000;

/// The hash of a key as nodes have it, and hits, misses and sets of keys in no order, with hashing.
pub fn benchmark(criterion: &mut Criterion) {
    let seed = KeyHash::random().expect("the system's randomness");
    let config = MemoryConfig {
        limit: 512 << 20,
        item_max: 1 << 20,
        evict: true,
        threads: 1,
        shards: None,
        seed,
        versioning: Default::default(),
    };
    let store = Memory::new(&config, Arc::new(Clock::system())).expect("memory");
    let set = |key: &str| {
        let key = Key::new(key.as_bytes(), store.seed());
        store.set(&key, &VALUE, &Write::default()).now().expect("RAM does not fail")
    };
    let get = |key: &str| {
        let mut visitor = |item: &ItemRef<'_>| {
            black_box(item.value.len());
        };
        let key = Key::new(key.as_bytes(), store.seed());
        store.get(&key, &Retrieve::default(), &mut visitor).now().expect("RAM does not fail")
    };
    let keys: Vec<String> = (0..ITEMS).map(key).collect();
    let missing: Vec<String> = (ITEMS..2 * ITEMS).map(key).collect();
    assert!(keys.iter().all(|key| matches!(set(key), Written::Stored { .. })));
    assert!(keys.iter().all(|key| matches!(get(key), Lookup::Visited)), "some are evicted");

    let mut group = criterion.benchmark_group("ram");
    group.throughput(Throughput::Elements(1));
    let mut numbers = shuffled(ITEMS);
    let mut next = || numbers.next().expect("there is no end") as usize;
    group.bench_function("hash", |bencher| bencher.iter(|| Key::new(keys[next()].as_bytes(), seed).hash));
    group.bench_function("hit", |bencher| bencher.iter(|| get(&keys[next()])));
    group.bench_function("miss", |bencher| bencher.iter(|| get(&missing[next()])));
    group.bench_function("set", |bencher| bencher.iter(|| set(&keys[next()])));
    group.finish();
}
