//! The truth table of the commands whose corners no manual spells out, as sentences about the model that every store is
//! compared with.
//!
//! Guards against the silent kind of incompatibility: two stores that agree with each other and not with memcached. Seen on
//! a live memcached 1.6.18; explicit CAS values (meta `E`), dropped values (`md x`) and vivifying appends (`ms MA N`), which
//! that version lacks, as 1.6.45 has them.

mod arithmetic;
mod deletes;
mod flushes;
mod reads;
mod writes;

use std::sync::Arc;

use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock, Deleted, Expiry, Item, ItemRef, Key, KeyHash, Lookup, Number, Written};
use moneta_testkit::model::ModelStore;

const START: u32 = 1_000_000_000;
const VALUE_MAX: usize = 1000;

/// A model under a clock that only the test moves, with one key to play on.
struct Table {
    clock: Arc<Clock>,
    store: ModelStore,
}

fn key() -> Key<'static> {
    Key::new(b"k", KeyHash::seeded(0))
}

fn seconds(count: i64) -> Option<Exptime> {
    Some(Exptime(count))
}

fn at(seconds: u32) -> Expiry {
    Expiry(START + seconds)
}

impl Table {
    fn empty() -> Self {
        let clock = Arc::new(Clock::manual(START));
        Self { store: ModelStore::new(Arc::clone(&clock), VALUE_MAX), clock }
    }

    /// `ms k <value> T100 F7`.
    fn with(value: &str) -> Self {
        let table = Self::empty();
        table.stored(value, &Write { flags: 7, exptime: Exptime(100), ..Write::default() });
        table
    }

    fn set(&self, value: &str, request: &Write) -> Written {
        self.store.set(&key(), value.as_bytes(), request).now().unwrap()
    }

    fn stored(&self, value: &str, request: &Write) -> u64 {
        match self.set(value, request) {
            Written::Stored { cas } => cas,
            other => panic!("expected to store, got {other:?}"),
        }
    }

    /// `mg k`.
    fn get(&self, request: &Retrieve) -> Result<Item, Lookup> {
        self.classic_get(&Retrieve { claim: true, ..*request })
    }

    fn classic_get(&self, request: &Retrieve) -> Result<Item, Lookup> {
        let mut seen = None;
        let mut visitor = |item: &ItemRef<'_>| seen = Some(Item::copy(item));
        let lookup = self.store.get(&key(), request, &mut visitor).now().unwrap();
        seen.ok_or(lookup)
    }

    /// `mg k` with everything it can show.
    fn read(&self) -> Item {
        self.get(&Retrieve::default()).expect("something to read")
    }

    fn peek(&self) -> Item {
        let mut seen = None;
        let mut visitor = |item: &ItemRef<'_>| seen = Some(Item::copy(item));
        let lookup = self.store.peek(&key(), &mut visitor).now().unwrap();
        seen.unwrap_or_else(|| panic!("something to see, not {lookup:?}"))
    }

    fn is_empty(&self) -> bool {
        matches!(self.get(&Retrieve { bump: false, ..Retrieve::default() }), Err(Lookup::Miss { .. }))
    }

    fn delete(&self, request: &Delete) -> Deleted {
        self.store.delete(&key(), request).now().unwrap()
    }

    /// `md k I`.
    fn invalidate(&self) {
        assert_eq!(self.delete(&Delete { invalidate: true, ..Delete::default() }), Deleted::Deleted);
    }

    fn arithmetic(&self, request: &Arithmetic) -> Number {
        self.store.arithmetic(&key(), request).now().unwrap()
    }

    fn incr(&self, delta: u64) -> Number {
        self.arithmetic(&Arithmetic { delta, ..Arithmetic::default() })
    }

    fn decr(&self, delta: u64) -> Number {
        self.arithmetic(&Arithmetic { delta, decrement: true, ..Arithmetic::default() })
    }

    fn flush(&self, delay: i64) {
        self.store.flush(Exptime(delay)).now().unwrap();
    }
}
