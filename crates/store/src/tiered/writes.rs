//! Writes that need not know what is there: a plain set and a plain delete, without allocation where nothing waits.

use moneta_protocol::item::Item;
use moneta_protocol::request::{Delete, Write};

use super::Tiered;
use super::keep::Admitted;
use crate::change;
use crate::error::StoreError;
use crate::key::{Key, OwnedKey};
use crate::outcome::{Deleted, Step, Written};
use crate::steps::{end, start};
use crate::store::{Install, Tier};
use crate::stripes::Held;

/// Whether a delete takes the item whatever it is.
fn is_plain(request: &Delete) -> bool {
    request.compare.is_none() && !request.invalidate && !request.drop_value
}

impl<U: Tier + 'static, L: Tier + 'static> Tiered<U, L> {
    #[inline]
    pub(super) fn write(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let blind = !change::needs_old(request) && value.len() <= self.shared.item_max;
        let paid = blind && self.shared.admits(key, value.len());
        if paid && let Some(held) = self.shared.stripes.try_lock(key.hash) {
            if !self.shared.moves.is_watched() {
                return self.set(held, key, value, request);
            }
            // Whether the key moves has to be looked at first, and that may wait.
            held.release_unchanged();
        }
        let admitted = if paid { Admitted::Paid } else { Admitted::Unasked };
        let (this, key, value, request) = (self.clone(), OwnedKey::of(key), value.to_vec(), *request);
        start(async move { this.change_value(&key.key(), &value, &request, admitted).await })
    }

    /// A plain set that has the key's lock already.
    fn set(&self, held: Held<'_>, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let shared = &self.shared;
        let flushed = shared.is_flush_past();
        let version = match change::write(None, value, request, shared.clock.now(), shared.item_max) {
            Ok(version) => version,
            Err(written) => return Step::done(written),
        };
        let item = version.item();
        match shared.lower.install(key, &item, Install::Set) {
            Step::Done(below) => match self.settle(key, &item, below) {
                Step::Done(written) if shared.is_flush_past() == flushed => Step::Done(written),
                above => {
                    let (this, key, held) = (self.clone(), OwnedKey::of(key), held.keep());
                    start(async move {
                        let _held = held;
                        let written = end(above).await;
                        this.take_back_if_flushed(&key.key(), flushed).await?;
                        written
                    })
                }
            },
            Step::Wait(pending) => {
                let item = Item { meta: item.meta, value: value.to_vec() };
                let (this, key, held) = (self.clone(), OwnedKey::of(key), held.keep());
                start(async move {
                    let _held = held;
                    let below = this.shared.change_below(&key.key(), Step::Wait(pending)).await;
                    let written = end(this.settle(&key.key(), &item.as_ref(), below)).await;
                    this.take_back_if_flushed(&key.key(), flushed).await?;
                    written
                })
            }
        }
    }

    pub(super) fn remove(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        if is_plain(request)
            && let Some(held) = self.shared.stripes.try_lock(key.hash)
        {
            return match self.shared.lower.delete(key, &Delete::default()) {
                Step::Done(below) => match self.deleted(key, below) {
                    Step::Wait(above) => {
                        let held = held.keep();
                        start(async move {
                            let _held = held;
                            above.await
                        })
                    }
                    done => done,
                },
                Step::Wait(pending) => {
                    let (this, key, held) = (self.clone(), OwnedKey::of(key), held.keep());
                    start(async move {
                        let _held = held;
                        let below = this.shared.change_below(&key.key(), Step::Wait(pending)).await;
                        end(this.deleted(&key.key(), below)).await
                    })
                }
            };
        }
        let (this, key, request) = (self.clone(), OwnedKey::of(key), *request);
        start(async move { this.change_by_delete(&key.key(), &request).await })
    }

    /// Deletes in the upper tier too, and tells whether anything was in either.
    pub(super) fn deleted(&self, key: &Key<'_>, below: Result<Deleted, StoreError>) -> Step<Deleted> {
        let below = self.shared.deleted_below(below);
        self.drop_above(key).then(|above| {
            let below = below?;
            Ok(if matches!(above, Ok(Deleted::Deleted)) { Deleted::Deleted } else { below })
        })
    }
}
