//! An operation as one store gets it, the waiting for its end, and what came of it.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use moneta_store::{
    Calls, Cursor, Deleted, Item, ItemRef, Key, Lookup, Number, Step, Store, StoreError, Walked, Walking, Written,
};

use super::operation::Operation;

/// What a store made of an operation on a key.
#[derive(Debug)]
pub(super) enum Outcome {
    Hit(Item),
    Miss { expired: bool },
    Written(Written),
    Deleted(Deleted),
    Number(Number),
}

/// A store with what makes its pending futures move.
pub(super) struct Driven<'a, S> {
    pub(super) store: &'a S,
    pub(super) idle: &'a dyn Fn(&S),
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<S: Store> Driven<'_, S> {
    /// Waits for a step's end.
    pub(super) fn finish<T>(&self, step: Step<T>) -> Result<T, String> {
        let ended = match step {
            Step::Done(ended) => ended,
            Step::Wait(pending) => self.block_on(pending),
        };
        ended.map_err(|error: StoreError| format!("the store failed: {error}"))
    }

    /// Walks a batch, waiting as often as the store wants to; false when there are no more.
    pub(super) fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Result<bool, String> {
        loop {
            match self.store.walk(cursor, show) {
                Walking::More => return Ok(true),
                Walking::End => return Ok(false),
                Walking::Wait(pending) => self.finish(Step::Wait(pending))?,
            }
        }
    }

    fn block_on<F: Future + Unpin>(&self, mut future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match std::pin::Pin::new(&mut future).poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => (self.idle)(self.store),
            }
        }
    }

    /// Performs an operation on `key`, with `compare` as the CAS value it is to compare with.
    ///
    /// # Panics
    /// If the operation is not about a key.
    pub(super) fn perform(
        &self,
        operation: &Operation,
        key: &Key<'_>,
        compare: Option<u64>,
    ) -> Result<Outcome, String> {
        match operation {
            Operation::Get { request, .. } => self.look(|mut visitor| self.store.get(key, request, &mut visitor)),
            Operation::Peek { .. } => self.peek(key),
            Operation::Set { value, request, .. } => {
                let request = moneta_store::request::Write { compare, ..*request };
                self.finish(self.store.set(key, &value.bytes(), &request)).map(Outcome::Written)
            }
            Operation::Delete { request, .. } => {
                let request = moneta_store::request::Delete { compare, ..*request };
                self.finish(self.store.delete(key, &request)).map(Outcome::Deleted)
            }
            Operation::Arithmetic { request, .. } => {
                let request = moneta_store::request::Arithmetic { compare, ..*request };
                self.finish(self.store.arithmetic(key, &request)).map(Outcome::Number)
            }
            other => panic!("{other} is not about a key"),
        }
    }

    /// What lies under a key.
    pub(super) fn peek(&self, key: &Key<'_>) -> Result<Outcome, String> {
        self.look(|mut visitor| self.store.peek(key, &mut visitor))
    }

    /// A read, whose item comes through the visitor or as an outcome, but not both ways.
    fn look(&self, read: impl FnOnce(&mut dyn FnMut(&ItemRef<'_>)) -> Step<Lookup>) -> Result<Outcome, String> {
        let mut visits = Vec::new();
        let step = read(&mut |item| visits.push(Item::copy(item)));
        let lookup = self.finish(step)?;
        match (lookup, visits.pop()) {
            (Lookup::Visited, Some(item)) if visits.is_empty() => Ok(Outcome::Hit(item)),
            (Lookup::Found(item), None) => Ok(Outcome::Hit(item)),
            (Lookup::Miss { expired }, None) => Ok(Outcome::Miss { expired }),
            (lookup, last) => {
                let count = visits.len() + usize::from(last.is_some());
                Err(format!("the read ended in {lookup:?} after {count} visits"))
            }
        }
    }
}
