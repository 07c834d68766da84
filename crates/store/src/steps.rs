//! What layers do with the steps of the stores that they wrap.

use std::future::{Future, ready};
use std::task::{Context, Poll, Waker};

use moneta_item::request::Delete;
use moneta_item::{Deleted, Item, ItemRef, Key, Lookup};

use crate::context::Cx;
use crate::error::StoreError;
use crate::op::Op;
use crate::outcome::{Outcome, Pending, PendingReads, Step};
use crate::store::Store;
use crate::visit::Unseen;

/// Polls an operation once: a step that is done if that ends it, else one that waits. Allocates.
pub fn start<T: 'static>(operation: impl Future<Output = Result<T, StoreError>> + 'static) -> Step<T> {
    let mut pending: Pending<T> = Box::pin(operation);
    // A pending future needs no wake: its owner polls it.
    match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Step::Done(outcome),
        Poll::Pending => Step::Wait(pending),
    }
}

/// [`start`] for an operation that ends as one kind of [`Outcome`].
pub fn start_operation<T: Into<Outcome>>(operation: impl Future<Output = Result<T, StoreError>> + 'static) -> Step {
    start(async move { operation.await.map(Into::into) })
}

/// A step as a boxed future, whether it has to wait or not.
pub fn into_pending<T: 'static>(step: Step<T>) -> Pending<T> {
    match step {
        Step::Done(outcome) => Box::pin(ready(outcome)),
        Step::Wait(pending) => pending,
    }
}

/// Waits for the end of a step.
pub async fn finish<T>(step: Step<T>) -> Result<T, StoreError> {
    match step {
        Step::Done(outcome) => outcome,
        Step::Wait(pending) => pending.await,
    }
}

impl<T: 'static> Step<T> {
    /// Applies `next` to how this step ends. Allocates only if it waits.
    #[inline]
    pub fn then<R: 'static>(
        self,
        next: impl FnOnce(Result<T, StoreError>) -> Result<R, StoreError> + 'static,
    ) -> Step<R> {
        match self {
            Self::Done(outcome) => Step::Done(next(outcome)),
            Self::Wait(pending) => Step::Wait(Box::pin(async move { next(pending.await) })),
        }
    }
}

/// Performs an operation; a read or peek that hits ends as [`Lookup::Found`], with a copy of the item, also if it need not wait.
pub fn read_owned<S: Store + ?Sized>(store: &S, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Step {
    let mut seen = None;
    let step = store.call(cx, key, op, &mut |item: &ItemRef<'_>| seen = Some(Item::copy(item)));
    match (step, seen) {
        (Step::Done(Ok(Outcome::Read(Lookup::Visited))), Some(item)) => Step::ended(Lookup::Found(item)),
        (step, _) => step,
    }
}

/// How the next of several reads ends; one that hits ends as [`Lookup::Found`], with a copy of the item.
pub fn poll_owned(reads: &mut PendingReads, context: &mut Context<'_>) -> Poll<Option<Result<Lookup, StoreError>>> {
    let mut seen = None;
    let ended = reads.as_mut().poll_next(context, &mut |item: &ItemRef<'_>| seen = Some(Item::copy(item)));
    match (ended, seen) {
        (Poll::Ready(Some(Ok(Lookup::Visited))), Some(item)) => Poll::Ready(Some(Ok(Lookup::Found(item)))),
        (ended, _) => ended,
    }
}

/// Waits for the end of a [`read_owned`].
pub async fn look_up<S: Store>(store: &S, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Result<Lookup, StoreError> {
    finish(read_owned(store, cx, key, op)).await.map(Outcome::lookup)
}

/// Deletes a key unconditionally, and waits for the end of that.
pub async fn delete<S: Store>(store: &S, cx: &Cx, key: &Key<'_>) -> Result<Deleted, StoreError> {
    finish(store.call(cx, key, Op::Delete(&Delete::default()), &mut Unseen)).await.map(Outcome::deleted)
}
