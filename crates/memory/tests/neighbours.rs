//! Records beside room that another thread fills without the shard's lock.
//!
//! Guards against a look at a record that takes in what lies after it. That goes well on every machine at hand and is undefined
//! all the same: Miri sees it (`make miri`).

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Node, config, stored};

/// Long enough to be copied without the lock.
const LARGE: usize = (64 << 10) + 1;
/// Under Miri a copy of a large value takes a while.
const ROUNDS: usize = if cfg!(miri) { 8 } else { 500 };

#[test]
fn small_records_are_found_and_changed_beside_a_large_value_under_way() {
    let node = Node::new(&config(16 << 20));
    for round in 0..ROUNDS {
        assert!(stored(node.set(&format!("before {round}"), b"1")));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(stored(node.set("large", &vec![round as u8; LARGE])));
                over.store(true, Ordering::Release);
            });
            while !over.load(Ordering::Acquire) {
                assert_eq!(node.get(&format!("before {round}")).as_deref(), Some(&b"1"[..]));
                assert!(stored(node.set(&format!("after {round}"), b"2")));
                std::thread::yield_now();
            }
        });
        assert_eq!(node.get("large"), Some(vec![round as u8; LARGE]));
    }
    node.verify();
}
