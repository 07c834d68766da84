//! Guards against a shard that stops for ever: a write that needs room while the oldest segments are pinned by a reader
//! cannot wait for them under the lock that the reader needs to let go. And against torn reads of what is pinned.

mod common;

use std::sync::mpsc;
use std::time::Duration;

use common::{Node, config, signed, stored, version_of};
use moneta_store::request::{Retrieve, Write, WriteMode};
use moneta_store::{Calls, ItemRef, Key, KeyHash, Lookup};

/// Far longer than any of this takes; a hang must end as a failure. Miri takes some hundred times as long.
const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 3600 } else { 120 });
/// Bytes of the values that take the room of others. Miri counts calls, not bytes: there they are few and long, and short enough
/// all the same to be copied under the shard's lock.
const SMALL: usize = if cfg!(miri) { 60_000 } else { 1000 };

/// Runs `body` on a separate thread; fails if it does not come back.
fn without_hanging(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the shard hangs"),
        _ => thread.join().expect("the body found no fault"),
    }
}

/// Reads a large item, and while its segments are pinned does something else with the store.
fn while_reading(node: &Node, key: &str, mut other: impl FnMut()) -> Vec<u8> {
    let mut value = Vec::new();
    let mut show = |item: &ItemRef<'_>| {
        other();
        value = item.value.to_vec();
    };
    let lookup = node.memory.get(&Key::new(key.as_bytes(), KeyHash::seeded(0)), &Retrieve::default(), &mut show).now();
    assert_eq!(lookup.expect("RAM does not fail"), Lookup::Visited);
    value
}

/// Stores small values, `bytes` of them in all, each under another key.
fn fill(node: &Node, prefix: &str, bytes: usize) {
    for number in 0..bytes / SMALL {
        assert!(stored(node.set(&format!("{prefix} {number}"), &[b'v'; SMALL])), "write {number} is refused");
    }
}

#[test]
fn writes_go_on_while_the_oldest_segments_are_being_read() {
    without_hanging(|| {
        let node = Node::new(&config(8 << 20));
        assert!(stored(node.set("large", &signed(0, 1, 300_000))));
        let value = while_reading(&node, "large", || fill(&node, "small", 40_000_000));
        assert_eq!(version_of(0, &value), 1);
        node.verify();
    });
}

#[test]
fn a_flush_and_new_writes_leave_what_is_being_read_alone() {
    without_hanging(|| {
        let node = Node::new(&config(8 << 20));
        assert!(stored(node.set("large", &signed(0, 1, 500_000))));
        let value = while_reading(&node, "large", || {
            for round in 0..3 {
                node.memory.flush(moneta_store::request::Exptime(0)).now().expect("RAM does not fail");
                fill(&node, &round.to_string(), 8_000_000);
            }
            assert!(node.get("large").is_none());
        });
        assert_eq!(version_of(0, &value), 1);
        node.verify();
    });
}

#[test]
fn overwriting_and_deleting_what_is_being_read_leaves_the_reader_alone() {
    without_hanging(|| {
        let node = Node::new(&config(8 << 20));
        for version in 1..if cfg!(miri) { 4 } else { 20 } {
            assert!(stored(node.set("large", &signed(0, version, 200_000))));
            let value = while_reading(&node, "large", || {
                assert!(stored(node.set("large", &signed(0, version + 1, 210_000))));
                node.delete("large");
                fill(&node, "small", 3_000_000);
            });
            assert_eq!(version_of(0, &value), version);
        }
        node.verify();
    });
}

#[test]
fn the_limit_sinks_while_the_oldest_segments_are_being_read() {
    without_hanging(|| {
        let node = Node::new(&config(16 << 20));
        assert!(stored(node.set("large", &signed(0, 1, 900_000))));
        fill(&node, "small", 20_000_000);
        // Promoted or not: it must be there to be read.
        if !stored(node.set("large", &signed(0, 2, 900_000))) {
            return;
        }
        while_reading(&node, "large", || {
            assert!(node.memory.resize(6 << 20));
            node.memory.settle();
        });
        assert!(node.memory.resize(6 << 20));
        node.verify();
    });
}

#[test]
fn an_append_takes_the_value_that_is_there_when_it_takes_effect() {
    // A short value overwritten in place under the CAS value it had, while a long one is being put after it.
    let node = Node::new(&config(8 << 20));
    let fixed = Write { new_cas: Some(1 << 60), ..Write::default() };
    let tail = vec![b'-'; 500_000];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..if cfg!(miri) { 20 } else { 4_000u32 } {
                let letter = b'a' + (round % 26) as u8;
                assert!(stored(node.write("key", &vec![letter; 30_000], &fixed)));
            }
        });
        while !writer.is_finished() {
            let append = Write { mode: WriteMode::Append, new_cas: Some(1 << 60), ..Write::default() };
            node.write("key", &tail, &append);
            let Some(value) = node.get("key") else { continue };
            let letter = value[0];
            assert!(value[..30_000] == [letter; 30_000], "halves of two values");
        }
    });
    node.verify();
}
