//! Guards what is kept when memory is full, against traffic that takes one or the other kind of eviction in. A wrong choice stays
//! silent: everything works, and misses more. Reads that miss are followed by a write, as clients do.

mod common;

use common::{Node, config, stored};
use moneta_memory::{Eviction, MemoryConfig};
use moneta_store::Calls;

/// A store of some 6,500 items of 500 bytes.
fn node() -> Node {
    Node::new(&MemoryConfig { item_max: 60_000, ..config(4 << 20) })
}

/// Whether a read hits; a miss is filled.
fn read(node: &Node, key: &str) -> bool {
    let hit = node.get(key).is_some();
    if !hit {
        assert!(stored(node.set(key, &[b'v'; 500])));
    }
    hit
}

/// Hits among these reads.
fn hits(node: &Node, keys: impl IntoIterator<Item = String>) -> usize {
    keys.into_iter().filter(|key| read(node, key)).count()
}

#[test]
fn keys_that_are_wanted_again_soon_get_the_memory_they_need() {
    // Each key is asked for three times, with 1,500 others in between: more than a tenth of memory, and less than a third.
    let node = node();
    let distance = 1_500;
    let reads = |from: u64, to: u64| {
        (from..to)
            .flat_map(move |round| (0..3).map(move |age| (round, age)))
            .filter_map(move |(round, age)| round.checked_sub(age * distance).map(|number| format!("burst {number}")))
    };
    hits(&node, reads(0, 60_000));
    let found = hits(&node, reads(60_000, 80_000));
    assert!(found > 38_000, "{found} of 40,000 hits there can be");
    node.verify();
}

#[test]
fn a_loop_longer_than_memory_and_ghosts_is_kept_in_part() {
    // An LRU has no hit at all.
    let node = node();
    let lap = || (0..20_000).map(|number| format!("loop {number}"));
    for _ in 0..30 {
        hits(&node, lap());
    }
    let found = hits(&node, lap());
    assert!(found > 3_000, "{found} hits of the 6,500 there can be");
    node.verify();
}

#[test]
fn a_scan_leaves_what_is_read_again() {
    let node = node();
    for round in 0..40 {
        hits(&node, (0..3_000).map(|number| format!("wanted {number}")));
        hits(&node, (0..3_000).map(|number| format!("scanned {round} {number}")));
    }
    hits(&node, (0..50_000).map(|number| format!("scanned at last {number}")));
    let found = hits(&node, (0..3_000).map(|number| format!("wanted {number}")));
    assert!(found > 2_500, "{found} of 3,000 are there after a scan of eight times the memory");
    node.verify();
}

#[test]
fn what_was_wanted_once_does_not_hold_memory_for_ever() {
    let node = node();
    for _ in 0..5 {
        hits(&node, (0..6_000).map(|number| format!("old {number}")));
    }
    // Writes alone: nothing proves itself, and the new is as good as the old.
    for number in 0..200_000 {
        assert!(stored(node.set(&format!("new {number}"), &[b'v'; 500])));
    }
    let held = (197_000..200_000).filter(|number| node.get(&format!("new {number}")).is_some()).count();
    assert!(held > 2_700, "{held} of the last 3,000");
    node.verify();
}

#[test]
fn large_items_do_not_take_the_room_of_many_that_are_wanted() {
    // 8,000 small keys and 60 keys of a hundred times the size, all as popular.
    let node = node();
    let mut random = fastrand::Rng::with_seed(common::seed());
    let (mut missed, mut reads) = (0, 0);
    for step in 0..400_000 {
        let number = random.u32(0..8_060);
        let (key, length) =
            if number < 60 { (format!("large {number}"), 50_000) } else { (format!("small {number}"), 450) };
        reads += u32::from(step > 200_000);
        if node.get(&key).is_none() {
            missed += u32::from(step > 200_000);
            assert!(stored(node.set(&key, &vec![b'v'; length])));
        }
    }
    // The small ones alone take 3.9 MB.
    assert!(missed * 100 < reads * 18, "{missed} of {reads} reads missed");
    node.verify();
}

/// Hits of 10,000 small items that are each read once more, when twice the memory of large ones was written and never read.
fn hits_among_large(node: &Node) -> usize {
    let distance = 400;
    let hits = |from: u32, to: u32| {
        (from..to).filter(|round| {
            assert!(stored(node.set(&format!("large {round}"), &[b'v'; 20_000])));
            assert!(stored(node.set(&format!("small {round}"), &[b'v'; 450])));
            node.get(&format!("small {}", round.wrapping_sub(distance))).is_some()
        })
    };
    hits(0, 2_000).count();
    hits(2_000, 12_000).count()
}

#[test]
fn small_items_outlast_large_ones_that_are_not_read_either() {
    let node = node();
    let found = hits_among_large(&node);
    assert!(found > 6_500, "{found} of 10,000");
    node.verify();
}

#[test]
fn a_pinned_policy_does_not_adapt() {
    let config = MemoryConfig { item_max: 60_000, ..config(4 << 20) };
    let node = Node::new(&config);
    let node = Node { memory: node.memory.with_eviction(Eviction::S3Fifo), ..node };
    for round in 0..80_000u64 {
        read(&node, &format!("burst {round}"));
        read(&node, &format!("burst {}", round.saturating_sub(1_500)));
    }
    let stats = node.memory.stats();
    assert!(stats.evicted_unfetched * 2 > stats.evictions, "a tenth of memory is too little for these: {stats:?}");
}
