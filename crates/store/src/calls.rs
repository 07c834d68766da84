//! Operations as methods, with outcomes of their own types: for tools and tests. Workers use [`Store::call`].

use std::sync::Arc;

use moneta_item::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_item::{Deleted, ItemRef, Key, Lookup, Number, Version, Written};

use crate::component::{self, Component, Health, Observer, Report};
use crate::context::Cx;
use crate::metric::Sample;
use crate::op::{Op, Put};
use crate::outcome::{Outcome, Step};
use crate::stats::StoreStats;
use crate::store::Store;
use crate::versions::{Floor, Floors};
use crate::visit::{Unseen, Visit};
use crate::walk::{Cursor, Walked, Walking};

/// Operations as methods, for callers that are no workers and have no policy. Every store has them.
pub trait Calls: Store {
    /// [`Op::Read`].
    fn get(&self, key: &Key<'_>, request: &Retrieve, out: &mut dyn Visit) -> Step<Lookup> {
        self.call(&Cx::outside(), key, Op::Read(request), out).map(Outcome::lookup)
    }

    /// [`Op::Peek`].
    fn peek(&self, key: &Key<'_>, out: &mut dyn Visit) -> Step<Lookup> {
        self.call(&Cx::outside(), key, Op::Peek, out).map(Outcome::lookup)
    }

    /// [`Op::Write`].
    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        self.call(&Cx::outside(), key, Op::Write(value, request), &mut Unseen).map(Outcome::written)
    }

    /// [`Op::Delete`].
    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        self.call(&Cx::outside(), key, Op::Delete(request), &mut Unseen).map(Outcome::deleted)
    }

    /// [`Op::Arithmetic`].
    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        self.call(&Cx::outside(), key, Op::Arithmetic(request), &mut Unseen).map(Outcome::number)
    }

    /// [`Op::Put`].
    fn put(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Put) -> Step<Written> {
        self.call(&Cx::outside(), key, Op::Put(item, how), &mut Unseen).map(Outcome::written)
    }

    /// [`Op::Put`] in mode newer.
    fn put_newer(&self, key: &Key<'_>, item: &ItemRef<'_>, as_of: u64) -> Step<Written> {
        self.put(key, item, Put::Newer { as_of, base: None })
    }

    /// [`Op::Bury`].
    fn bury(&self, key: &Key<'_>, version: Version) -> Step<Deleted> {
        self.call(&Cx::outside(), key, Op::Bury(version), &mut Unseen).map(Outcome::deleted)
    }

    /// [`Op::Drop`].
    fn forget(&self, key: &Key<'_>) {
        let _ = self.call(&Cx::outside(), key, Op::Drop, &mut Unseen);
    }

    /// [`Op::Holds`].
    fn holds(&self, key: &Key<'_>) -> bool {
        self.call(&Cx::outside(), key, Op::Holds, &mut Unseen).holds()
    }

    /// [`Op::NoteHit`].
    fn note_hit(&self, key: &Key<'_>) {
        let _ = self.call(&Cx::outside(), key, Op::NoteHit, &mut Unseen);
    }

    /// [`Op::NextCas`].
    fn next_cas(&self, key: &Key<'_>) -> u64 {
        self.call(&Cx::outside(), key, Op::NextCas, &mut Unseen).cas()
    }

    /// Drops everything; see [`component::Flush`]. A store that cannot fails.
    fn flush(&self, delay: Exptime) -> Step<()>
    where
        Self: Sized,
    {
        component::flush(self, &Cx::outside(), delay)
    }

    /// Takes a flush from elsewhere; see [`component::Flush::floor`]. A store that cannot fails.
    fn floor(&self, floor: Floor) -> Step<()>
    where
        Self: Sized,
    {
        component::floor(self, &Cx::outside(), floor)
    }

    /// The flushes that are known to the store.
    fn floors(&self) -> Floors {
        self.parts().flush.map_or_else(Floors::default, component::Flush::floors)
    }

    /// The moment of a delayed flush from before this process; see [`component::Flush::pending`].
    fn pending_flush(&self) -> Option<u32> {
        self.parts().flush.and_then(component::Flush::pending)
    }

    /// Walks a batch of items; see [`component::Walk`]. A store that cannot has none to show.
    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.parts().walk.map_or(Walking::End, |part| part.walk(&Cx::outside(), cursor, show))
    }

    /// Changes the memory limit; false if the store cannot.
    fn resize(&self, limit: u64) -> bool {
        self.parts().resize.is_some_and(|part| part.resize(limit))
    }

    /// Reports departures to `observer`, where the store tells of any.
    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        if let Some(part) = self.parts().observe {
            part.observe(observer);
        }
    }

    /// What the store and everything below it count.
    fn report_all(&self) -> Report
    where
        Self: Sized,
    {
        component::report(self, &Cx::outside())
    }

    /// Gauges and counters.
    fn stats(&self) -> StoreStats
    where
        Self: Sized,
    {
        self.report_all().stats
    }

    /// Metrics that not every store has.
    fn metrics(&self) -> Vec<Sample>
    where
        Self: Sized,
    {
        self.report_all().metrics
    }

    /// Whether it is fit to serve.
    fn health(&self) -> Health
    where
        Self: Sized,
    {
        component::health(self)
    }

    /// Closes the store and everything below it.
    fn close_all(&self)
    where
        Self: Sized,
    {
        component::close(self as &dyn Component);
    }
}

impl<S: Store + ?Sized> Calls for S {}
