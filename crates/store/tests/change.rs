//! Holds the pure functions of `change` against the model, request by random request.
//!
//! Guards against an engine that stores whole items drifting from what the other engines and memcached do: both sides are
//! written independently.

use std::sync::Arc;

use fastrand::Rng;
use moneta_store::change::{self, Old, Removal, Version};
use moneta_store::request::{Arithmetic, Create, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{
    Calls, Clock, Deleted, Expiry, Item, ItemMeta, ItemRef, Key, KeyHash, Lookup, Number, Put, Written,
};
use moneta_testkit::model::ModelStore;

const NOW: u32 = 1_000_000_000;
const VALUE_MAX: usize = 30;
/// Enough for every pair of options to meet many times over.
const CASES: usize = 200_000;

/// The CAS value that the model picks for its first version; no item and no request brings it.
const PICKED: u64 = 1;

fn key() -> Key<'static> {
    Key::new(b"k", KeyHash::seeded(0))
}

/// Draws requests and items at random.
struct Draw(Rng);

impl Draw {
    fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.bool().then(|| draw(self))
    }

    fn exptime(&mut self) -> Exptime {
        let seconds = [0, -1, 1, 10, 100, 3_000_000_000, i64::from(NOW), i64::from(NOW) + 50];
        Exptime(self.0.choice(seconds).unwrap_or(0))
    }

    fn expiry(&mut self) -> Expiry {
        Expiry(self.0.choice([0, NOW + 1, NOW + 10, NOW + 60, u32::MAX]).unwrap_or(0))
    }

    /// Few enough to be equal often, and in either order when not.
    fn cas(&mut self) -> u64 {
        self.0.u64(10..13)
    }

    fn number(&mut self) -> u64 {
        self.0.choice([0, 1, 9, 10, 999, u64::MAX]).unwrap_or(0)
    }

    fn value(&mut self) -> Vec<u8> {
        let texts = ["", "0", "9", "99", "7  ", "x", "18446744073709551615", "18446744073709551616"];
        match self.0.u8(0..4) {
            0 => vec![b'v'; self.0.usize(0..VALUE_MAX + 3)],
            _ => self.0.choice(texts).unwrap_or("").as_bytes().to_vec(),
        }
    }

    fn item(&mut self) -> Item {
        let expiry = self.expiry();
        let meta = ItemMeta {
            flags: self.0.u32(0..3),
            cas: self.cas(),
            unversioned: false,
            expiry,
            expiry_before: expiry,
            last_access: NOW - self.0.u32(0..3),
            fetched: self.0.bool(),
            stale: self.0.bool(),
            token_sent: self.0.bool(),
            won: false,
        };
        let mut value = self.value();
        value.truncate(VALUE_MAX);
        Item { meta, value: value.into() }
    }

    fn write(&mut self) -> Write {
        use WriteMode::{Add, Append, Prepend, Replace, Set};
        Write {
            mode: self.0.choice([Set, Add, Replace, Append, Prepend]).unwrap_or(Set),
            flags: self.0.u32(0..3),
            exptime: self.exptime(),
            compare: self.maybe(Self::cas),
            new_cas: self.maybe(Self::cas),
            invalidate: self.0.bool(),
            vivify: self.maybe(Self::exptime),
        }
    }

    fn delete(&mut self) -> Delete {
        Delete {
            compare: self.maybe(Self::cas),
            new_cas: self.maybe(Self::cas),
            invalidate: self.0.bool(),
            touch: self.maybe(Self::exptime),
            drop_value: self.0.bool(),
        }
    }

    fn arithmetic(&mut self) -> Arithmetic {
        Arithmetic {
            delta: self.number(),
            decrement: self.0.bool(),
            create: self.maybe(|draw| Create { initial: draw.number(), exptime: draw.exptime() }),
            touch: self.maybe(Self::exptime),
            compare: self.maybe(Self::cas),
            new_cas: self.maybe(Self::cas),
        }
    }

    fn retrieve(&mut self) -> Retrieve {
        Retrieve {
            touch: self.maybe(Self::exptime),
            vivify: self.maybe(Self::exptime),
            recache: self.maybe(Self::exptime),
            new_cas: self.maybe(Self::cas),
            bump: self.0.bool(),
            claim: self.0.bool(),
            brief: false,
        }
    }
}

/// What lies in the model, dead things being nothing.
fn lies(model: &ModelStore) -> Option<Item> {
    let mut seen = None;
    let _ = model.peek(&key(), &mut |item: &ItemRef<'_>| seen = Some(item_of(item)));
    seen
}

fn item_of(item: &ItemRef<'_>) -> Item {
    Item::copy(item)
}

/// What a version leaves to be read, once stored with the CAS value the model would pick.
fn left(version: &Version<'_>) -> Option<Item> {
    let meta = version.meta(version.cas.unwrap_or(PICKED));
    (!meta.expiry.is_dead(NOW)).then(|| Item { meta, value: version.value.value().into() })
}

/// Runs a case for many seeds, on a model that holds an item in half of them.
fn compare(case: impl Fn(&mut Draw, &ModelStore, Option<&Old<'_>>)) {
    for seed in 0..CASES as u64 {
        let mut draw = Draw(Rng::with_seed(seed));
        let model = ModelStore::new(Arc::new(Clock::manual(NOW)), VALUE_MAX);
        let item = draw.maybe(Draw::item);
        if let Some(item) = &item {
            let _ = model.put(&key(), &item.as_ref(), Put::Any);
        }
        let old = item.as_ref().map(|item| Old { meta: item.meta, value: &item.value });
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&mut draw, &model, old.as_ref())));
        assert!(judged.is_ok(), "seed {seed}, over {item:?}");
    }
}

#[test]
fn writes_are_the_models() {
    compare(|draw, model, old| {
        let (request, value) = (draw.write(), draw.value());
        let expected = model.set(&key(), &value, &request).now().unwrap();
        if !change::needs_old(&request) {
            let blind = change::write(None, &value, &request, NOW, VALUE_MAX).map(|version| left(&version));
            let seen = change::write(old, &value, &request, NOW, VALUE_MAX).map(|version| left(&version));
            assert_eq!(blind, seen, "{request:?} does need to know what is there");
        }
        match change::write(old, &value, &request, NOW, VALUE_MAX) {
            Ok(version) => {
                assert_eq!(Written::Stored { cas: version.cas.unwrap_or(PICKED) }, expected, "{request:?}");
                assert_eq!(left(&version), lies(model), "{request:?}");
            }
            Err(written) => assert_eq!(written, expected, "{request:?}"),
        }
    });
}

#[test]
fn deletes_are_the_models() {
    compare(|draw, model, old| {
        let request = draw.delete();
        let expected = model.delete(&key(), &request).now().unwrap();
        match change::delete(old, &request, NOW) {
            Ok(removal) => {
                assert_eq!(expected, Deleted::Deleted, "{request:?}");
                let left = match removal {
                    Removal::Remove => None,
                    Removal::Rewrite(version) => left(&version),
                };
                assert_eq!(left, lies(model), "{request:?}");
            }
            Err(deleted) => assert_eq!(deleted, expected, "{request:?}"),
        }
    });
}

#[test]
fn numbers_are_the_models() {
    compare(|draw, model, old| {
        let request = draw.arithmetic();
        let expected = model.arithmetic(&key(), &request).now().unwrap();
        match change::arithmetic(old, &request, NOW) {
            Ok(computed) => {
                assert_eq!(computed.answer(computed.version.cas.unwrap_or(PICKED)), expected, "{request:?}");
                assert_eq!(left(&computed.version), lies(model), "{request:?}");
            }
            Err(number) => {
                assert!(!matches!(number, Number::Value { .. }));
                assert_eq!(number, expected, "{request:?}");
            }
        }
    });
}

#[test]
fn reads_are_the_models() {
    compare(|draw, model, old| {
        let request = draw.retrieve();
        let before = lies(model);
        let mut shown = None;
        let lookup = model.get(&key(), &request, &mut |item: &ItemRef<'_>| shown = Some(item_of(item))).now().unwrap();
        let Some(reading) = change::read(old, &request, NOW) else {
            assert_eq!((lookup, shown), (Lookup::Miss { expired: false }, None), "{request:?}");
            return;
        };
        let cas = reading.rewrite.map_or(reading.meta.cas, |version| version.cas.unwrap_or(PICKED));
        let expected = Item { meta: reading.shown(cas), value: reading.value.to_vec().into() };
        assert_eq!(Some(expected), shown, "{request:?}");
        assert_eq!(reading.created, old.is_none());
        // What only counts the read is the engine's own business.
        let left = match reading.rewrite {
            Some(version) => left(&version),
            None => before.map(|item| counted(item, &request)),
        };
        assert_eq!(left, lies(model), "{request:?}");
    });
}

fn counted(mut item: Item, request: &Retrieve) -> Item {
    if request.bump {
        item.meta.fetched = true;
        item.meta.last_access = NOW;
    }
    item
}
