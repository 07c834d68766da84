//! Storing a version in both tiers, the lower first. The caller holds the key's lock.

use moneta_protocol::item::{ItemMeta, ItemRef};
use moneta_protocol::request::Delete;

use super::counters::bump;
use super::{Shared, Tiered, end};
use crate::change::Version;
use crate::error::{ErrorKind, StoreError};
use crate::key::Key;
use crate::outcome::{Deleted, Step, Written};
use crate::store::{Install, Tier};

/// What an item takes of a device besides key and value, about: a record's header.
const HEADER_BYTES: usize = 24;

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
}

/// A change that the lower tier has been told of and the upper one has not. If it is given up there (its client left), the
/// upper tier is left without the key: what it has may be old by then.
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
        self.shared.drop_above(&self.key);
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Tiered<U, L> {
    /// Stores a version in both tiers. `flushed`: see [`Shared::take_back_if_flushed`].
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
            let below = self.shared.change_below(key, self.shared.lower.install(key, &item, Install::Set)).await;
            self.settle(key, &item, below)
        } else {
            self.withhold(key, &item, origin).await
        };
        self.shared.take_back_if_flushed(key, flushed).await?;
        written
    }

    /// Does in the upper tier what follows from the lower one's answer.
    pub(super) fn settle(
        &self,
        key: &Key<'_>,
        item: &ItemRef<'_>,
        below: Result<Written, StoreError>,
    ) -> Result<Written, StoreError> {
        let shared = &self.shared;
        match below {
            Ok(Written::Stored { cas }) => {
                let meta = ItemMeta { cas, ..item.meta };
                let _ = shared.put_above(key, &ItemRef { meta, value: item.value }, self.install_above());
                Ok(Written::Stored { cas })
            }
            Ok(refused) => {
                shared.drop_above(key);
                Ok(refused)
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                bump(&shared.counters.lower_failures);
                match shared.put_above(key, &shared.with_cas(key, item), self.install_above()) {
                    Some(Written::NotStored) | None => Err(error),
                    Some(written) => Ok(written),
                }
            }
            Err(error) => {
                bump(&shared.counters.lower_failures);
                shared.drop_above(key);
                Err(error)
            }
        }
    }

    /// Keeps a version out of the lower tier, and what is there under its key too.
    async fn withhold(&self, key: &Key<'_>, item: &ItemRef<'_>, origin: Origin) -> Result<Written, StoreError> {
        let shared = &self.shared;
        bump(&shared.counters.writes_withheld);
        let item = shared.with_cas(key, item);
        shared.drop_below(key).await.inspect_err(|_| shared.drop_above(key))?;
        let how = if origin == Origin::Blind { self.install_above() } else { Install::Set };
        match shared.put_above(key, &item, how) {
            // Stored, and gone at once as the first to make room: a load that nobody waits for may be cut short so.
            Some(Written::NotStored) => Ok(Written::Stored { cas: item.meta.cas }),
            Some(written) => Ok(written),
            None => Ok(Written::OutOfMemory),
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
