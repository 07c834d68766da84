//! Guards what only threads under short memory can break: a value torn or of another key, an old version that comes back
//! after a newer one was seen, and books that no longer add up afterwards.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::{Node, config, signed, stored, version_of};
use moneta_memory::MemoryConfig;
use moneta_store::Calls;
use moneta_store::request::Exptime;

const KEYS: u64 = 400;
const THREADS: u64 = 4;
const STEPS: u64 = 15_000;

/// Newest version that was surely stored of each key, by each thread: threads share no keys.
struct Ledger {
    versions: Vec<AtomicU64>,
}

fn work(node: &Node, ledger: &Ledger, thread: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed.wrapping_add(thread));
    for version in 1..=STEPS {
        let own = random.u64(0..KEYS / THREADS) * THREADS + thread;
        let name = format!("key {own}");
        match random.u8(0..100) {
            0..35 => {
                let length = match random.u8(0..20) {
                    0 => random.usize(60_000..300_000),
                    1..5 => random.usize(24..30_000),
                    _ => random.usize(24..2_000),
                };
                let value = signed(own, version, length);
                // A refused set leaves nothing behind, a stored one only what it stored.
                ledger.versions[own as usize].store(version, Ordering::SeqCst);
                node.set_for(&name, &value, if random.u8(0..4) == 0 { 2 } else { 0 });
            }
            35..38 => {
                node.delete(&name);
                assert!(node.get(&name).is_none(), "{name} came back after its deletion");
            }
            38..40 => grow_and_shrink(node, thread, &mut random),
            40 if version % 64 == 0 => _ = node.memory.flush(Exptime(0)),
            41 => node.clock.advance(u32::from(random.u8(0..16) == 0)),
            42 if version % 8 == 0 => {
                node.memory.resize(random.u64(6..=16) << 20);
            }
            43 => walk(node),
            _ => read(node, ledger, random.u64(0..KEYS), thread),
        }
    }
}

fn read(node: &Node, ledger: &Ledger, key: u64, thread: u64) {
    let before = ledger.versions[key as usize].load(Ordering::SeqCst);
    let Some(value) = node.get(&format!("key {key}")) else { return };
    let version = version_of(key, &value);
    if key % THREADS == thread {
        assert_eq!(version, before, "key {key}: the writer itself reads another version than its last");
    } else {
        // Its writer may be at work on the next, but never goes back behind what had begun before the read.
        assert!(version <= ledger.versions[key as usize].load(Ordering::SeqCst));
    }
}

/// Appends to a value until it is large; it must always be so many times the same bytes.
fn grow_and_shrink(node: &Node, thread: u64, random: &mut fastrand::Rng) {
    let name = format!("grown {thread}");
    let piece = vec![b'a' + thread as u8; 9_000];
    if !stored(node.set(&name, &piece)) {
        return;
    }
    let mut pieces = 1;
    for _ in 0..random.u32(0..20) {
        if !stored(node.append(&name, &piece)) {
            break;
        }
        pieces += 1;
        let Some(value) = node.get(&name) else { break };
        assert_eq!(value.len(), pieces * piece.len(), "a piece was lost or put there twice");
        assert!(value.iter().all(|&byte| byte == piece[0]), "{name} holds foreign bytes");
    }
}

fn walk(node: &Node) {
    let mut cursor = moneta_store::Cursor::default();
    while !matches!(
        node.memory.walk(&mut cursor, &mut |item| assert!(!item.key.is_empty())),
        moneta_store::Walking::End
    ) {}
}

#[test]
fn values_stay_whole_and_books_in_order_under_threads_and_pressure() {
    let seed = common::seed();
    for shards in [1, 2] {
        let node = Node::new(&MemoryConfig { shards: Some(shards), ..config(12 << 20) });
        let ledger = Ledger { versions: (0..KEYS).map(|_| AtomicU64::new(0)).collect() };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (node, ledger) = (&node, &ledger);
                scope.spawn(move || work(node, ledger, thread, seed));
            }
        });
        assert!(node.memory.resize(12 << 20));
        node.memory.settle();
        node.verify();
    }
}
