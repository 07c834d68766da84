//! Writes that need not know what is there: a plain set and a plain delete, without allocation where nothing waits.

use moneta_store::request::{Delete, Write};
use moneta_store::steps::{finish, start_operation};
use moneta_store::{Deleted, Item, Key, Op, Outcome, OwnedKey, Put, Step, Store, StoreError, Unseen, change};

use super::Call;
use super::admission::Known;
use super::keep::Admitted;
use crate::stripes::Held;

/// Whether a delete removes the item without a condition.
fn is_plain(request: &Delete) -> bool {
    request.compare.is_none() && !request.invalidate && !request.drop_value
}

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    #[inline]
    pub(super) fn write(self, key: &Key<'_>, value: &[u8], request: &Write) -> Step {
        let blind = !change::needs_old(request) && value.len() <= self.shared.item_max;
        let paid = blind && self.shared.admits(key, value.len(), Known::Hash(key.hash));
        if paid && let Some(held) = self.shared.stripes.try_lock(key.hash) {
            if !self.shared.moves.is_watched() {
                return self.set(held, key, value, request);
            }
            // Whether the key moves has to be looked at first, and that may wait.
            held.release_unchanged();
        }
        let admitted = if paid { Admitted::Paid } else { Admitted::Unasked };
        let (kept, key, value, request) = (self.kept(), OwnedKey::of(key), value.to_vec(), *request);
        start_operation(async move { kept.call().change_value(&key.key(), &value, &request, admitted).await })
    }

    /// A plain set that has the key's lock already.
    fn set(self, held: Held<'_>, key: &Key<'_>, value: &[u8], request: &Write) -> Step {
        let shared = self.shared;
        let flushed = shared.is_flush_past();
        let version = match change::write(None, value, request, shared.clock.now(), shared.item_max) {
            Ok(version) => version,
            Err(written) => return Step::ended(written),
        };
        let item = version.item();
        match shared.lower.call(self.cx, key, Op::Put(&item, Put::Any), &mut Unseen) {
            Step::Done(below) => match self.settle(key, &item, below.map(Outcome::written)) {
                Step::Done(written) if shared.is_flush_past() == flushed => Step::Done(written.map(Outcome::Written)),
                above => {
                    let (kept, key, held) = (self.kept(), OwnedKey::of(key), held.keep());
                    start_operation(async move {
                        let _held = held;
                        let written = finish(above).await;
                        kept.call().take_back_if_flushed(&key.key(), flushed).await?;
                        written
                    })
                }
            },
            Step::Wait(pending) => {
                let item = Item { meta: item.meta, value: value.to_vec().into() };
                let (kept, key, held) = (self.kept(), OwnedKey::of(key), held.keep());
                start_operation(async move {
                    let _held = held;
                    let (call, key) = (kept.call(), key.key());
                    let below = call.change_below(&key, Step::Wait(pending)).await.map(Outcome::written);
                    let written = finish(call.settle(&key, &item.as_ref(), below)).await;
                    call.take_back_if_flushed(&key, flushed).await?;
                    written
                })
            }
        }
    }

    pub(super) fn remove(self, key: &Key<'_>, request: &Delete) -> Step {
        if is_plain(request)
            && let Some(held) = self.shared.stripes.try_lock(key.hash)
        {
            return match self.shared.lower.call(self.cx, key, Op::Delete(&Delete::default()), &mut Unseen) {
                Step::Done(below) => match self.deleted(key, below.map(Outcome::deleted)) {
                    Step::Wait(above) => {
                        let held = held.keep();
                        start_operation(async move {
                            let _held = held;
                            above.await
                        })
                    }
                    Step::Done(deleted) => Step::Done(deleted.map(Outcome::Deleted)),
                },
                Step::Wait(pending) => {
                    let (kept, key, held) = (self.kept(), OwnedKey::of(key), held.keep());
                    start_operation(async move {
                        let _held = held;
                        let (call, key) = (kept.call(), key.key());
                        let below = call.change_below(&key, Step::Wait(pending)).await.map(Outcome::deleted);
                        finish(call.deleted(&key, below)).await
                    })
                }
            };
        }
        let (kept, key, request) = (self.kept(), OwnedKey::of(key), *request);
        start_operation(async move { kept.call().change_by_delete(&key.key(), &request).await })
    }

    /// Deletes in the upper tier too, and tells whether anything was in either.
    pub(super) fn deleted(self, key: &Key<'_>, below: Result<Deleted, StoreError>) -> Step<Deleted> {
        let below = self.shared.deleted_below(below);
        self.drop_above(key).then(|above| {
            let below = below?;
            Ok(if matches!(above, Ok(Deleted::Deleted)) { Deleted::Deleted } else { below })
        })
    }
}
