//! Layers for tests: a store that differs in one thing from the store it wraps.
//!
//! A test double implements [`Double`] and says only what differs; [`Layer`] makes a store of it and passes on the rest.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::sync::Arc;
//!
//! use moneta_testkit::model::ModelStore;
//! use moneta_testkit::doubles::{Double, Layer};
//! use moneta_store::{Calls, Clock, Cx, Key, Op, Step, ReadSeveral, Store, Visit};
//!
//! /// Counts operations.
//! struct Counting {
//!     inner: ModelStore,
//!     count: AtomicU64,
//! }
//!
//! impl Double for Counting {
//!     type Inner = ModelStore;
//!
//!     fn inner(&self) -> &ModelStore {
//!         &self.inner
//!     }
//!
//!     fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
//!         self.count.fetch_add(1, Ordering::Relaxed);
//!         self.inner.call(cx, key, op, out)
//!     }
//! }
//!
//! let inner = ModelStore::new(Arc::new(Clock::system()), 1 << 20);
//! let store = Layer(Counting { inner, count: AtomicU64::new(0) });
//! store.set(&Key::new(b"key", store.seed()), b"value", &Default::default()).now().unwrap();
//! assert_eq!(store.count.load(Ordering::Relaxed), 1);
//! ```

use std::future::Future;
use std::ops::Deref;

use moneta_store::{Key, KeyHash, OwnedKey};

use moneta_store::component::{Component, Health, Parts, Report};
use moneta_store::{Cx, Op, Outcome, OwnedOp, Policy, Reactors, ReadSeveral, Step, Store, StoreError, Visit, steps};

/// What a test double does differently from the store it wraps. A double that overrides nothing is that store.
pub trait Double: Send + Sync {
    /// The kind of the wrapped store.
    type Inner: Store;

    /// The wrapped store.
    fn inner(&self) -> &Self::Inner;

    /// Answers an operation.
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        self.inner().call(cx, key, op, out)
    }

    /// What it can do beside operations: the wrapped store's parts. A double that changes one implements that part's trait
    /// and names itself here. [`Parts::below`] is ignored: it is always the wrapped store.
    fn parts(&self) -> Parts<'_> {
        self.inner().parts()
    }

    /// Puts a reactor of the double into `worker`; the wrapped store's is there already.
    fn attach(&self, worker: &mut Reactors) {
        let _ = worker;
    }

    /// What it counts, given the wrapped store's report. The wrapped store's own metrics are not in it; they are added later.
    fn report(&self, inner: Report) -> Report {
        inner
    }

    /// Whether it is fit to serve, given the wrapped store's health.
    fn health(&self, inner: Health) -> Health {
        inner
    }
}

/// A double as a store. Dereferences to the double, for what a test asks of it.
#[derive(Clone, Debug)]
pub struct Layer<D>(pub D);

impl<D> Deref for Layer<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.0
    }
}

impl<D: Double> Store for Layer<D> {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        self.0.call(cx, key, op, out)
    }

    // What a double does to operations it does to reads of several keys, too: they come one by one.
    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
    }

    fn announce(&self, keys: &[Key<'_>]) {
        self.0.inner().announce(keys);
    }

    fn seed(&self) -> KeyHash {
        self.0.inner().seed()
    }
}

impl<D: Double> Component for Layer<D> {
    fn parts(&self) -> Parts<'_> {
        Parts { below: vec![self.0.inner()], ..self.0.parts() }
    }

    fn attach(&self, worker: &mut Reactors) {
        self.0.attach(worker);
    }

    fn report(&self, _: &Cx, mut below: Vec<Report>) -> Report {
        self.0.report(below.pop().expect("a report of the wrapped store"))
    }

    fn health(&self, mut below: Vec<Health>) -> Health {
        self.0.health(below.pop().expect("the health of the wrapped store"))
    }

    fn close(&self) {}
}

/// A store whose operations all go by the policy that a function names, whatever their callers say.
#[derive(Clone, Debug)]
pub struct UnderPolicy<S> {
    inner: S,
    policy: fn() -> Policy,
}

impl<S: Store> UnderPolicy<S> {
    /// `inner` under what `policy` returns, which is asked for each operation.
    pub fn new(inner: S, policy: fn() -> Policy) -> Layer<Self> {
        Layer(Self { inner, policy })
    }

    /// `inner` as bulk traffic finds it.
    pub fn batch(inner: S) -> Layer<Self> {
        Self::new(inner, || Policy::Batch)
    }
}

impl<S: Store> Double for UnderPolicy<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        self.inner.call(&cx.under((self.policy)()), key, op, out)
    }
}

/// Performs an operation now. The item of a read that does not wait comes as its outcome too, without a visitor: for doubles
/// that answer when their caller's visitor is gone.
pub fn found(store: &impl Store, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Step {
    steps::read_owned(store, cx, key, op)
}

/// An operation that outlives its call: performed on a handle of `store` when the future is first polled, and never if it is
/// dropped before. An item comes as the outcome.
pub fn later<S: Store + Clone + 'static>(
    store: &S,
    cx: &Cx,
    key: &Key<'_>,
    op: Op<'_>,
) -> impl Future<Output = Result<Outcome, StoreError>> + use<S> {
    let (store, cx, key, op) = (store.clone(), cx.clone(), OwnedKey::of(key), OwnedOp::of(op));
    async move { steps::finish(op.with(|op| steps::read_owned(&store, &cx, &key.key(), op))).await }
}
