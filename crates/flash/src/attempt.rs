//! How a request that cannot be answered at once goes on.
//!
//! An operation is a function that is tried under the lock of its key's shard. It either ends, or says what it lacks: the
//! record, which lies on a device; room to write; its write on the device. Without the lock that is waited for, and the
//! operation is tried again, with the record that was read. If the index means something else by then, it is read anew. So
//! every operation takes effect in one piece, though no lock is held while a device works.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use moneta_store::reading::will_read;
use moneta_store::{
    Cx, Item, ItemRef, Key, Lookup, Op, Outcome, OwnedKey, OwnedOp, OwnedValue, Pending, Step, StoreError, Visit,
};

use crate::engine::Inner;
use crate::flusher::Goal;
use crate::lookup::{Fetched, Place};

/// How a try ends.
pub(crate) enum Attempt<T> {
    /// For good.
    Done(Result<T, StoreError>),
    /// For good, once that append is on the devices.
    Durable(T, u64),
    /// It needs what lies there.
    Read(Place),
    /// It needs room, of which so much had been made before the try.
    Full(u64),
}

impl<T> Attempt<T> {
    /// Ended well.
    pub(crate) fn done(outcome: T) -> Self {
        Self::Done(Ok(outcome))
    }

    /// The same with another outcome.
    pub(crate) fn map<U>(self, with: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Done(ended) => Attempt::Done(ended.map(with)),
            Self::Durable(outcome, number) => Attempt::Durable(with(outcome), number),
            Self::Read(place) => Attempt::Read(place),
            Self::Full(before) => Attempt::Full(before),
        }
    }
}

/// Where a value was that an attempt has shown.
enum Shown {
    /// In that part of what was fetched for it.
    Fetched(Range<usize>),
    /// Elsewhere.
    Copied(OwnedValue),
}

impl Inner {
    /// Answers an operation: at once if the first try ends it.
    pub(crate) fn call(self: &Arc<Self>, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match self.attempt(key, op, None, out) {
            Attempt::Done(ended) => Step::Done(ended),
            first => {
                if let Attempt::Read(place) = &first {
                    will_read(place.bytes());
                }
                let (cx, key, op) = (cx.clone(), OwnedKey::of(key), OwnedOp::of(op));
                Step::Wait(pend(Arc::clone(self).drive(cx, key, op, first)))
            }
        }
    }

    async fn drive(
        self: Arc<Self>,
        cx: Cx,
        key: OwnedKey,
        op: OwnedOp,
        first: Attempt<Outcome>,
    ) -> Result<Outcome, StoreError> {
        let mut attempt = first;
        // Of the whole operation, however often it finds the room taken by another.
        let mut deadline = None;
        loop {
            attempt = match attempt {
                Attempt::Done(ended) => return ended,
                Attempt::Durable(outcome, number) => {
                    self.log.queue.wait_until(Goal::Durable(number), by(&self, &mut deadline)).await?;
                    return Ok(outcome);
                }
                Attempt::Read(place) => {
                    let fetched = self.fetch(&cx, place, key.key().bytes).await?;
                    self.attempt_again(&key.key(), &op, Some(fetched))
                }
                Attempt::Full(before) => {
                    self.reclaim.need();
                    let waited = self.log.queue.wait_until(Goal::Room(before), by(&self, &mut deadline)).await;
                    // Also if there will be no room, as devices went off: the operation sees it and takes note of the key.
                    match (self.attempt_again(&key.key(), &op, None), waited) {
                        (Attempt::Full(_), Err(error)) => {
                            self.owe(&key.key());
                            return Err(error);
                        }
                        (attempt, _) => attempt,
                    }
                }
            };
        }
    }

    /// Tries an operation after a wait: an item that it finds is its outcome, as its visitor is gone. A value that was read
    /// goes with the buffer that it was read into.
    fn attempt_again(&self, key: &Key<'_>, op: &OwnedOp, fetched: Option<Fetched>) -> Attempt<Outcome> {
        let mut shown = None;
        let mut note = |item: &ItemRef<'_>| {
            let value = match fetched.as_ref().and_then(|fetched| fetched.range_of(&item.value)) {
                Some(range) => Shown::Fetched(range),
                None => Shown::Copied(item.value.into()),
            };
            shown = Some((item.meta, value));
        };
        let attempt = op.with(|op| self.attempt(key, op, fetched.as_ref(), &mut note));
        let Some((meta, value)) = shown else { return attempt };
        let value = match (value, fetched) {
            (Shown::Fetched(range), Some(fetched)) => OwnedValue::part(fetched.into_bytes(), range),
            (Shown::Copied(value), _) => value,
            (Shown::Fetched(_), None) => unreachable!("a range is one of what was fetched"),
        };
        attempt.map(|_| Outcome::Read(Lookup::Found(Item { meta, value })))
    }
}

/// The deadline of a request, which begins with its first wait for the flusher.
fn by(inner: &Inner, deadline: &mut Option<Instant>) -> Instant {
    *deadline.get_or_insert_with(|| inner.log.queue.deadline())
}

/// A boxed future, as stores give them out.
pub(crate) fn pend<T>(future: impl Future<Output = Result<T, StoreError>> + 'static) -> Pending<T> {
    Box::pin(future)
}
