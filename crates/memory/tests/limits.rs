//! Guards the one number that bounds everything: pages taken and not counted, limits of a few pages that lock up, and items
//! that a tiny store accepts and then cannot show.

mod common;

use std::sync::Arc;

use common::{Node, START, config, signed, stored, version_of};
use moneta_memory::{ConfigError, Memory, MemoryConfig};
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock};

#[test]
fn index_logs_and_ghosts_stay_within_the_limit_after_every_write() {
    for item_max in [1024, 64 << 10, 1 << 20] {
        let limit = MemoryConfig::limit_min(item_max);
        let node = Node::new(&MemoryConfig { item_max, ..config(limit) });
        let mut random = fastrand::Rng::with_seed(common::seed());
        for version in 0..20_000u64 {
            let key = random.u64(0..2_000);
            let most = [100, 1000, item_max][random.usize(0..3)];
            let value = signed(key, version, random.usize(24..=most));
            assert!(stored(node.set(&format!("{key}"), &value)), "write {version}: {:?}", node.memory.stats());
            let used = node.memory.numbers().memory_bytes();
            assert!(used <= limit, "{used} bytes of {limit}");
            assert_eq!(node.get(&format!("{key}")).expect("just stored"), value);
            let other = random.u64(0..2_000);
            if let Some(value) = node.get(&format!("{other}")) {
                version_of(other, &value);
            }
        }
        node.verify();
    }
}

#[test]
fn nothing_but_keys_fills_a_store_and_it_goes_on() {
    let node = Node::new(&MemoryConfig { item_max: 1024, ..config(2 << 20) });
    for number in 0..500_000 {
        assert!(stored(node.set(&format!("{number}"), b"")), "{:?}", node.memory.stats());
    }
    let held = (490_000..500_000).filter(|number| node.get(&format!("{number}")).is_some()).count();
    assert!(held > 5_000, "{held} of the last 10,000");
    node.verify();
}

#[test]
fn versions_of_a_key_never_share_a_cas_value_however_long_a_segment_stays_open() {
    use moneta_store::request::Write;
    use moneta_store::{Key, KeyHash, Written};
    let node = Node::new(&config(8 << 20));
    node.set("seldom", b"0");
    let mut last = std::collections::HashMap::new();
    let mut random = fastrand::Rng::with_seed(common::seed());
    // Overwrites in place use up the sequence and no room: the open segment's base falls far behind.
    for round in 0..300_000u64 {
        let key = random.u64(0..100);
        let name = if round % 5000 == 0 { format!("new {round}") } else { format!("{key}") };
        let Written::Stored { cas } = node.write(&name, b"value", &Write::default()) else { panic!("refused") };
        if let Some(before) = last.insert(name.clone(), cas) {
            assert!(cas > before, "{cas} after {before}");
        }
        let mut shown = 0;
        let mut show = |item: &moneta_store::ItemRef<'_>| shown = item.meta.cas;
        let _ = node.memory.peek(&Key::new(name.as_bytes(), KeyHash::seeded(0)), &mut show).now();
        assert_eq!(shown, cas);
    }
    node.verify();
}

#[test]
fn how_long_items_lie_idle_before_they_go_is_told() {
    let node = Node::new(&MemoryConfig { item_max: 1024, ..config(2 << 20) });
    for number in 0..1000 {
        assert!(stored(node.set(&format!("old {number}"), &[0; 1000])));
    }
    node.clock.advance(50);
    let before = node.memory.stats();
    assert_eq!((before.kind, before.evictions, before.tail_idle, before.evicted_idle), ("ram", 0, 50, 0));
    let mut number = 0;
    while node.memory.stats().evictions == 0 {
        assert!(stored(node.set(&format!("new {number}"), &[0; 1000])));
        number += 1;
    }
    assert_eq!(node.memory.stats().evicted_idle, 50, "old ones go first");
}

#[test]
fn a_limit_that_is_too_small_is_refused_with_one_that_is_not() {
    let of_copies = Versioning { cluster: true, ..Versioning::default() };
    for (shards, versioning) in [(1, Versioning::default()), (4, Versioning::default()), (1, of_copies), (4, of_copies)]
    {
        let config = |limit| MemoryConfig { shards: Some(shards), versioning, ..config(limit) };
        let open = |limit| Memory::new(&config(limit), Arc::new(Clock::manual(START)));
        let Err(ConfigError::TooSmall { needed, .. }) = open(MemoryConfig::limit_min(1 << 20) - 1) else {
            panic!("{shards} shards fit")
        };
        assert!(open(needed).is_ok(), "{shards} shards, {versioning:?}: {needed} bytes are too few");
    }
}
