//! Guards a store that must not evict (-M): memory whose owners are dead has to come back, or the node refuses every write
//! for ever although most of it is empty; and nothing that lives may be dropped for it.

mod common;

use common::{Node, config, stored};
use moneta_memory::MemoryConfig;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{Calls, Deleted, Key, KeyHash, Number, Written};

fn strict() -> Node {
    Node::new(&MemoryConfig { evict: false, ..config(8 << 20) })
}

/// Stores keys until one is refused; how many there are.
fn fill(node: &Node, prefix: &str, bytes: usize, seconds: i64) -> usize {
    (0..1_000_000)
        .find(|number| !stored(node.set_for(&format!("{prefix}{number}"), &vec![b'v'; bytes], seconds)))
        .expect("memory has an end")
}

#[test]
fn room_of_deleted_items_is_used_again_however_they_lie() {
    for (bytes, keep_one_in) in [(100, 4), (1000, 2), (1000, 3), (20_000, 3), (200, 50)] {
        let node = strict();
        let count = fill(&node, "a", bytes, 0);
        let kept = |number: &usize| number.is_multiple_of(keep_one_in);
        for number in (0..count).filter(|number| !kept(number)) {
            assert_eq!(node.delete(&format!("a{number}")), Deleted::Deleted);
        }
        let again = fill(&node, "b", bytes, 0);
        let freed = count - count.div_ceil(keep_one_in);
        assert!(again * 10 >= freed * 7, "{bytes} bytes, 1 of {keep_one_in} kept: {again} new for {freed} deleted");
        for number in (0..count).filter(kept) {
            assert!(node.get(&format!("a{number}")).is_some(), "key {number} was dropped");
        }
        assert_eq!(node.memory.stats().evictions, 0);
        node.verify();
    }
}

#[test]
fn room_of_expired_items_is_used_again() {
    let node = strict();
    let count = fill(&node, "a", 500, 10);
    node.clock.advance(10);
    assert!(fill(&node, "b", 500, 0) * 100 >= count * 99);
    assert_eq!(node.memory.stats().evictions, 0);
    assert_eq!(node.memory.stats().reclaimed, count as u64);
    node.verify();
}

#[test]
fn what_needs_no_room_is_done_when_there_is_none() {
    let node = strict();
    node.set("number", b"100");
    node.set("number", b"100");
    node.set_for("stale", b"value", 1000);
    node.set_for("stale", b"value", 1000);
    node.set("touched", b"value");
    fill(&node, "a", 3000, 0);
    fill(&node, "b", 1, 0);
    let key = |key: &'static str| Key::new(key.as_bytes(), KeyHash::seeded(0));
    let plus = Arithmetic { delta: 5, ..Arithmetic::default() };
    let number = node.memory.arithmetic(&key("number"), &plus).now().expect("RAM does not fail");
    assert!(matches!(number, Number::Value { number: 105, .. }), "{number:?}");
    let invalidate = Delete { invalidate: true, ..Delete::default() };
    let deleted = node.memory.delete(&key("stale"), &invalidate).now().expect("RAM does not fail");
    assert_eq!(deleted, Deleted::Deleted);
    assert!(stored(node.set("number", b"107")), "a value that fits over the old one is refused");
    let absent = node.memory.arithmetic(&key("absent"), &plus).now().expect("RAM does not fail");
    assert_eq!(absent, Number::NotFound);
    assert_eq!(node.memory.stats().evictions, 0);
    node.verify();
}

#[test]
fn a_full_store_still_answers_by_the_rules() {
    let node = strict();
    fill(&node, "a", 3000, 0);
    fill(&node, "b", 1, 0);
    let touch = Retrieve { touch: Some(Exptime(100)), ..Retrieve::default() };
    let touched =
        node.memory.get(&Key::new(b"a0", KeyHash::seeded(0)), &touch, &mut |_: &moneta_store::ItemRef<'_>| {}).now();
    // It has no field for an expiry, and there is no room for one: an error, and the item stays as it was.
    assert!(touched.is_err() || touched.is_ok_and(|lookup| lookup == moneta_store::Lookup::Visited));
    assert!(node.get("a0").is_some());
    let large = node.write("c", &vec![b'v'; 900_000], &Write::default());
    assert_eq!(large, Written::OutOfMemory);
    node.verify();
}

#[test]
fn overwriting_with_other_sizes_does_not_use_memory_up() {
    let node = strict();
    let mut random = fastrand::Rng::with_seed(common::seed());
    for _ in 0..200_000 {
        let key = format!("key {}", random.u32(0..4000));
        let value = vec![b'v'; random.usize(0..2000)];
        assert!(stored(node.set(&key, &value)), "refused with {:?}", node.memory.stats());
    }
    assert_eq!(node.memory.stats().evictions, 0);
    node.verify();
}
