//! Guards memory that a smaller limit has to give back to the system. Alone in its file: it measures the memory of the whole
//! process.

mod common;

use common::{Node, config, signed, stored, version_of};
use moneta_store::Calls;

#[test]
fn memory_goes_back_to_the_system() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux");
        let line = statm.lines().find(|line| line.starts_with("Rss:")).expect("a line of it");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
    };
    let node = Node::new(&config(256 << 20));
    for number in 0..250_000 {
        node.set(&format!("{number}"), &[b'v'; 1000]);
    }
    let before = resident();
    assert!(before > 240 << 20);
    assert!(node.memory.resize(16 << 20));
    node.memory.settle();
    let after = resident();
    assert!(before.saturating_sub(after) > 200 << 20, "{} MiB before, {} MiB after", before >> 20, after >> 20);
    for number in 0..20_000 {
        assert!(stored(node.set(&format!("new {number}"), &[b'v'; 1000])));
    }
    assert!(node.memory.resize(64 << 20));
    for number in 0..50_000u64 {
        assert!(stored(node.set(&format!("signed {number}"), &signed(number, 1, 1000))));
    }
    for number in 40_000..50_000u64 {
        let value = node.get(&format!("signed {number}")).expect("64 MiB hold these");
        assert_eq!(version_of(number, &value), 1);
    }
    node.verify();
}
