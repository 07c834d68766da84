//! The feed of a store whose engine keeps no log: a bounded ring of the keys that changed.
//!
//! It stands round the whole store, so that it hears of every change by whatever way it came, and only of changes that took
//! effect. Values are not kept: a reader looks up what a key holds when it is told. An ordinary delete is stamped here, so
//! that the feed tells the version under which the store remembers it.

mod ring;

use std::sync::Arc;

use moneta_store::component::{self, Component, Flush, Health, Parts, Report};
use moneta_store::request::{Delete, Exptime, Retrieve};
use moneta_store::steps::{finish, start, start_operation};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cx, Deleted, Expiry, Key, KeyHash, Lookup, Number, Op, Outcome, OwnedKey, PendingReads, Reactors,
    ReadSeveral, Step, Store, StoreError, Unseen, Version, Visit, Written,
};

pub use ring::Ring;

/// A store that tells of its changes.
pub struct Feed<S>(Arc<FeedShared<S>>);

struct FeedShared<S> {
    below: S,
    ring: Ring,
    clock: Arc<Clock>,
}

impl<S: Store + 'static> Feed<S> {
    /// Tells of the changes of `below`, which must be one of several copies, in a ring of up to `bytes`.
    pub fn new(below: S, bytes: u64, clock: Arc<Clock>) -> Self {
        let ring = Ring::new(bytes, Arc::clone(&clock));
        Self(Arc::new(FeedShared { below, ring, clock }))
    }
}

impl<S: Store> FeedShared<S> {
    /// Tells of an operation that may have changed the key, if its outcome says that there is an item now.
    fn note(&self, key: &[u8], outcome: &Outcome) {
        match outcome {
            Outcome::Written(Written::Stored { .. })
            | Outcome::Number(Number::Value { .. })
            | Outcome::Deleted(Deleted::Deleted) => {
                self.ring.set(key);
            }
            Outcome::Read(Lookup::Visited | Lookup::Found(_)) => self.ring.set(key),
            _ => {}
        }
    }

    fn next(&self, cx: &Cx, key: &Key<'_>) -> Version {
        Version(self.below.call(cx, key, Op::NextCas, &mut Unseen).cas())
    }
}

impl<S: Store + 'static> FeedShared<S> {
    /// Passes an operation on that leaves an item, and tells of it.
    fn changing(self: &Arc<Self>, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match self.below.call(cx, key, op, out) {
            Step::Done(Ok(outcome)) => {
                self.note(key.bytes, &outcome);
                Step::Done(Ok(outcome))
            }
            Step::Done(Err(error)) => Step::Done(Err(error)),
            Step::Wait(pending) => {
                let (shared, key) = (Arc::clone(self), OwnedKey::of(key));
                start_operation(async move {
                    let outcome = pending.await?;
                    shared.note(key.key().bytes, &outcome);
                    Ok(outcome)
                })
            }
        }
    }

    /// Deletes under a version that the feed can tell.
    fn bury(self: &Arc<Self>, cx: &Cx, key: &Key<'_>, version: Version) -> Step {
        match self.below.call(cx, key, Op::Bury(version), &mut Unseen) {
            Step::Done(outcome) => {
                self.note_buried(key.bytes, version, &outcome);
                Step::Done(outcome)
            }
            Step::Wait(pending) => {
                let (shared, key) = (Arc::clone(self), OwnedKey::of(key));
                start_operation(async move {
                    let outcome = pending.await;
                    shared.note_buried(key.key().bytes, version, &outcome);
                    outcome
                })
            }
        }
    }

    fn note_buried(&self, key: &[u8], version: Version, outcome: &Result<Outcome, StoreError>) {
        if matches!(outcome, Ok(Outcome::Deleted(Deleted::Deleted | Deleted::NotFound))) {
            self.ring.deleted(key, version);
        }
    }

    /// A client's delete. What is newer than its stamp came from elsewhere meanwhile, and is then stamped above.
    fn delete(self: &Arc<Self>, cx: &Cx, key: &Key<'_>) -> Step {
        let version = self.next(cx, key);
        match self.bury(cx, key, version) {
            Step::Done(Ok(Outcome::Deleted(Deleted::Superseded { .. }))) => {
                let version = self.next(cx, key);
                self.bury(cx, key, version)
            }
            Step::Done(outcome) => Step::Done(outcome),
            Step::Wait(pending) => {
                let (shared, cx, key) = (Arc::clone(self), cx.clone(), OwnedKey::of(key));
                start_operation(async move {
                    match pending.await? {
                        Outcome::Deleted(Deleted::Superseded { .. }) => {
                            let version = shared.next(&cx, &key.key());
                            finish(shared.bury(&cx, &key.key(), version)).await
                        }
                        outcome => Ok(outcome),
                    }
                })
            }
        }
    }

    /// A delete with a condition: decided by the store, then told, and buried here under the version that is told.
    fn delete_if(self: &Arc<Self>, cx: &Cx, key: &Key<'_>, request: &Delete) -> Step {
        let (shared, cx, key, request) = (Arc::clone(self), cx.clone(), OwnedKey::of(key), *request);
        start_operation(async move {
            let key = key.key();
            let outcome = finish(shared.below.call(&cx, &key, Op::Delete(&request), &mut Unseen)).await?;
            if matches!(outcome, Outcome::Deleted(Deleted::Deleted)) {
                let version = shared.next(&cx, &key);
                finish(shared.bury(&cx, &key, version)).await?;
            }
            Ok(outcome)
        })
    }
}

/// Whether a delete takes the item away, rather than to mark it.
fn takes_away(request: &Delete) -> bool {
    !request.invalidate && !request.drop_value
}

impl<S: Store + 'static> Store for Feed<S> {
    #[inline]
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let shared = &self.0;
        match op {
            Op::Delete(request) if *request == Delete::default() => shared.delete(cx, key),
            Op::Delete(request) if takes_away(request) => shared.delete_if(cx, key, request),
            Op::Bury(version) => shared.bury(cx, key, version),
            // What a client gives up half way is gone here alone.
            Op::Drop => shared.below.call(cx, key, op, out),
            // Any meta read may win a recache: that is for this node's readers alone, and is not told.
            Op::Read(request) if request.touch.is_none() && request.vivify.is_none() => {
                shared.below.call(cx, key, op, out)
            }
            op if op.changes() => shared.changing(cx, key, op, out),
            op => shared.below.call(cx, key, op, out),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        self.0.below.together().map(|_| self as _)
    }

    fn announce(&self, keys: &[Key<'_>]) {
        self.0.below.announce(keys);
    }

    fn seed(&self) -> KeyHash {
        self.0.below.seed()
    }
}

impl<S: Store + 'static> ReadSeveral for Feed<S> {
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        // What changes something is told, key by key.
        if Op::Read(request).changes() { None } else { self.0.below.together()?.read_several(cx, keys, request) }
    }
}

impl<S: Store + 'static> Component for Feed<S> {
    fn parts(&self) -> Parts<'_> {
        let below = self.0.below.parts();
        let flush = below.flush.map(|_| self as &dyn Flush);
        Parts {
            below: vec![&self.0.below],
            walk: below.walk,
            flush,
            resize: below.resize,
            observe: below.observe,
            feed: Some(&self.0.ring),
        }
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

impl<S: Store + 'static> Flush for Feed<S> {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        let (shared, cx) = (Arc::clone(&self.0), cx.clone());
        start(async move {
            let now = shared.clock.now();
            finish(component::flush(&shared.below, &cx, delay)).await?;
            // The store has stamped it, above all that it holds.
            let floors = shared.below.parts().flush.map_or_else(Floors::default, Flush::floors);
            let done = Floor::new(floors.newest, Expiry::resolve(delay, now), now);
            shared.ring.flushed(floors.pending.unwrap_or(done));
            Ok(())
        })
    }

    fn pending(&self) -> Option<u32> {
        self.0.below.parts().flush.and_then(Flush::pending)
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        let (shared, cx) = (Arc::clone(&self.0), cx.clone());
        start(async move {
            if floor.is_local() {
                shared.ring.lose();
                return finish(component::floor(&shared.below, &cx, floor)).await;
            }
            let known = || {
                let floors = shared.below.parts().flush.map_or_else(Floors::default, Flush::floors);
                (floors.newest, floors.second)
            };
            let before = known();
            finish(component::floor(&shared.below, &cx, floor)).await?;
            // Told once: two copies that read each other's feeds would go on for ever. Two of one version may differ in their second.
            if known() != before {
                shared.ring.flushed(floor);
            }
            Ok(())
        })
    }

    fn floors(&self) -> Floors {
        self.0.below.parts().flush.map_or_else(Floors::default, Flush::floors)
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        component::newest(&self.0.below, cx)
    }

    fn lag(&self) -> u32 {
        self.0.below.parts().flush.map_or(0, Flush::lag)
    }
}
