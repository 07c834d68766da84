//! A tier whose kind is known at run time only: for stacks that options put together, so that a server need not be compiled
//! for each combination. Each request costs one call through a pointer.

use std::fmt;
use std::sync::Arc;

use moneta_protocol::item::ItemRef;
use moneta_protocol::request::{Arithmetic, Delete, Exptime, Retrieve, Write};

use crate::key::Key;
use crate::key_hash::KeyHash;
use crate::outcome::{Deleted, Lookup, Number, Step, Written};
use crate::stats::{Figure, StoreStats};
use crate::store::{Cursor, Driver, Health, Install, Observer, Store, Tier, Visit, Walked, Walking};

/// A tier of any kind. Clones are handles on the same one.
#[derive(Clone)]
pub struct Any(Arc<dyn AnyTier + Send + Sync>);

impl Any {
    /// `tier`, whatever it is.
    pub fn new(tier: impl Tier + Send + Sync + 'static) -> Self {
        Self(Arc::new(tier))
    }
}

impl fmt::Debug for Any {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Any").finish_non_exhaustive()
    }
}

/// [`Tier`] with [`Store`], without generic methods: what can be called through a pointer.
trait AnyTier {
    fn seed(&self) -> KeyHash;
    fn prefetch(&self, keys: &[Key<'_>]);
    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut dyn Visit) -> Step<Lookup>;
    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written>;
    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted>;
    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number>;
    fn peek(&self, key: &Key<'_>, visitor: &mut dyn Visit) -> Step<Lookup>;
    fn flush(&self, delay: Exptime) -> Step<()>;
    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking;
    fn stats(&self) -> StoreStats;
    fn figures(&self) -> Vec<Figure>;
    fn resize(&self, limit: u64) -> bool;
    fn observe(&self, observer: Option<Arc<dyn Observer>>);
    fn driver(&self) -> Option<Box<dyn Driver>>;
    fn health(&self) -> Health;
    fn close(&self);
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written>;
    fn forget(&self, key: &Key<'_>);
    fn next_cas(&self, key: &Key<'_>) -> u64;
    fn pending_flush(&self) -> Option<u32>;
    fn flush_lag(&self) -> u32;
    fn holds(&self, key: &Key<'_>) -> bool;
    fn note_hit(&self, key: &Key<'_>);
}

impl<T: Tier> AnyTier for T {
    fn seed(&self) -> KeyHash {
        Store::seed(self)
    }

    fn prefetch(&self, keys: &[Key<'_>]) {
        Store::prefetch(self, keys)
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut dyn Visit) -> Step<Lookup> {
        Store::get(self, key, request, &mut |item: &ItemRef<'_>| visitor.item(item))
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        Store::set(self, key, value, request)
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        Store::delete(self, key, request)
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        Store::arithmetic(self, key, request)
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut dyn Visit) -> Step<Lookup> {
        Store::peek(self, key, &mut |item: &ItemRef<'_>| visitor.item(item))
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        Store::flush(self, delay)
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        Store::walk(self, cursor, show)
    }

    fn stats(&self) -> StoreStats {
        Store::stats(self)
    }

    fn figures(&self) -> Vec<Figure> {
        Store::figures(self)
    }

    fn resize(&self, limit: u64) -> bool {
        Store::resize(self, limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        Store::observe(self, observer)
    }

    fn driver(&self) -> Option<Box<dyn Driver>> {
        Store::driver(self)
    }

    fn health(&self) -> Health {
        Store::health(self)
    }

    fn close(&self) {
        Store::close(self)
    }

    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        Tier::install(self, key, item, how)
    }

    fn forget(&self, key: &Key<'_>) {
        Tier::forget(self, key)
    }

    fn next_cas(&self, key: &Key<'_>) -> u64 {
        Tier::next_cas(self, key)
    }

    fn pending_flush(&self) -> Option<u32> {
        Tier::pending_flush(self)
    }

    fn flush_lag(&self) -> u32 {
        Tier::flush_lag(self)
    }

    fn holds(&self, key: &Key<'_>) -> bool {
        Tier::holds(self, key)
    }

    fn note_hit(&self, key: &Key<'_>) {
        Tier::note_hit(self, key)
    }
}

impl Store for Any {
    fn seed(&self) -> KeyHash {
        self.0.seed()
    }

    fn prefetch(&self, keys: &[Key<'_>]) {
        self.0.prefetch(keys)
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        self.0.get(key, request, visitor)
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        self.0.set(key, value, request)
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        self.0.delete(key, request)
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        self.0.arithmetic(key, request)
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        self.0.peek(key, visitor)
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.0.flush(delay)
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.0.walk(cursor, show)
    }

    fn stats(&self) -> StoreStats {
        self.0.stats()
    }

    fn figures(&self) -> Vec<Figure> {
        self.0.figures()
    }

    fn resize(&self, limit: u64) -> bool {
        self.0.resize(limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.0.observe(observer)
    }

    fn driver(&self) -> Option<Box<dyn Driver>> {
        self.0.driver()
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    fn close(&self) {
        self.0.close()
    }
}

impl Tier for Any {
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        self.0.install(key, item, how)
    }

    fn forget(&self, key: &Key<'_>) {
        self.0.forget(key)
    }

    fn next_cas(&self, key: &Key<'_>) -> u64 {
        self.0.next_cas(key)
    }

    fn pending_flush(&self) -> Option<u32> {
        self.0.pending_flush()
    }

    fn flush_lag(&self) -> u32 {
        self.0.flush_lag()
    }

    fn holds(&self, key: &Key<'_>) -> bool {
        self.0.holds(key)
    }

    fn note_hit(&self, key: &Key<'_>) {
        self.0.note_hit(key)
    }
}
