//! What layers do with the steps of the stores they wrap.

use std::future::{Future, ready};
use std::task::{Context, Poll, Waker};

use moneta_item::request::Delete;
use moneta_item::{Item, ItemRef};

use crate::context::Cx;
use crate::error::StoreError;
use crate::op::Op;
use crate::outcome::{Outcome, Pending, Step};
use crate::store::{Store, Unseen};
use moneta_item::{Deleted, Key, Lookup};

/// Begins an operation that may have to wait, and ends it at once if it does not.
pub(crate) fn start<T: 'static>(operation: impl Future<Output = Result<T, StoreError>> + 'static) -> Step<T> {
    let mut pending: Pending<T> = Box::pin(operation);
    // A pending future needs no wake: its owner polls it.
    match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Step::Done(outcome),
        Poll::Pending => Step::Wait(pending),
    }
}

/// The same for an operation whose outcome has a type of its own kind.
pub(crate) fn begin<T: Into<Outcome>>(operation: impl Future<Output = Result<T, StoreError>> + 'static) -> Step {
    start(async move { operation.await.map(Into::into) })
}

/// A step as a future, whether it has to wait or not.
pub(crate) fn pending<T: 'static>(step: Step<T>) -> Pending<T> {
    match step {
        Step::Done(outcome) => Box::pin(ready(outcome)),
        Step::Wait(pending) => pending,
    }
}

/// The end of a step, after whatever wait.
pub(crate) async fn end<T>(step: Step<T>) -> Result<T, StoreError> {
    match step {
        Step::Done(outcome) => outcome,
        Step::Wait(pending) => pending.await,
    }
}

impl<T: 'static> Step<T> {
    /// The step that ends as `next` makes of this one's end, without allocation where this one does not wait.
    #[inline]
    pub(crate) fn then<R: 'static>(
        self,
        next: impl FnOnce(Result<T, StoreError>) -> Result<R, StoreError> + 'static,
    ) -> Step<R> {
        match self {
            Self::Done(outcome) => Step::Done(next(outcome)),
            Self::Wait(pending) => Step::Wait(Box::pin(async move { next(pending.await) })),
        }
    }
}

/// A read or peek whose item comes as the outcome, whether it had to wait or not.
pub(crate) fn found<S: Store>(store: &S, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Step {
    let mut seen = None;
    let step = store.call(cx, key, op, &mut |item: &ItemRef<'_>| seen = Some(copy(item)));
    match (step, seen) {
        (Step::Done(Ok(Outcome::Read(Lookup::Visited))), Some(item)) => Step::ended(Lookup::Found(item)),
        (step, _) => step,
    }
}

/// The end of such a read.
pub(crate) async fn find<S: Store>(store: &S, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Result<Lookup, StoreError> {
    end(found(store, cx, key, op)).await.map(Outcome::lookup)
}

/// The end of a plain delete.
pub(crate) async fn delete<S: Store>(store: &S, cx: &Cx, key: &Key<'_>) -> Result<Deleted, StoreError> {
    end(store.call(cx, key, Op::Delete(&Delete::default()), &mut Unseen)).await.map(Outcome::deleted)
}

/// An item out of the store it lies in.
pub(crate) fn copy(item: &ItemRef<'_>) -> Item {
    Item::copy(item)
}
