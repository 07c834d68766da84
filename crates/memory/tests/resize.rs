//! Guards `cache_memlimit`: a limit that is told but not kept, or a node that refuses
//! every write afterwards because its index or its ghosts alone are larger than the new limit.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Node, config, signed, stored, version_of};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::Retrieve;
use moneta_store::{Calls, Clock, ItemRef, Key, KeyHash, Lookup};

/// Pages by all parts of the store, in bytes.
fn used(node: &Node) -> u64 {
    node.memory.numbers().memory_bytes()
}

#[test]
fn a_store_of_small_items_works_on_under_a_far_smaller_limit() {
    let small = MemoryConfig { item_max: 64 << 10, ..config(64 << 20) };
    let node = Node::new(&small);
    for number in 0..1_500_000 {
        assert!(stored(node.set(&format!("{number}"), b"")));
    }
    assert!(node.memory.resize(2 << 20));
    node.memory.settle();
    assert!(used(&node) <= 2 << 20, "{:?}", node.memory.stats());
    node.verify();
    for number in 0..100_000 {
        assert!(stored(node.set(&format!("new {number}"), &[b'v'; 100])), "{:?}", node.memory.stats());
    }
    let held = (90_000..100_000).filter(|number| node.get(&format!("new {number}")).is_some()).count();
    assert!(held > 2_000, "{held} of the last 10,000 under 2 MiB: {:?}", node.memory.stats());
    node.verify();
}

#[test]
fn under_load_the_limit_is_kept_and_values_stay_whole() {
    let node = Node::new(&MemoryConfig { shards: Some(2), ..config(32 << 20) });
    let stop = AtomicBool::new(false);
    let seed = common::seed();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (node, stop) = (&node, &stop);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + thread);
                while !stop.load(Ordering::Relaxed) {
                    let key = random.u64(0..20_000);
                    let length =
                        if random.u8(0..100) == 0 { random.usize(24..300_000) } else { random.usize(24..3000) };
                    if random.bool() {
                        node.set(&format!("{key}"), &signed(key, 1, length));
                    } else if let Some(value) = node.get(&format!("{key}")) {
                        version_of(key, &value);
                    }
                }
            });
        }
        for round in 0..40u64 {
            let limit = if round % 2 == 0 { 8 << 20 } else { 32 << 20 };
            assert!(node.memory.resize(limit));
            node.memory.settle();
            assert!(used(&node) <= limit, "over the limit after resize {round}");
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    node.verify();
}

/// A worker or the thread of signals asks for it, and must not be busy with gigabytes of evictions.
#[test]
fn a_shrink_goes_on_after_it_was_asked_for() {
    let small = MemoryConfig { item_max: 64 << 10, shards: Some(2), ..config(64 << 20) };
    let node = Node::new(&small);
    for number in 0..400_000 {
        assert!(stored(node.set(&format!("{number}"), &[b'v'; 100])));
    }
    let full = used(&node);
    let held = (0..400_000).rev().find(|number| node.get(&format!("{number}")).is_some()).expect("some are there");
    let key = format!("{held}");
    let mut visited = false;
    // Items are shown under their shard's lock: who shrinks the store here waits for nothing.
    // The second time is a reload that changes nothing.
    let mut show = |_: &ItemRef<'_>| visited = node.memory.resize(2 << 20) && node.memory.resize(2 << 20);
    let read = node.memory.get(&Key::new(key.as_bytes(), KeyHash::seeded(0)), &Retrieve::default(), &mut show).now();
    assert!(matches!(read, Ok(Lookup::Visited)) && visited);
    node.memory.settle();
    assert!(full > 16 << 20 && used(&node) <= 2 << 20);
    node.verify();
}

#[test]
fn a_limit_beyond_what_locations_can_name_is_refused() {
    // 128 GiB a shard; nothing is mapped before it is used.
    let clock = || std::sync::Arc::new(Clock::manual(common::START));
    assert!(Memory::new(&config(1 << 40), clock()).is_err(), "one shard cannot name a tebibyte");
    let node = Node::new(&config(8 << 20));
    assert!(!node.memory.resize(1 << 40));
    assert!(node.memory.resize(64 << 30));
}

#[test]
fn a_limit_too_small_for_the_largest_item_is_refused() {
    let node = Node::new(&config(8 << 20));
    assert!(!node.memory.resize(MemoryConfig::limit_min(1 << 20) - 1));
    assert!(node.memory.resize(MemoryConfig::limit_min(1 << 20)));
    assert!(stored(node.set("large", &vec![b'v'; 1 << 20])));
    node.verify();
}
