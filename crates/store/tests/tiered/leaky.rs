//! An upper tier short of memory: it forgets items at any time, as one that evicts.

use std::sync::Arc;

use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Cursor, Deleted, Install, ItemRef, Key, KeyHash, Lookup, Number, Observer, Step, Store, StoreStats, Tier, Visit,
    Walked, Walking, Written,
};

/// The model, of which each call may take away what it is about, before or after.
#[derive(Clone)]
pub struct Leaky {
    inner: ModelStore,
    /// One call in so many loses the item; 0: none.
    one_in: u32,
}

/// Too large for any store here.
static OVERSIZE: [u8; (1 << 20) + 1] = [0; (1 << 20) + 1];

/// Deletes as a real engine does: what is dead goes too. The model keeps it, so as to know that it expired, until a value
/// that is too large drives it out.
pub fn delete(store: &ModelStore, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
    let deleted = store.delete(key, request);
    if *request == Delete::default() && matches!(deleted, Step::Done(Ok(Deleted::NotFound))) {
        let driven_out = store.set(key, &OVERSIZE, &Write::default()).now();
        assert_eq!(driven_out.ok(), Some(Written::TooLarge));
    }
    deleted
}

impl Leaky {
    /// Loses nothing.
    pub fn tight(inner: ModelStore) -> Self {
        Self { inner, one_in: 0 }
    }

    /// Loses the item of one call in `one_in`.
    pub fn new(inner: ModelStore, one_in: u32) -> Self {
        Self { inner, one_in }
    }

    fn leak(&self, key: &Key<'_>) {
        if self.one_in > 0 && fastrand::u32(0..self.one_in) == 0 {
            let _ = delete(&self.inner, key, &Delete::default());
        }
    }
}

impl Store for Leaky {
    fn seed(&self) -> KeyHash {
        self.inner.seed()
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        self.leak(key);
        self.inner.get(key, request, visitor)
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let written = self.inner.set(key, value, request);
        self.leak(key);
        written
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        self.leak(key);
        delete(&self.inner, key, request)
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        self.inner.arithmetic(key, request)
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        self.leak(key);
        self.inner.peek(key, visitor)
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.inner.flush(delay)
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.inner.walk(cursor, show)
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn resize(&self, limit: u64) -> bool {
        self.inner.resize(limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.inner.observe(observer);
    }
}

impl Tier for Leaky {
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        let written = self.inner.install(key, item, how);
        self.leak(key);
        written
    }
}
