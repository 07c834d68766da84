//! A store that answers nothing at once: every request waits for one poll, as one that reads from a device does.

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Poll, Waker};

use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Cursor, Deleted, Item, ItemRef, Key, KeyHash, Lookup, Number, Observer, Step, Store, StoreStats, Visit, Walked,
    Walking, Written,
};

/// The model behind a wait.
pub struct Waiting {
    inner: ModelStore,
    /// Wakers for somebody to call; none if each future calls its own at once.
    parked: Option<std::rc::Rc<RefCell<Vec<Waker>>>>,
}

impl Waiting {
    /// Wakes its futures by itself.
    pub fn waking(inner: ModelStore) -> Self {
        Self { inner, parked: None }
    }

    /// Wakes its futures when its loop is turned.
    pub fn polled(inner: ModelStore) -> Self {
        Self { inner, parked: Some(std::rc::Rc::default()) }
    }

    /// Turns the loop: wakes what is parked.
    pub fn turn(&self) {
        let parked = self.parked.as_ref().expect("only a polled store has a loop");
        assert!(!parked.borrow().is_empty(), "the loop was turned with nothing parked");
        parked.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// An answer that is there at the second poll.
    fn later<T: 'static>(&self, answer: Step<T>) -> Step<T> {
        let mut answer = Some(answer.now());
        let parked = self.parked.clone();
        let mut waited = false;
        Step::Wait(Box::pin(std::future::poll_fn(move |context| {
            if waited {
                return Poll::Ready(answer.take().expect("polled after its end"));
            }
            waited = true;
            match &parked {
                None => context.waker().wake_by_ref(),
                Some(parked) => parked.borrow_mut().push(context.waker().clone()),
            }
            Poll::Pending
        })))
    }

    /// A read whose visitor is gone by the time the answer comes.
    fn read(&self, read: impl FnOnce(&mut dyn FnMut(&ItemRef<'_>)) -> Step<Lookup>) -> Step<Lookup> {
        let mut seen = None;
        let step = read(&mut |item| seen = Some(Item { meta: item.meta, value: item.value.to_vec() }));
        self.later(match seen {
            Some(item) => Step::done(Lookup::Found(item)),
            None => step,
        })
    }
}

impl Store for Waiting {
    fn seed(&self) -> KeyHash {
        self.inner.seed()
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, _visitor: &mut impl Visit) -> Step<Lookup> {
        self.read(|mut seen| self.inner.get(key, request, &mut seen))
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        self.later(self.inner.set(key, value, request))
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        self.later(self.inner.delete(key, request))
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        self.later(self.inner.arithmetic(key, request))
    }

    fn peek(&self, key: &Key<'_>, _visitor: &mut impl Visit) -> Step<Lookup> {
        self.read(|mut seen| self.inner.peek(key, &mut seen))
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.later(self.inner.flush(delay))
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
