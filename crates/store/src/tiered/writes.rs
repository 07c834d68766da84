//! Writes that need not know what is there: a plain set and a plain delete, without allocation where nothing waits.

use moneta_protocol::item::Item;
use moneta_protocol::request::{Delete, Write};

use super::keep::Admitted;
use super::key::OwnedKey;
use super::stripes::Held;
use super::{Tiered, start};
use crate::change;
use crate::error::StoreError;
use crate::key::Key;
use crate::outcome::{Deleted, Step, Written};
use crate::store::{Install, Tier};

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
            return self.set(held, key, value, request);
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
            Step::Done(below) => {
                let written = self.settle(key, &item, below);
                if shared.is_flush_past() == flushed {
                    return Step::Done(written);
                }
                let (this, key, held) = (self.clone(), OwnedKey::of(key), held.keep());
                start(async move {
                    let _held = held;
                    this.shared.take_back_if_flushed(&key.key(), flushed).await?;
                    written
                })
            }
            Step::Wait(pending) => {
                let item = Item { meta: item.meta, value: value.to_vec() };
                let (this, key, held) = (self.clone(), OwnedKey::of(key), held.keep());
                start(async move {
                    let _held = held;
                    let below = this.shared.change_below(&key.key(), Step::Wait(pending)).await;
                    let written = this.settle(&key.key(), &item.as_ref(), below);
                    this.shared.take_back_if_flushed(&key.key(), flushed).await?;
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
                Step::Done(below) => Step::Done(self.deleted(key, below)),
                Step::Wait(pending) => {
                    let (this, key, held) = (self.clone(), OwnedKey::of(key), held.keep());
                    start(async move {
                        let _held = held;
                        let below = this.shared.change_below(&key.key(), Step::Wait(pending)).await;
                        this.deleted(&key.key(), below)
                    })
                }
            };
        }
        let (this, key, request) = (self.clone(), OwnedKey::of(key), *request);
        start(async move { this.change_by_delete(&key.key(), &request).await })
    }

    /// Deletes in the upper tier too, and tells whether anything was in either.
    pub(super) fn deleted(&self, key: &Key<'_>, below: Result<Deleted, StoreError>) -> Result<Deleted, StoreError> {
        let above = self.shared.upper.delete(key, &Delete::default()).now()?;
        let below = self.shared.deleted_below(below)?;
        Ok(if above == Deleted::Deleted { above } else { below })
    }
}
