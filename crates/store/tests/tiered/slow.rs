//! A tier that waits, as one on a device or in another process does: now before it does what it is asked, now after.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Cursor, Deleted, Install, Item, ItemRef, Key, KeyHash, Lookup, Number, Observer, Pending, Step, Store, StoreStats,
    Tier, Visit, Walked, Walking, Written,
};

use crate::leaky::delete;

/// The model behind waits of random length.
#[derive(Clone)]
pub struct Slow {
    inner: ModelStore,
    /// How many requests in a hundred are answered at once.
    at_once: u8,
}

/// Wakes itself, and is done after that many polls.
struct Turns(u32);

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        // Among threads, the others get their turn.
        std::thread::yield_now();
        Poll::Pending
    }
}

impl Slow {
    /// Never answers at once.
    pub fn always(inner: ModelStore) -> Self {
        Self { inner, at_once: 0 }
    }

    /// Answers every other request at once.
    pub fn mixed(inner: ModelStore) -> Self {
        Self { inner, at_once: 50 }
    }

    /// Answers everything at once.
    pub fn never(inner: ModelStore) -> Self {
        Self { inner, at_once: 100 }
    }

    fn is_at_once(&self) -> bool {
        fastrand::u8(0..100) < self.at_once
    }

    /// A change that leaves nothing under the key if it is given up.
    fn change_later<T: 'static>(
        &self,
        key: &Key<'_>,
        perform: impl FnOnce(&ModelStore, &Key<'_>) -> Step<T> + 'static,
    ) -> Step<T> {
        if self.is_at_once() {
            return perform(&self.inner, key);
        }
        let ((bytes, hash), this) = (owned(key), self.clone());
        Step::Wait(Box::pin(async move {
            let key = Key { bytes: &bytes, hash };
            let mut forgetting = Forgetting { inner: &this.inner, key, armed: true };
            let (before, after) = (fastrand::u32(0..3), fastrand::u32(1..3));
            Turns(before).await;
            let outcome = perform(&this.inner, &key).now();
            Turns(after).await;
            forgetting.armed = false;
            outcome
        }))
    }

    fn later<T: 'static>(&self, perform: impl FnOnce(&ModelStore) -> Step<T> + 'static) -> Step<T> {
        if self.is_at_once() {
            return perform(&self.inner);
        }
        let (inner, before) = (self.inner.clone(), fastrand::u32(0..3));
        let after = if before == 0 { fastrand::u32(1..3) } else { fastrand::u32(0..3) };
        let pending: Pending<T> = Box::pin(async move {
            Turns(before).await;
            let outcome = perform(&inner).now();
            Turns(after).await;
            outcome
        });
        Step::Wait(pending)
    }
}

/// Leaves nothing under a key unless it is disarmed: for changes that nobody waited to the end for.
struct Forgetting<'a> {
    inner: &'a ModelStore,
    key: Key<'a>,
    armed: bool,
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        if self.armed {
            let _ = delete(self.inner, &self.key, &Delete::default());
        }
    }
}

/// A key that outlives its call.
fn owned(key: &Key<'_>) -> (Vec<u8>, u64) {
    (key.bytes.to_vec(), key.hash)
}

/// A read whose item comes as the outcome.
pub fn found(read: impl FnOnce(&mut dyn FnMut(&ItemRef<'_>)) -> Step<Lookup>) -> Step<Lookup> {
    let mut seen = None;
    let step = read(&mut |item| seen = Some(Item { meta: item.meta, value: item.value.to_vec() }));
    match seen {
        Some(item) => Step::done(Lookup::Found(item)),
        None => step,
    }
}

impl Store for Slow {
    fn seed(&self) -> KeyHash {
        self.inner.seed()
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        if self.is_at_once() {
            return self.inner.get(key, request, visitor);
        }
        let ((bytes, hash), request) = (owned(key), *request);
        self.later(move |inner| found(|mut seen| inner.get(&Key { bytes: &bytes, hash }, &request, &mut seen)))
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let ((bytes, hash), value, request) = (owned(key), value.to_vec(), *request);
        self.later(move |inner| inner.set(&Key { bytes: &bytes, hash }, &value, &request))
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        let request = *request;
        self.change_later(key, move |inner, key| delete(inner, key, &request))
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        let ((bytes, hash), request) = (owned(key), *request);
        self.later(move |inner| inner.arithmetic(&Key { bytes: &bytes, hash }, &request))
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        if self.is_at_once() {
            return self.inner.peek(key, visitor);
        }
        let (bytes, hash) = owned(key);
        self.later(move |inner| found(|mut seen| inner.peek(&Key { bytes: &bytes, hash }, &mut seen)))
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.later(move |inner| inner.flush(delay))
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        if fastrand::u8(0..4) == 0 && !self.is_at_once() {
            return Walking::Wait(Box::pin(async {
                Turns(1).await;
                Ok(())
            }));
        }
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

impl Tier for Slow {
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        let item = Item { meta: item.meta, value: item.value.to_vec() };
        self.change_later(key, move |inner, key| inner.install(key, &item.as_ref(), how))
    }

    fn forget(&self, key: &Key<'_>) {
        let _ = delete(&self.inner, key, &Delete::default());
    }

    fn next_cas(&self, key: &Key<'_>) -> u64 {
        self.inner.next_cas(key)
    }

    /// As an index would know it, without waiting.
    fn holds(&self, key: &Key<'_>) -> bool {
        self.inner.holds(key)
    }
}
