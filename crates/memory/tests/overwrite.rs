//! Guards against logs that fill with the dead: the same keys written again and again must not push others out.

mod common;

use common::{Node, config, signed, stored, version_of};
use moneta_store::Calls;
use moneta_store::request::Exptime;

#[test]
fn overwriting_in_place_evicts_nothing_and_leaves_little_behind() {
    let node = Node::new(&config(32 << 20));
    for version in 0..300u64 {
        for key in 0..5_000u64 {
            assert!(stored(node.set(&format!("{key}"), &signed(key, version, 500))));
        }
    }
    let stats = node.memory.stats();
    assert_eq!(stats.evictions, 0);
    let dead = node.memory.numbers().dead_bytes;
    assert!(dead < 2 * stats.bytes, "{dead} {stats:?}");
    for key in 0..5_000u64 {
        assert_eq!(version_of(key, &node.get(&format!("{key}")).expect("nothing was evicted")), 299);
    }
    node.verify();
}

#[test]
fn values_that_change_their_size_leave_at_most_half_of_memory_to_the_dead() {
    let node = Node::new(&config(32 << 20));
    let mut random = fastrand::Rng::with_seed(common::seed());
    let mut versions = vec![0u64; 8_000];
    for version in 1..400_000u64 {
        let key = random.u64(0..8_000);
        versions[key as usize] = version;
        assert!(stored(node.set(&format!("{key}"), &signed(key, version, random.usize(24..2500)))));
    }
    // 8,000 items of 1.3 KiB are 10 MiB of 32: room for three dead bytes to each live one.
    assert_eq!(node.memory.stats().evictions, 0, "{:?}", node.memory.stats());
    for (key, &version) in versions.iter().enumerate().filter(|&(_, &version)| version > 0) {
        let value = node.get(&format!("{key}")).expect("nothing was evicted");
        assert_eq!(version_of(key as u64, &value), version);
    }
    node.verify();
}

#[test]
fn large_values_among_small_ones_do_not_leave_segments_nearly_empty() {
    let node = Node::new(&config(64 << 20));
    let mut random = fastrand::Rng::with_seed(common::seed());
    for version in 0..30_000u64 {
        let key = random.u64(0..100);
        let length = if key < 50 { 70_000 } else { random.usize(24..30_000) };
        assert!(stored(node.set(&format!("{key}"), &signed(key, version, length))));
    }
    // 50 x 70,000 and 50 x 15,000 bytes: 4.3 MB.
    assert_eq!(node.memory.stats().evictions, 0, "{:?}", node.memory.stats());
    node.verify();
}

#[test]
fn a_flush_among_overwrites_resurrects_nothing() {
    let node = Node::new(&config(8 << 20));
    let mut random = fastrand::Rng::with_seed(common::seed());
    for round in 1..100u64 {
        for _ in 0..500 {
            let key = random.u64(0..200);
            let length = if random.u8(0..20) == 0 { 100_000 } else { random.usize(24..3000) };
            assert!(stored(node.set(&format!("{key}"), &signed(key, round, length))));
        }
        node.memory.flush(Exptime(0)).now().expect("RAM does not fail");
        assert!((0..200).all(|key| node.get(&format!("{key}")).is_none()));
        node.verify();
    }
}
