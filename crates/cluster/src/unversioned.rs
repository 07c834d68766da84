//! Nodes that keep no versions: memcached.
//!
//! [`AnyNode`] stands round a node's store. A node that refuses mode newer is one without versions from then on, until it takes a
//! version again: another server may have its address by now, so this changes both ways. It is told what it understands: a write
//! in mode newer is a plain set, so the write that arrives last wins; a delete by version is a plain delete, which it does not
//! remember; a floor is a `flush_all`.
//!
//! `at_home` has the changes that depend on what a key holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::component::{self, Component, Flush, Health, Parts, Report};
use moneta_store::request::{Delete, Exptime, Write};
use moneta_store::steps::{finish, start, start_operation};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cx, ErrorKind, ItemRef, Key, KeyHash, Op, Outcome, OwnedKey, OwnedOp, Put, Reactors, ReadSeveral, Step,
    Store, StoreError, Unseen, Version, Visit, Written,
};

/// How long a node counts as one without versions before it is tried again, in milliseconds.
const TRY_EVERY: u64 = 10_000;
/// It keeps versions.
const VERSIONED: u64 = 1;

/// Whether a node keeps versions: 0 while that is not known, [`VERSIONED`], or, if it keeps none, until when it is not asked
/// again, in milliseconds since the Unix epoch. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(Arc<AtomicU64>);

impl Versions {
    /// Whether the node has said that it keeps none.
    #[inline]
    pub(crate) fn has_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) > VERSIONED
    }

    /// It keeps none as of `now`, in milliseconds since the Unix epoch.
    #[cold]
    pub(crate) fn note_none(&self, now: u64) {
        self.0.store(now + TRY_EVERY, Ordering::Relaxed);
    }

    /// Takes note of how an operation by version ended at `now`, in milliseconds since the Unix epoch. True: the node knows none.
    pub(crate) fn note<T>(&self, ended: &Result<T, StoreError>, now: u64) -> bool {
        match ended {
            Ok(_) => self.0.store(VERSIONED, Ordering::Relaxed),
            Err(error) if error.kind() == ErrorKind::NoVersions => self.note_none(now),
            Err(_) => return false,
        }
        self.has_none()
    }
}

/// The store of a node that may keep no versions.
pub(crate) struct AnyNode(Arc<UnversionedShared>);

struct UnversionedShared {
    store: Arc<dyn Store>,
    versions: Versions,
    clock: Arc<Clock>,
}

impl AnyNode {
    pub(crate) fn new(store: Arc<dyn Store>, clock: &Arc<Clock>) -> (Self, Versions) {
        let versions = Versions::default();
        let shared = UnversionedShared { store, versions: versions.clone(), clock: Arc::clone(clock) };
        (Self(Arc::new(shared)), versions)
    }
}

impl UnversionedShared {
    /// Does what comes nearest to an operation by version.
    fn plain(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Step {
        match op {
            Op::Put(item, Put::Newer { .. }) => self.set(cx, key, item),
            Op::Bury(_) => self.store.call(cx, key, Op::Delete(&Delete::default()), &mut Unseen),
            op => self.store.call(cx, key, op, &mut Unseen),
        }
    }

    /// Stores an item, whatever is there.
    fn set(&self, cx: &Cx, key: &Key<'_>, item: &ItemRef<'_>) -> Step {
        if item.meta.expiry.is_dead(self.clock.now()) {
            let step = self.store.call(cx, key, Op::Delete(&Delete::default()), &mut Unseen);
            return step.map(|_| Outcome::Written(Written::Stored { cas: 0 }));
        }
        let write = Write { flags: item.meta.flags, exptime: Exptime(item.meta.expiry.0.into()), ..Write::default() };
        match item.value.as_slice() {
            Some(value) => self.store.call(cx, key, Op::Write(value, &write), &mut Unseen),
            None => self.store.call(cx, key, Op::Write(&item.value.to_vec(), &write), &mut Unseen),
        }
    }

    /// Another server has the node's address now, which keeps no versions.
    #[cold]
    fn has_become_plain(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Step {
        self.versions.note_none(self.clock.millis());
        self.plain(cx, key, op)
    }

    /// Asks in mode newer a node of which it is not known whether it knows that.
    #[cold]
    fn try_newer(self: &Arc<Self>, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Step {
        let step = self.store.call(cx, key, op, &mut Unseen);
        let (shared, cx, key, op) = (Arc::clone(self), cx.clone(), OwnedKey::of(key), OwnedOp::of(op));
        start_operation(async move {
            let ended = finish(step).await;
            if shared.versions.note(&ended, shared.clock.millis()) {
                return finish(op.with(|op| shared.plain(&cx, &key.key(), op))).await;
            }
            ended
        })
    }
}

impl Store for AnyNode {
    #[inline]
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let shared = &self.0;
        let (Op::Put(_, Put::Newer { .. }) | Op::Bury(_)) = op else { return shared.store.call(cx, key, op, out) };
        match shared.versions.0.load(Ordering::Relaxed) {
            VERSIONED => {
                let step = shared.store.call(cx, key, op, out);
                match &step {
                    Step::Done(Err(error)) if error.kind() == ErrorKind::NoVersions => {
                        shared.has_become_plain(cx, key, op)
                    }
                    _ => step,
                }
            }
            until if until > shared.clock.millis() => shared.plain(cx, key, op),
            _ => shared.try_newer(cx, key, op),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        self.0.store.together()
    }

    fn announce(&self, keys: &[Key<'_>]) {
        self.0.store.announce(keys);
    }

    fn seed(&self) -> KeyHash {
        self.0.store.seed()
    }
}

impl Component for AnyNode {
    fn parts(&self) -> Parts<'_> {
        let parts = self.0.store.parts();
        let flush = parts.flush.is_some().then_some(self as &dyn Flush);
        Parts { below: vec![&*self.0.store], flush, ..parts }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, mut below: Vec<Report>) -> Report {
        below.pop().expect("a report of the store below")
    }

    fn health(&self, mut below: Vec<Health>) -> Health {
        below.pop().expect("the health of the store below")
    }

    fn close(&self) {}
}

impl Flush for AnyNode {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        component::flush(&*self.0.store, cx, delay)
    }

    fn pending(&self) -> Option<u32> {
        self.0.store.parts().flush.and_then(Flush::pending)
    }

    /// On a node without versions a `flush_all`, of all that is there.
    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        let (shared, cx) = (Arc::clone(&self.0), cx.clone());
        start(async move {
            let ended = finish(component::floor(&*shared.store, &cx, floor)).await;
            if !shared.versions.note(&ended, shared.clock.millis()) {
                return ended;
            }
            let delay = floor.second.saturating_sub(shared.clock.now());
            finish(component::flush(&*shared.store, &cx, Exptime(delay.into()))).await
        })
    }

    fn floors(&self) -> Floors {
        self.0.store.parts().flush.map_or_else(Floors::default, Flush::floors)
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        component::newest(&*self.0.store, cx)
    }

    fn lag(&self) -> u32 {
        self.0.store.parts().flush.map_or(0, Flush::lag)
    }
}
