//! Guards values of many segments: hot ones must stay, refused ones must not cost other items, and many written at once must
//! neither tear nor leave room behind without an owner.

mod common;

use common::{Node, config, signed, stored, version_of};
use moneta_memory::MemoryConfig;
use moneta_store::{Calls, Written};

#[test]
fn large_items_that_are_read_stay() {
    // What passes by is read once, so that it goes to the main log: the large items come to its old end many times.
    let node = Node::new(&config(16 << 20));
    let mut missed = 0;
    for round in 0..150 {
        for number in 0..1_000 {
            node.set(&format!("{round} {number}"), &[b'v'; 1000]);
            node.get(&format!("{round} {number}"));
        }
        for key in 0..16u64 {
            match node.get(&format!("hot {key}")) {
                Some(value) => assert_eq!(version_of(key, &value), round_of(&value)),
                None => {
                    missed += u32::from(round >= 10);
                    assert!(stored(node.set(&format!("hot {key}"), &signed(key, round, 400_000))));
                }
            }
        }
    }
    assert!(missed < 20, "{missed} of 2,240 reads missed: {:?}", node.memory.stats());
    node.verify();
}

/// The round a value was stored in, as it says itself.
fn round_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[8..16].try_into().expect("8 bytes"))
}

#[test]
fn an_append_that_would_grow_too_large_evicts_nothing() {
    let node = Node::new(&config(8 << 20));
    assert!(stored(node.set("large", &vec![b'v'; 900_000])));
    let mut count = 0;
    while node.memory.stats().evictions == 0 {
        assert!(stored(node.set(&format!("{count}"), &[b'v'; 1000])));
        count += 1;
        if count % 1000 == 0 {
            node.get("large");
        }
    }
    let before = node.memory.stats();
    if node.get("large").is_some() {
        for _ in 0..20 {
            assert_eq!(node.append("large", &vec![b'v'; 900_000]), Written::NotStored);
        }
        assert_eq!(node.memory.stats().evictions, before.evictions);
        assert!(node.get("large").is_some());
    }
    node.verify();
}

#[test]
fn writers_of_the_largest_values_at_once_leave_the_books_in_order() {
    let node = Node::new(&MemoryConfig { item_max: 4 << 20, ..config(MemoryConfig::limit_min(4 << 20)) });
    let seed = common::seed();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let node = &node;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + thread);
                for version in 0..60 {
                    let key = random.u64(0..3);
                    let length = random.usize(3 << 20..=4 << 20);
                    node.set(&format!("{key}"), &signed(key, version, length));
                    if let Some(value) = node.get(&format!("{key}")) {
                        version_of(key, &value);
                    }
                }
            });
        }
    });
    node.verify();
    assert!(stored(node.set("last", &signed(9, 9, 4 << 20))), "room was lost: {:?}", node.memory.stats());
    assert_eq!(version_of(9, &node.get("last").expect("just stored")), 9);
    node.verify();
}
