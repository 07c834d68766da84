//! Guards the hand-over of whole items: each must arrive with all its marks, whatever its size and whatever was there, and
//! one that does not fit must not leave an older value behind.

mod common;

use common::{Node, START, config, signed, stored};
use moneta_memory::MemoryConfig;
use moneta_store::{Calls, Expiry, Item, ItemMeta, ItemRef, Key, KeyHash, Put, Rest, Value, Written};

/// A value's second half, elsewhere.
struct Half<'a>(&'a [u8]);

impl Rest for Half<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn copy_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes(), KeyHash::seeded(0))
}

fn peek(node: &Node, name: &str) -> Option<Item> {
    let mut seen = None;
    let mut show = |item: &ItemRef<'_>| seen = Some(Item::copy(item));
    let _ = node.memory.peek(&key(name), &mut show);
    seen
}

/// Every combination of marks, with and without expiry, flags and a CAS value of each size.
fn metas() -> impl Iterator<Item = ItemMeta> {
    (0..8u32).flat_map(|marks| {
        [1, 1 << 47, u64::MAX].map(|cas| ItemMeta {
            flags: marks & 1,
            cas,
            unversioned: false,
            expiry: Expiry(if marks & 2 == 0 { 0 } else { START + 100 }),
            expiry_before: Expiry(if marks & 2 == 0 { 0 } else { START + 100 }),
            last_access: START - 50,
            fetched: marks & 1 != 0,
            stale: marks & 2 != 0,
            token_sent: marks & 4 != 0,
            won: false,
        })
    })
}

#[test]
fn an_item_of_any_size_arrives_as_it_was_whatever_was_there() {
    let node = Node::new(&config(64 << 20));
    for (number, meta) in metas().enumerate() {
        for length in [0, 30, 5000, 64 << 10, (64 << 10) + 1, 1 << 20] {
            for before in [None, Some(10), Some(length), Some(200_000)] {
                let name = format!("{number} {length} {before:?}");
                if let Some(length) = before {
                    assert!(stored(node.set(&name, &vec![b'o'; length])));
                }
                let value = signed(1, 1, length.max(24))[..length].to_vec();
                let half = Half(&value[length / 2..]);
                let split = Value::split(&value[..length / 2], &half);
                for lies in [Value::whole(&value), split] {
                    let item = ItemRef { meta, value: lies };
                    let written = node.memory.put(&key(&name), &item, Put::Any).now().unwrap();
                    assert_eq!(written, Written::Stored { cas: meta.cas });
                    assert_eq!(peek(&node, &name), Some(Item { meta, value: value.clone().into() }), "{name}");
                }
                node.delete(&name);
            }
        }
    }
    node.verify();
}

#[test]
fn an_item_without_cas_value_gets_the_next() {
    let node = Node::new(&config(8 << 20));
    let Written::Stored { cas: before } = node.set("a", b"1") else { panic!("there is room") };
    let item = ItemRef { meta: ItemMeta::default(), value: Value::whole(b"2") };
    let Written::Stored { cas } = node.memory.put(&key("a"), &item, Put::Any).now().unwrap() else {
        panic!("there is room")
    };
    assert!(cas > before, "{cas} after {before}");
}

#[test]
fn replacing_needs_something_live() {
    let node = Node::new(&config(8 << 20));
    let meta = ItemMeta { cas: 7, ..ItemMeta::default() };
    for length in [10, 100_000] {
        let value = vec![b'n'; length];
        let item = ItemRef { meta, value: Value::whole(&value) };
        let replace = || node.memory.put(&key("a"), &item, Put::Present).now().unwrap();
        assert_eq!(replace(), Written::NotStored);
        node.set_for("a", b"old", 1);
        assert_eq!(replace(), Written::Stored { cas: 7 });
        assert_eq!(node.get("a").as_deref(), Some(&value[..]));
        node.set_for("a", b"old", 1);
        node.clock.advance(1);
        assert_eq!(replace(), Written::NotStored);
        assert_eq!(node.get("a"), None);
    }
    node.verify();
}

#[test]
fn what_cannot_be_installed_leaves_nothing_old() {
    let node = Node::new(&MemoryConfig { evict: false, ..config(8 << 20) });
    let install = |name: &str, length: usize| {
        let value = vec![b'n'; length];
        let item = ItemRef { meta: ItemMeta::default(), value: Value::whole(&value) };
        node.memory.put(&key(name), &item, Put::Any).now().unwrap()
    };
    node.set("large", b"old");
    assert_eq!(install("large", (1 << 20) + 1), Written::TooLarge);
    assert_eq!(node.get("large"), None);
    for name in ["small", "larger"] {
        node.set(name, b"old");
    }
    let mut count = 0;
    while stored(node.set(&format!("{count}"), &[b'v'; 1000])) {
        count += 1;
    }
    assert_eq!(install("small", 2000), Written::OutOfMemory);
    assert_eq!(install("larger", 200_000), Written::OutOfMemory);
    assert_eq!((node.get("small"), node.get("larger")), (None, None));
    node.verify();
}
