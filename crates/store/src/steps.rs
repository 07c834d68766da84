//! What layers do with the steps of the stores they wrap.

use std::future::{Future, ready};
use std::task::{Context, Poll, Waker};

use moneta_protocol::item::{Item, ItemRef};

use crate::error::StoreError;
use crate::outcome::{Lookup, Pending, Step};

/// Begins a request that may have to wait, and ends it at once if it does not.
pub(crate) fn start<T: 'static>(request: impl Future<Output = Result<T, StoreError>> + 'static) -> Step<T> {
    let mut pending: Pending<T> = Box::pin(request);
    // Nobody needs to be woken: who gets a pending future polls it.
    match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Step::Done(outcome),
        Poll::Pending => Step::Wait(pending),
    }
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

/// A read whose item comes as the outcome, whether it had to wait or not.
pub(crate) fn found(read: impl FnOnce(&mut dyn FnMut(&ItemRef<'_>)) -> Step<Lookup>) -> Step<Lookup> {
    let mut seen = None;
    let step = read(&mut |item| seen = Some(copy(item)));
    match (step, seen) {
        (Step::Done(Ok(Lookup::Visited)), Some(item)) => Step::done(Lookup::Found(item)),
        (step, _) => step,
    }
}

/// An item out of the store it lies in.
pub(crate) fn copy(item: &ItemRef<'_>) -> Item {
    Item { meta: item.meta, value: item.value.to_vec() }
}
