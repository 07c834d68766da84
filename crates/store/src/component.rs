//! What every part of a process's store must have, and what it may have.
//!
//! Nothing here has a default: a layer that forgets to pass something on does not compile. What concerns all components of a
//! store ([`attach`], [`close`], [`report`]) goes through the tree of [`Parts::below`], so that no layer has to pass it on.

use std::sync::Arc;

use moneta_item::request::Exptime;
use moneta_item::{ItemMeta, Version};

use crate::context::Cx;
use crate::error::{ErrorKind, StoreError};
use crate::feed::Feed;
use crate::metric::Sample;
use crate::outcome::Step;
use crate::reactor::Reactors;
use crate::stats::StoreStats;
use crate::versions::{Floor, Floors};
use crate::walk::{Cursor, Walked, Walking};

/// A part of a store: an engine, or a layer over others.
pub trait Component: Send + Sync {
    /// What it consists of and what it can do beside operations.
    fn parts(&self) -> Parts<'_>;

    /// Puts a reactor into `worker`, if this component itself does I/O that workers can turn. Called on each worker's thread
    /// before its first operation; threads without one are served too, by other means.
    fn attach(&self, worker: &mut Reactors);

    /// Its gauges and counters. On a worker it does not wait for others: `cx` says where it is called. `below` is what
    /// the components below it said, in the order of [`Parts::below`].
    fn report(&self, cx: &Cx, below: Vec<Report>) -> Report;

    /// Whether it is fit to serve, given what the components below it said, in the same order. Does not wait.
    fn health(&self, below: Vec<Health>) -> Health;

    /// Brings everything accepted so far to rest: what it keeps on a device is written out. Called for a layer before what is
    /// below it; no operation follows.
    fn close(&self);
}

/// What a component consists of and can do.
pub struct Parts<'a> {
    /// The components it stands on, upper tier first.
    pub below: Vec<&'a dyn Component>,
    /// Shows its items one after the other.
    pub walk: Option<&'a dyn Walk>,
    /// Drops everything at once.
    pub flush: Option<&'a dyn Flush>,
    /// Changes its memory limit while it runs.
    pub resize: Option<&'a dyn Resize>,
    /// Tells of items that leave without having been deleted.
    pub observe: Option<&'a dyn Observe>,
    /// Tells of its changes.
    pub feed: Option<&'a dyn Feed>,
}

/// Shows the items of a store one after the other.
pub trait Walk {
    /// Walks a bounded batch of items and moves `cursor`. Items stored before the walk began and neither changed nor evicted
    /// meanwhile are each shown once, whatever reads go on that touch nothing and win nothing.
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking;
}

/// Drops everything at once.
pub trait Flush {
    /// Drops everything stored so far, now or at the moment `delay` names (as an expiration time; 0 and negative: now). What
    /// is stored between the call and that moment goes too. A later call replaces an earlier one that still waits.
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()>;

    /// The Unix second of a delayed flush that was asked for before this process and is still to come.
    fn pending(&self) -> Option<u32>;

    /// Takes a flush that was commanded elsewhere: what is older than it goes, now or at its second, and what is newer stays. Of
    /// [`Floor::local`] everything goes.
    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()>;

    /// The flushes that are known here.
    fn floors(&self) -> Floors;

    /// The newest version that was made or seen here; [`Version::ZERO`]: that is not told. A flush that is to take all that is
    /// here is above it.
    fn newest(&self, cx: &Cx) -> Step<Version>;

    /// Seconds by which a delayed flush may take place later here than by this process's clock; 0 unless the store goes by
    /// another clock.
    fn lag(&self) -> u32;
}

/// Changes a store's memory limit while it runs.
pub trait Resize {
    /// Whether the store can take this limit, in bytes.
    fn fits(&self, limit: u64) -> bool;

    /// Sets the limit, in bytes; the store evicts down to it over the next writes. False, and nothing changes, if it does not
    /// fit.
    fn resize(&self, limit: u64) -> bool;
}

/// Tells of items that leave without having been deleted.
pub trait Observe {
    /// Reports departures to `observer` from now on; `None` stops. Costs nothing while there is no observer.
    fn observe(&self, observer: Option<Arc<dyn Observer>>);
}

/// Is told of items that leave by themselves. Called under a shard's lock: it must be quick and must not call the store.
pub trait Observer: Send + Sync {
    /// An item left.
    fn removed(&self, item: &Removed<'_>);
}

/// Why an item left without a client asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalCause {
    /// Room was needed.
    Evicted,
    /// Its time was up and its room was taken back.
    Expired,
}

/// An item that left.
#[derive(Clone, Copy, Debug)]
pub struct Removed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// All but key and value.
    pub meta: ItemMeta,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// Why.
    pub cause: RemovalCause,
}

/// What a component counts.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What every store can tell, summed over shards.
    pub stats: StoreStats,
    /// Metrics that only this kind of component has; those of what it wraps are added by [`report`].
    pub metrics: Vec<Sample>,
}

impl Report {
    /// All metrics: those of every store, then the others.
    pub fn samples(self) -> Vec<Sample> {
        let mut samples = self.stats.samples();
        samples.extend(self.metrics);
        samples
    }
}

/// Whether a store is fit to serve, for readiness checks and operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// It cannot answer what it is asked: traffic that can go elsewhere should. A store that is slower or holds less than it
    /// should is ready, with a note.
    pub unready: bool,
    /// One sentence on everything out of the ordinary.
    pub notes: Vec<String>,
}

/// Attaches a component and everything below it to a worker.
pub fn attach(component: &dyn Component, worker: &mut Reactors) {
    component.parts().below.into_iter().for_each(|below| attach(below, worker));
    component.attach(worker);
}

/// Closes a component and everything below it.
pub fn close(component: &dyn Component) {
    component.close();
    component.parts().below.into_iter().for_each(close);
}

/// What a component and everything below it count.
pub fn report(component: &dyn Component, cx: &Cx) -> Report {
    let mut below: Vec<Report> = component.parts().below.into_iter().map(|below| report(below, cx)).collect();
    let metrics: Vec<Sample> = below.iter_mut().flat_map(|report| std::mem::take(&mut report.metrics)).collect();
    let mut report = component.report(cx, below);
    report.metrics.extend(metrics);
    report
}

/// Whether a component is fit to serve, with everything below it.
pub fn health(component: &dyn Component) -> Health {
    component.health(component.parts().below.into_iter().map(health).collect())
}

/// A flush from elsewhere, for a component: one that has no flush refuses.
pub fn floor(component: &dyn Component, cx: &Cx, floor: Floor) -> Step<()> {
    match component.parts().flush {
        Some(part) => part.floor(cx, floor),
        None => Step::Done(Err(StoreError::no_versions())),
    }
}

/// The newest version that a component has made or seen; [`Version::ZERO`]: it does not tell.
pub fn newest(component: &dyn Component, cx: &Cx) -> Step<Version> {
    component.parts().flush.map_or_else(|| Step::done(Version::ZERO), |part| part.newest(cx))
}

/// A flush that is part of a component: one that has none refuses.
pub fn flush(component: &dyn Component, cx: &Cx, delay: Exptime) -> Step<()> {
    match component.parts().flush {
        Some(part) => part.flush(cx, delay),
        None => Step::Done(Err(StoreError::new(ErrorKind::Unsupported, "this store cannot be flushed"))),
    }
}
