//! What lies below, entry by entry, and what is made of entries that are not as they were written.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use moneta_layers::{Chunked, ChunkedConfig};
use moneta_store::request::{Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{
    Calls, Clock, Cursor, Expiry, ItemMeta, ItemRef, Key, KeyHash, Lookup, Put, Step, Store, Value, Walked, Written,
};
use moneta_testkit::model::ModelStore;

use crate::slow::Slow;

const START: u32 = 1_700_000_000;

struct Fixture {
    clock: Arc<Clock>,
    below: ModelStore,
    store: Chunked<ModelStore>,
}

fn fixture(piece_bytes: u32, whole_max: usize) -> Fixture {
    let clock = Arc::new(Clock::manual(START));
    let below = ModelStore::new(Arc::clone(&clock), 1 << 20);
    let config = ChunkedConfig { piece_bytes, whole_max, item_max: 10_000 };
    let store = Chunked::new(below.clone(), config, Arc::clone(&clock));
    Fixture { clock, below, store }
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes(), KeyHash::seeded(0))
}

fn get(store: &impl Store, name: &str) -> Option<Vec<u8>> {
    match store.get(&key(name), &Retrieve::default(), &mut |_: &ItemRef<'_>| ()).now().unwrap() {
        Lookup::Found(item) => Some(item.value.into_vec()),
        _ => None,
    }
}

fn set(store: &impl Store, name: &str, value: &[u8]) {
    assert!(matches!(store.set(&key(name), value, &Write::default()).now(), Ok(Written::Stored { .. })));
}

/// The end of a request to a store that wakes itself.
fn finish<T>(step: Step<T>) -> T {
    let ended = match step {
        Step::Done(ended) => ended,
        Step::Wait(mut pending) => loop {
            if let Poll::Ready(ended) = pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                break ended;
            }
        },
    };
    ended.expect("the model does not fail")
}

impl Fixture {
    /// Names and metas of what lies below, in the order it came.
    fn entries(&self) -> Vec<(String, ItemMeta, usize)> {
        let (mut entries, mut cursor) = (Vec::new(), Cursor::default());
        let mut show = |entry: &Walked<'_>| {
            entries.push((String::from_utf8(entry.key.to_vec()).unwrap(), entry.meta, entry.value_bytes));
        };
        while matches!(self.below.walk(&mut cursor, &mut show), moneta_store::Walking::More) {}
        entries
    }

    fn raw(&self, name: &str) -> Vec<u8> {
        let mut raw = Vec::new();
        let _ = self.below.peek(&key(name), &mut |item: &ItemRef<'_>| raw = item.value.to_vec());
        raw
    }

    fn figure(&self, name: &str) -> f64 {
        let samples = self.store.metrics();
        samples.iter().find(|sample| sample.metric.name == name).expect("a sample").value.number()
    }
}

#[test]
fn a_short_value_is_one_entry_and_a_long_one_pieces_before_its_head() {
    let fixture = fixture(300, 100);
    set(&fixture.store, "short", &[7; 100]);
    assert_eq!(fixture.entries().iter().map(|entry| (entry.0.as_str(), entry.2)).collect::<Vec<_>>(), [("short", 164)]);
    set(&fixture.store, "long", &[7; 1000]);
    let entries = fixture.entries();
    let sizes: Vec<_> = entries[1..].iter().map(|entry| entry.2).collect();
    assert_eq!(sizes, [324, 324, 324, 124, 64], "the head comes last");
    assert_eq!(entries[5].0, "long");
    assert!(entries[1..5].iter().all(|entry| entry.0.starts_with("moneta:") && entry.0.is_ascii()));
    assert!(entries.iter().all(|entry| entry.1.flags == 0));
    assert_eq!(get(&fixture.store, "long"), Some(vec![7; 1000]));
}

#[test]
fn entries_outlive_their_item_a_little_and_not_for_ever() {
    let fixture = fixture(300, 100);
    for length in [10, 1000] {
        let request = Write { exptime: Exptime(100), ..Write::default() };
        let _ = fixture.store.set(&key("k"), &vec![1; length], &request);
        assert!(fixture.entries().iter().all(|entry| entry.1.expiry == Expiry(START + 102)), "{:?}", fixture.entries());
    }
    fixture.clock.advance(99);
    assert!(get(&fixture.store, "k").is_some());
    fixture.clock.advance(1);
    let miss = fixture.store.get(&key("k"), &Retrieve::default(), &mut |_: &ItemRef<'_>| ()).now().unwrap();
    assert_eq!(miss, Lookup::Miss { expired: true });
}

#[test]
fn a_deleted_item_takes_its_pieces_with_it() {
    let fixture = fixture(300, 100);
    set(&fixture.store, "k", &[1; 1000]);
    let _ = fixture.store.delete(&key("k"), &Delete::default());
    assert_eq!(fixture.entries().len(), 0);
}

#[test]
fn a_piece_that_is_gone_makes_the_item_a_miss() {
    let fixture = fixture(300, 100);
    for number in 0..4 {
        set(&fixture.store, "k", &[1; 1000]);
        let name = fixture
            .entries()
            .iter()
            .rev()
            .map(|entry| entry.0.clone())
            .find(|name| name.ends_with(&format!(":{number}")));
        let _ = fixture.below.delete(&key(&name.unwrap()), &Delete::default());
        assert_eq!(get(&fixture.store, "k"), None);
    }
    assert_eq!(fixture.figure("chunked_values_broken_total"), 4.0);
}

#[test]
fn a_piece_of_another_write_or_place_is_not_taken() {
    let fixture = fixture(300, 100);
    set(&fixture.store, "k", &[1; 600]);
    let first = fixture.entries();
    set(&fixture.store, "k", &[2; 600]);
    let second: Vec<_> =
        fixture.entries().into_iter().filter(|entry| !first.iter().any(|old| old.0 == entry.0)).collect();
    let (old, new, other) = (fixture.raw(&first[0].0), &second[0].0, fixture.raw(&second[1].0));
    assert_eq!(get(&fixture.store, "k"), Some(vec![2; 600]));
    for foreign in [old, other, b"anything".to_vec(), Vec::new()] {
        set(&fixture.below, new, &foreign);
        assert_eq!(get(&fixture.store, "k"), None);
    }
}

#[test]
fn what_others_leave_under_a_key_is_a_miss() {
    let fixture = fixture(300, 100);
    set(&fixture.store, "k", b"mine");
    set(&fixture.store, "other", b"other");
    let (head, other) = (fixture.raw("k"), fixture.raw("other"));
    for foreign in [other, b"plain".to_vec(), Vec::new(), head[..head.len() - 1].to_vec(), [&head[..], b"x"].concat()] {
        set(&fixture.below, "k", &foreign);
        assert_eq!(get(&fixture.store, "k"), None);
    }
    assert_eq!(fixture.figure("chunked_entries_foreign_total"), 5.0);
    set(&fixture.below, "k", &head);
    assert_eq!(get(&fixture.store, "k").as_deref(), Some(&b"mine"[..]));
}

#[test]
fn a_key_that_is_named_like_a_piece_mixes_with_none() {
    let fixture = fixture(300, 100);
    set(&fixture.store, "k", &[1; 600]);
    let piece = fixture.entries()[0].0.clone();
    assert_eq!(get(&fixture.store, &piece), None, "a piece is no item");
    set(&fixture.store, &piece, b"a client's own");
    assert_eq!(get(&fixture.store, &piece).as_deref(), Some(&b"a client's own"[..]));
    assert_eq!(get(&fixture.store, "k"), None, "nor an item a piece");
}

#[test]
fn all_that_is_known_of_an_item_comes_back() {
    let fixture = fixture(300, 100);
    let meta = ItemMeta {
        flags: 0xffff_ffff,
        cas: 12345,
        unversioned: true,
        expiry: Expiry(START + 50),
        expiry_before: Expiry(START + 50),
        last_access: START - 7,
        fetched: true,
        stale: true,
        token_sent: true,
        won: false,
    };
    for length in [0, 100, 101, 1000] {
        let value = vec![3; length];
        let item = ItemRef { meta, value: Value::whole(&value) };
        let written = fixture.store.put(&key("k"), &item, Put::Any).now().unwrap();
        assert_eq!(written, Written::Stored { cas: 12345 });
        let Ok(Lookup::Found(item)) = fixture.store.peek(&key("k"), &mut |_: &ItemRef<'_>| ()).now() else {
            panic!("a hit")
        };
        assert_eq!((item.meta, item.value.into_vec()), (meta, value));
    }
    assert!(fixture.store.next_cas(&key("k")) > 12345);
}

#[test]
fn an_item_is_replaced_only_where_one_is() {
    let fixture = fixture(300, 100);
    let item = ItemRef { meta: ItemMeta::default(), value: Value::whole(b"new") };
    let replace = || fixture.store.put(&key("k"), &item, Put::Present).now().unwrap();
    assert_eq!(replace(), Written::NotStored);
    set(&fixture.store, "k", b"old");
    assert!(matches!(replace(), Written::Stored { .. }));
    fixture.store.forget(&key("k"));
    assert_eq!(replace(), Written::NotStored, "what was forgotten is not there");
    assert_eq!(get(&fixture.store, "k"), None);
}

#[test]
fn another_process_shows_nothing_of_what_lies_there() {
    let fixture = fixture(300, 100);
    set(&fixture.store, "k", b"old");
    let config = ChunkedConfig { piece_bytes: 300, whole_max: 100, item_max: 10_000 };
    let after = Chunked::new(fixture.below.clone(), config, Arc::clone(&fixture.clock));
    assert_eq!(get(&after, "k"), None);
    set(&after, "k", b"new");
    assert_eq!(get(&fixture.store, "k"), None);
    assert_eq!(get(&after, "k").as_deref(), Some(&b"new"[..]));
}

/// The change was made by what the flush left, so it comes after it.
#[test]
fn what_is_added_as_a_delayed_flush_comes_is_there() {
    let clock = Arc::new(Clock::manual(START));
    let config = ChunkedConfig { piece_bytes: 300, whole_max: 100, item_max: 10_000 };
    let below = Slow::always(ModelStore::new(Arc::clone(&clock), 1 << 20));
    let store = Chunked::new(below, config, Arc::clone(&clock));
    finish(store.set(&key("k"), b"old", &Write::default()));
    finish(store.flush(Exptime(1)));
    let add = Write { mode: WriteMode::Add, ..Write::default() };
    let adding = store.set(&key("k"), b"new", &add);
    assert!(matches!(adding, Step::Wait(_)), "it has begun to look for what is there");
    clock.advance(1);
    let added = finish(adding);
    let there = finish(store.get(&key("k"), &Retrieve::default(), &mut |_: &ItemRef<'_>| ()));
    match added {
        Written::Stored { .. } => assert!(matches!(&there, Lookup::Found(item) if item.value == b"new"), "{there:?}"),
        // It looked before the flush.
        written => assert_eq!((written, there), (Written::NotStored, Lookup::Miss { expired: false })),
    }
}
