//! Storing a version in both tiers, the lower first. The caller holds the key's lock.

use std::sync::Arc;

use moneta_store::change::Version;
use moneta_store::request::Delete;
use moneta_store::steps::finish;
use moneta_store::{
    Deleted, ErrorKind, ItemMeta, ItemRef, Key, Op, Outcome, Put, Step, Store, StoreError, Unseen, Written,
};

use super::admission::Known;
use super::{Call, TieredShared};

/// What an item takes of a device besides key and value, about: a record's header.
pub(super) const HEADER_BYTES: usize = 24;

/// Where a version may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// Its bytes are paid for.
    Paid,
    /// The budget is still to be asked.
    Unasked,
}

/// What a version comes from, which matters where the lower tier does not take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A plain set: it can be repeated, and a batch load that is withheld need not be kept.
    Blind,
    /// What was there before: it is not to be lost.
    Newest,
    /// The value that was there before, touched or won. Where it fails, the upper tier's copy stays as true as it was.
    Unchanged,
}

/// A change that the lower tier has been told of and the upper one has not. If it is given up there (its client left), the
/// upper tier is to forget the key: what it has may be old by then.
struct HalfDone<'a, U: Store + 'static, L: Store + 'static> {
    call: Call<'a, U, L>,
    key: Key<'a>,
}

impl<U: Store + 'static, L: Store + 'static> HalfDone<'_, U, L> {
    /// The change goes on to the upper tier, without a wait.
    fn go_on(self) {
        std::mem::forget(self);
    }
}

impl<U: Store + 'static, L: Store + 'static> Drop for HalfDone<'_, U, L> {
    fn drop(&mut self) {
        self.call.drop_above_at_once(&self.key);
    }
}

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    /// Stores a version in both tiers. `flushed`: see [`Call::take_back_if_flushed`].
    pub(super) async fn keep(
        self,
        key: &Key<'_>,
        version: &Version<'_>,
        admitted: Admitted,
        origin: Origin,
        flushed: bool,
    ) -> Result<Written, StoreError> {
        let item = version.item();
        let known = if origin == Origin::Blind { Known::Hash(key.hash) } else { Known::InUse };
        let written = if admitted == Admitted::Paid || self.shared.admits(key, item.value.len(), known) {
            if self.shared.moves.is_watched() {
                Box::pin(self.note_move(key)).await;
            }
            let step = self.shared.lower.call(self.cx, key, Op::Put(&item, Put::Any), &mut Unseen);
            let below = self.change_below(key, step).await.map(Outcome::written);
            match below {
                Err(error) if origin == Origin::Unchanged && error.kind() != ErrorKind::Unavailable => {
                    self.shared.counters.lower_failures.bump();
                    Err(error)
                }
                below => finish(self.settle(key, &item, below)).await,
            }
        } else {
            self.withhold(key, &item, origin).await
        };
        self.take_back_if_flushed(key, flushed).await?;
        written
    }

    /// Does in the upper tier what follows from the lower one's answer.
    #[inline]
    pub(super) fn settle(self, key: &Key<'_>, item: &ItemRef<'_>, below: Result<Written, StoreError>) -> Step<Written> {
        let shared = &self.shared;
        match below {
            Ok(Written::Stored { cas }) => {
                let meta = ItemMeta { cas, ..item.meta };
                let above = self.put_above(key, &ItemRef { meta, value: item.value }, self.put_above_as());
                above.then(move |_| Ok(Written::Stored { cas }))
            }
            Ok(refused) => self.drop_above(key).then(move |_| Ok(refused)),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                shared.counters.lower_failures.bump();
                let above = self.put_above(key, &self.with_cas(key, item), self.put_above_as());
                above.then(move |above| match above {
                    Ok(Written::NotStored) | Err(_) => Err(error),
                    above => above,
                })
            }
            Err(error) => {
                shared.counters.lower_failures.bump();
                self.drop_above(key).then(move |_| Err(error))
            }
        }
    }

    /// Keeps a version out of the lower tier, and what is there under its key too.
    async fn withhold(self, key: &Key<'_>, item: &ItemRef<'_>, origin: Origin) -> Result<Written, StoreError> {
        let shared = &self.shared;
        shared.counters.writes_withheld.bump();
        shared.admission.iter().for_each(|budget| budget.note_withheld(key.hash));
        let item = self.with_cas(key, item);
        let moves_up = shared.moves.is_watched() && shared.lower.call(self.cx, key, Op::Holds, &mut Unseen).holds();
        if let Err(error) = self.drop_below(key).await {
            let _ = finish(self.drop_above(key)).await;
            return Err(error);
        }
        let how = if origin == Origin::Blind { self.put_above_as() } else { Put::Any };
        let above = finish(self.put_above(key, &item, how)).await;
        if moves_up {
            shared.moves.note_up(key);
        }
        match above {
            // Stored, and evicted at once as the first item: a load without a waiter may end so.
            Ok(Written::NotStored) => Ok(Written::Stored { cas: item.meta.cas }),
            Ok(written) => Ok(written),
            Err(_) => Ok(Written::OutOfMemory),
        }
    }

    /// Stores an item in the upper tier, unless it may be one that a delayed flush is yet to take from the lower one. Whatever
    /// comes of it, nothing older is left there.
    pub(super) fn put_above(self, key: &Key<'_>, item: &ItemRef<'_>, how: Put) -> Step<Written> {
        if self.shared.is_flush_late() {
            return self.drop_above(key).then(|dropped| dropped.map(|_| Written::NotStored));
        }
        self.counted(self.shared.upper.call(self.cx, key, Op::Put(item, how), &mut Unseen)).map(Outcome::written)
    }

    /// Leaves the upper tier without the key, even if it fails.
    pub(super) fn drop_above(self, key: &Key<'_>) -> Step<Deleted> {
        let delete = Delete::default();
        self.counted(self.shared.upper.call(self.cx, key, Op::Delete(&delete), &mut Unseen)).map(Outcome::deleted)
    }

    /// The same, without a wait and for good, whatever the upper tier does.
    pub(super) fn drop_above_at_once(self, key: &Key<'_>) {
        let _ = self.shared.upper.call(self.cx, key, Op::Drop, &mut Unseen);
    }

    /// Counts it if the upper tier fails.
    #[inline]
    fn counted(self, step: Step) -> Step {
        match step {
            Step::Done(outcome) => Step::Done(self.shared.counted(outcome)),
            Step::Wait(pending) => {
                let shared = Arc::clone(self.shared);
                Step::Wait(Box::pin(async move { shared.counted(pending.await) }))
            }
        }
    }

    /// The end of a change in the lower tier. The caller changes the upper tier next.
    pub(super) async fn change_below(self, key: &Key<'_>, step: Step) -> Result<Outcome, StoreError> {
        let half_done = HalfDone { call: self, key: *key };
        let outcome = finish(step).await;
        half_done.go_on();
        outcome
    }

    /// Deletes in the lower tier, as the first half of a change.
    pub(super) async fn delete_below(self, key: &Key<'_>) -> Result<Deleted, StoreError> {
        let step = self.shared.lower.call(self.cx, key, Op::Delete(&Delete::default()), &mut Unseen);
        self.change_below(key, step).await.map(Outcome::deleted)
    }

    /// The item with a CAS value in line with those that the lower tier picks.
    fn with_cas<'i>(self, key: &Key<'_>, item: &ItemRef<'i>) -> ItemRef<'i> {
        let cas = match item.meta.cas {
            0 => self.shared.lower.call(self.cx, key, Op::NextCas, &mut Unseen).cas(),
            cas => cas,
        };
        ItemRef { meta: ItemMeta { cas, ..item.meta }, value: item.value }
    }

    /// Leaves the lower tier without the key. One that is off takes note and does so when it is back.
    pub(super) async fn drop_below(self, key: &Key<'_>) -> Result<Deleted, StoreError> {
        if self.shared.cluster {
            // Other copies keep it, so this is no delete.
            let _ = self.shared.lower.call(self.cx, key, Op::Drop, &mut Unseen);
            return Ok(Deleted::NotFound);
        }
        self.shared.deleted_below(self.delete_below(key).await)
    }
}

impl<U, L> TieredShared<U, L> {
    /// What the upper tier answered, counted if it is a failure.
    #[inline]
    pub(super) fn counted<T>(&self, above: Result<T, StoreError>) -> Result<T, StoreError> {
        above.inspect_err(|_| self.counters.upper_failures.bump())
    }

    /// Whether a write may go to the lower tier; takes it from the budget if so.
    pub(super) fn admits(&self, key: &Key<'_>, value_bytes: usize, known: Known) -> bool {
        let bytes = HEADER_BYTES + key.bytes.len() + value_bytes;
        self.admission.as_ref().is_none_or(|budget| budget.admit(bytes, known, self.clock.millis()))
    }

    /// What a delete in the lower tier comes to.
    pub(super) fn deleted_below(&self, below: Result<Deleted, StoreError>) -> Result<Deleted, StoreError> {
        let Err(error) = below else { return below };
        self.counters.lower_failures.bump();
        if error.kind() == ErrorKind::Unavailable { Ok(Deleted::NotFound) } else { Err(error) }
    }
}
