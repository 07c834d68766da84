//! Storing a version in both tiers, the lower first. The caller holds the key's lock.

use moneta_protocol::item::{ItemMeta, ItemRef};
use moneta_protocol::request::Delete;

use super::counters::bump;
use super::{Shared, Tiered};
use crate::change::Version;
use crate::error::{ErrorKind, StoreError};
use crate::key::Key;
use crate::outcome::{Deleted, Step, Written};
use crate::steps::end;
use crate::store::{Install, Tier};

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
struct HalfDone<'a, U: Tier + 'static, L: Tier + 'static> {
    shared: &'a Shared<U, L>,
    key: Key<'a>,
}

impl<U: Tier + 'static, L: Tier + 'static> HalfDone<'_, U, L> {
    /// The change goes on to the upper tier, without a wait.
    fn go_on(self) {
        std::mem::forget(self);
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Drop for HalfDone<'_, U, L> {
    fn drop(&mut self) {
        self.shared.upper.forget(&self.key);
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Tiered<U, L> {
    /// Stores a version in both tiers. `flushed`: see [`Tiered::take_back_if_flushed`].
    pub(super) async fn keep(
        &self,
        key: &Key<'_>,
        version: &Version<'_>,
        admitted: Admitted,
        origin: Origin,
        flushed: bool,
    ) -> Result<Written, StoreError> {
        let item = version.item();
        let written = if admitted == Admitted::Paid || self.shared.admits(key, item.value.len()) {
            if self.shared.moves.is_watched() {
                Box::pin(self.shared.note_move(key)).await;
            }
            let below = self.shared.change_below(key, self.shared.lower.install(key, &item, Install::Set)).await;
            match below {
                Err(error) if origin == Origin::Unchanged && error.kind() != ErrorKind::Unavailable => {
                    bump(&self.shared.counters.lower_failures);
                    Err(error)
                }
                below => end(self.settle(key, &item, below)).await,
            }
        } else {
            self.withhold(key, &item, origin).await
        };
        self.take_back_if_flushed(key, flushed).await?;
        written
    }

    /// Does in the upper tier what follows from the lower one's answer.
    #[inline]
    pub(super) fn settle(
        &self,
        key: &Key<'_>,
        item: &ItemRef<'_>,
        below: Result<Written, StoreError>,
    ) -> Step<Written> {
        let shared = &self.shared;
        match below {
            Ok(Written::Stored { cas }) => {
                let meta = ItemMeta { cas, ..item.meta };
                let above = self.put_above(key, &ItemRef { meta, value: item.value }, self.install_above());
                above.then(move |_| Ok(Written::Stored { cas }))
            }
            Ok(refused) => self.drop_above(key).then(move |_| Ok(refused)),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                bump(&shared.counters.lower_failures);
                let above = self.put_above(key, &shared.with_cas(key, item), self.install_above());
                above.then(move |above| match above {
                    Ok(Written::NotStored) | Err(_) => Err(error),
                    above => above,
                })
            }
            Err(error) => {
                bump(&shared.counters.lower_failures);
                self.drop_above(key).then(move |_| Err(error))
            }
        }
    }

    /// Keeps a version out of the lower tier, and what is there under its key too.
    async fn withhold(&self, key: &Key<'_>, item: &ItemRef<'_>, origin: Origin) -> Result<Written, StoreError> {
        let shared = &self.shared;
        bump(&shared.counters.writes_withheld);
        let item = shared.with_cas(key, item);
        let moves_up = shared.moves.is_watched() && shared.lower.holds(key);
        if let Err(error) = shared.drop_below(key).await {
            let _ = end(self.drop_above(key)).await;
            return Err(error);
        }
        let how = if origin == Origin::Blind { self.install_above() } else { Install::Set };
        let above = end(self.put_above(key, &item, how)).await;
        if moves_up {
            shared.moves.note_up(key);
        }
        match above {
            // Stored, and gone at once as the first to make room: a load that nobody waits for may be cut short so.
            Ok(Written::NotStored) => Ok(Written::Stored { cas: item.meta.cas }),
            Ok(written) => Ok(written),
            Err(_) => Ok(Written::OutOfMemory),
        }
    }

    /// Stores an item in the upper tier, unless it may be one that a delayed flush is yet to take from the lower one. Whatever
    /// comes of it, nothing older is left there.
    pub(super) fn put_above(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        if self.shared.is_flush_late() {
            return self.drop_above(key).then(|dropped| dropped.map(|_| Written::NotStored));
        }
        self.counted(self.shared.upper.install(key, item, how))
    }

    /// Leaves the upper tier without the key, even if it fails.
    pub(super) fn drop_above(&self, key: &Key<'_>) -> Step<Deleted> {
        self.counted(self.shared.upper.delete(key, &Delete::default()))
    }

    /// Counts it if the upper tier fails.
    #[inline]
    fn counted<T: 'static>(&self, step: Step<T>) -> Step<T> {
        match step {
            Step::Done(outcome) => Step::Done(self.shared.counted(outcome)),
            Step::Wait(pending) => {
                let this = self.clone();
                Step::Wait(Box::pin(async move { this.shared.counted(pending.await) }))
            }
        }
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Shared<U, L> {
    /// The end of a change in the lower tier. Whoever waits for it changes the upper tier next.
    pub(super) async fn change_below<T>(&self, key: &Key<'_>, step: Step<T>) -> Result<T, StoreError> {
        let half_done = HalfDone { shared: self, key: *key };
        let outcome = end(step).await;
        half_done.go_on();
        outcome
    }

    /// What the upper tier answered, counted if it is a failure.
    #[inline]
    pub(super) fn counted<T>(&self, above: Result<T, StoreError>) -> Result<T, StoreError> {
        above.inspect_err(|_| bump(&self.counters.upper_failures))
    }

    /// Whether a write may go to the lower tier; takes it from the budget if so.
    pub(super) fn admits(&self, key: &Key<'_>, value_bytes: usize) -> bool {
        let bytes = HEADER_BYTES + key.bytes.len() + value_bytes;
        self.admission.as_ref().is_none_or(|budget| budget.admit(bytes, self.clock.now()))
    }

    /// The item with a CAS value in line with those that the lower tier picks.
    fn with_cas<'a>(&self, key: &Key<'_>, item: &ItemRef<'a>) -> ItemRef<'a> {
        let cas = if item.meta.cas == 0 { self.lower.next_cas(key) } else { item.meta.cas };
        ItemRef { meta: ItemMeta { cas, ..item.meta }, value: item.value }
    }

    /// Leaves the lower tier without the key. One that is off takes note and does so when it is back.
    pub(super) async fn drop_below(&self, key: &Key<'_>) -> Result<Deleted, StoreError> {
        self.deleted_below(self.change_below(key, self.lower.delete(key, &Delete::default())).await)
    }

    /// What a delete in the lower tier comes to.
    pub(super) fn deleted_below(&self, below: Result<Deleted, StoreError>) -> Result<Deleted, StoreError> {
        let Err(error) = below else { return below };
        bump(&self.counters.lower_failures);
        if error.kind() == ErrorKind::Unavailable { Ok(Deleted::NotFound) } else { Err(error) }
    }
}
