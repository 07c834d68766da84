//! Guards what happens between a shard's locks: a large value read while it is overwritten, deleted or flushed must come
//! out whole and of one version, and a hidden one must not be lost or published over a newer one.
//!
//! The scheduler of `shuttle` decides at every lock which thread goes on, and here also while a value is being read.
//! Run with `cargo test -p moneta-memory --features shuttle --test shuttle`.
#![cfg(feature = "shuttle")]

use std::sync::Arc;

use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::{Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Calls, Clock, ItemRef, Key, KeyHash, Lookup, Written};
use shuttle::thread;

/// Larger than what is copied under a lock, and than a segment.
const LARGE: usize = 150_000;
const ITERATIONS: usize = 400;
/// Threads that are switched between at most this often (probabilistic concurrency testing, Burckhardt et al. 2010).
const SWITCHES: usize = 4;

fn memory() -> Memory {
    let config = MemoryConfig {
        limit: 8 << 20,
        item_max: 1 << 20,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: KeyHash::seeded(0),
        versioning: Default::default(),
    };
    Memory::new(&config, Arc::new(Clock::manual(1_700_000_000))).expect("a possible configuration")
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes(), KeyHash::seeded(0))
}

fn value(version: u8) -> Vec<u8> {
    vec![version; LARGE]
}

/// Reads a value, giving way before and after it is copied; checks that it is of one version throughout.
fn read_whole(store: &Memory, name: &str) -> Option<(u8, usize)> {
    let mut copy = Vec::new();
    let mut visitor = |item: &ItemRef<'_>| {
        thread::yield_now();
        item.value.copy_to(&mut copy);
        thread::yield_now();
    };
    match store.get(&key(name), &Retrieve::default(), &mut visitor).now().expect("memory does not fail") {
        Lookup::Visited => {
            let version = copy[0];
            assert!(copy.iter().all(|&byte| byte == version), "a torn value");
            Some((version, copy.len()))
        }
        _ => None,
    }
}

fn set(store: &Memory, name: &str, version: u8) {
    let written = store.set(&key(name), &value(version), &Write::default()).now().expect("memory does not fail");
    assert!(matches!(written, Written::Stored { .. }), "{written:?}");
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    shuttle::check_pct(scenario, ITERATIONS, SWITCHES);
}

#[test]
fn a_large_value_is_read_whole_while_it_is_overwritten_and_deleted() {
    explore(|| {
        let store = memory();
        set(&store, "k", 1);
        let writer = thread::spawn({
            let store = store.clone();
            move || {
                set(&store, "k", 2);
                let _ = store.delete(&key("k"), &Delete::default()).now();
                set(&store, "other", 9);
                set(&store, "k", 3);
            }
        });
        let reader = thread::spawn({
            let store = store.clone();
            move || {
                let mut last = 0;
                for _ in 0..3 {
                    if let Some((version, length)) = read_whole(&store, "k") {
                        assert_eq!(length, LARGE);
                        assert!(version >= last, "version {version} after {last}");
                        last = version;
                    }
                }
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(read_whole(&store, "k"), Some((3, LARGE)));
    });
}

#[test]
fn a_flush_between_reserving_and_publishing_loses_nothing_stored_after_it() {
    explore(|| {
        let store = memory();
        set(&store, "old", 1);
        let writer = thread::spawn({
            let store = store.clone();
            move || set(&store, "new", 2)
        });
        let reader = thread::spawn({
            let store = store.clone();
            move || read_whole(&store, "old")
        });
        let _ = store.flush(Exptime(0)).now();
        writer.join().unwrap();
        let read = reader.join().unwrap();
        assert!(read.is_none() || read == Some((1, LARGE)));
        assert_eq!(read_whole(&store, "old"), None);
        assert!(matches!(read_whole(&store, "new"), None | Some((2, LARGE))));
        assert_eq!(store.stats().items as usize, usize::from(read_whole(&store, "new").is_some()));
    });
}

#[test]
fn appends_to_a_large_value_are_all_there() {
    explore(|| {
        let store = memory();
        set(&store, "k", 1);
        let append = Write { mode: WriteMode::Append, ..Write::default() };
        let appenders: Vec<_> = (0..2)
            .map(|_| {
                let store = store.clone();
                thread::spawn(move || {
                    let written = store.set(&key("k"), &[1; 1000], &append).now().expect("memory does not fail");
                    assert!(matches!(written, Written::Stored { .. }), "{written:?}");
                })
            })
            .collect();
        appenders.into_iter().for_each(|appender| appender.join().unwrap());
        assert_eq!(read_whole(&store, "k"), Some((1, LARGE + 2000)));
    });
}
