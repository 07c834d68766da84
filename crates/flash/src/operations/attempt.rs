//! Operations as attempts: how a request that has to wait goes on.
//!
//! An attempt runs under the lock of the key's shard. It either completes, or names what it needs first: the record on a
//! device, room to write, or its write being durable. The request waits for that without the lock and runs the next attempt
//! with the record that was read. If the index entry has changed meanwhile, the record is read again. So every operation is
//! atomic, and no lock is held during device I/O.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use moneta_store::{
    Cx, Item, ItemRef, Key, Lookup, Op, Outcome, OwnedKey, OwnedOp, OwnedValue, Pending, Step, StoreError, Visit,
};

use crate::flusher::waiting::Goal;
use crate::inner::Inner;
use crate::operations::lookup::{Fetched, RecordPlace};
use moneta_device::io::running::Deadline;

/// How an attempt ends.
pub(crate) enum Attempt<T> {
    /// The operation is complete.
    Done(Result<T, StoreError>),
    /// The operation is complete once this append is on the devices.
    Durable(T, u64),
    /// It needs the record at this place.
    Read(RecordPlace),
    /// It needs room. The number is the reclaim rounds counted before the attempt ([`crate::flusher::waiting::Goal::Room`]).
    Full(u64),
}

impl<T> Attempt<T> {
    /// A successful end.
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

/// Where the value that the visitor was shown came from.
enum Shown {
    /// This part of the fetched bytes.
    Fetched(Range<usize>),
    /// Memory of the engine; copied.
    Copied(OwnedValue),
}

impl Inner {
    /// Answers an operation: at once if the first attempt completes it.
    pub(crate) fn call(self: &Arc<Self>, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match self.attempt(key, op, None, out) {
            Attempt::Done(ended) => Step::Done(ended),
            first => {
                if let Attempt::Read(place) = &first {
                    cx.will_read(place.bytes());
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
        // One deadline for the whole operation, however often others take the room first.
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
                    // Try again even if there will be no room because devices went off: the attempt then marks the key as lost.
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

    /// Runs an attempt after a wait. The visitor is gone by then, so a found item becomes part of the outcome. A value that was
    /// fetched keeps the buffer it was read into.
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
fn by(inner: &Inner, deadline: &mut Option<Deadline>) -> Deadline {
    *deadline.get_or_insert_with(|| inner.log.queue.deadline())
}

/// A boxed future, as stores give them out.
pub(crate) fn pend<T>(future: impl Future<Output = Result<T, StoreError>> + 'static) -> Pending<T> {
    Box::pin(future)
}
