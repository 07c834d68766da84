//! Requests whose outcome depends on what is there: decided on the newest copy, under the key's lock, whichever tier has it.

use moneta_protocol::item::{Item, ItemMeta, ItemRef};
use moneta_protocol::request::{Arithmetic, Delete, Retrieve, Write};

use super::keep::{Admitted, Origin};
use super::{Policy, Shared, Tiered};
use crate::change::{self, Old, Removal};
use crate::error::{ErrorKind, StoreError};
use crate::key::{Key, OwnedKey};
use crate::outcome::{Deleted, Lookup, Number, Step, Written};
use crate::steps::{end, found, start};
use crate::store::Tier;
use crate::stripes::Held;

/// The newest copy of a key.
#[derive(Default)]
struct Newest {
    item: Option<Item>,
    /// Something is there whose time is up.
    expired: bool,
    /// The lower tier has it, and the upper one does not.
    below: bool,
}

impl Newest {
    /// The item if it lives.
    fn live(&self, now: u32) -> Option<Old<'_>> {
        let item = self.item.as_ref().filter(|item| !item.meta.expiry.is_dead(now))?;
        Some(Old { meta: item.meta, value: &item.value })
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Tiered<U, L> {
    /// `incr` and `decr`.
    pub(super) fn compute(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        let (this, key, request) = (self.clone(), OwnedKey::of(key), *request);
        start(async move { this.change_number(&key.key(), &request).await })
    }

    /// A read that changes the item, or may. `seen`: the item's meta data before this very request was counted as a read.
    pub(super) fn change_by_read(&self, key: &Key<'_>, request: &Retrieve, seen: Option<ItemMeta>) -> Step<Lookup> {
        let (this, key, request) = (self.clone(), OwnedKey::of(key), *request);
        start(async move { this.read_and_change(&key.key(), &request, seen).await })
    }

    pub(super) async fn change_value(
        &self,
        key: &Key<'_>,
        value: &[u8],
        request: &Write,
        admitted: Admitted,
    ) -> Result<Written, StoreError> {
        let shared = &self.shared;
        let _held = shared.lock(key).await;
        let flushed = shared.is_flush_past();
        let blind = !change::needs_old(request);
        let newest = if blind { Newest::default() } else { shared.newest(key).await? };
        let now = shared.clock.now();
        match change::write(newest.live(now).as_ref(), value, request, now, shared.item_max) {
            Ok(version) => {
                let origin = if blind { Origin::Blind } else { Origin::Newest };
                self.keep(key, &version, admitted, origin, flushed).await
            }
            Err(Written::TooLarge) => {
                let _ = end(self.drop_above(key)).await;
                shared.drop_below(key).await?;
                Ok(Written::TooLarge)
            }
            Err(written) => Ok(written),
        }
    }

    pub(super) async fn change_by_delete(&self, key: &Key<'_>, request: &Delete) -> Result<Deleted, StoreError> {
        let shared = &self.shared;
        let _held = shared.lock(key).await;
        let flushed = shared.is_flush_past();
        let newest = shared.newest(key).await?;
        let now = shared.clock.now();
        let version = match change::delete(newest.live(now).as_ref(), request, now) {
            Ok(Removal::Rewrite(version)) => version,
            Ok(Removal::Remove) => {
                let below = shared.change_below(key, shared.lower.delete(key, &Delete::default())).await;
                end(self.deleted(key, below)).await?;
                return Ok(Deleted::Deleted);
            }
            Err(deleted) => return Ok(deleted),
        };
        match self.keep(key, &version, Admitted::Unasked, Origin::Newest, flushed).await? {
            // Where there is no room to mark the item, it goes.
            Written::Stored { .. } | Written::OutOfMemory => Ok(Deleted::Deleted),
            other => Err(unexpected(other)),
        }
    }

    async fn change_number(&self, key: &Key<'_>, request: &Arithmetic) -> Result<Number, StoreError> {
        let shared = &self.shared;
        let _held = shared.lock(key).await;
        let flushed = shared.is_flush_past();
        let newest = shared.newest(key).await?;
        let now = shared.clock.now();
        let computed = match change::arithmetic(newest.live(now).as_ref(), request, now) {
            Ok(computed) => computed,
            Err(number) => return Ok(number),
        };
        match self.keep(key, &computed.version, Admitted::Unasked, Origin::Newest, flushed).await? {
            Written::Stored { cas } => Ok(computed.answer(cas)),
            Written::OutOfMemory => Ok(Number::OutOfMemory),
            other => Err(unexpected(other)),
        }
    }

    /// A read under the key's lock, with whatever it changes.
    pub(super) async fn read_and_change(
        &self,
        key: &Key<'_>,
        request: &Retrieve,
        seen: Option<ItemMeta>,
    ) -> Result<Lookup, StoreError> {
        let shared = &self.shared;
        let _held = shared.lock(key).await;
        let flushed = shared.is_flush_past();
        let newest = shared.newest(key).await?;
        let now = shared.clock.now();
        let mut old = newest.live(now);
        if let (Some(old), Some(seen)) = (&mut old, seen)
            && old.meta.cas == seen.cas
        {
            (old.meta.last_access, old.meta.fetched) = (seen.last_access, seen.fetched);
        }
        let Some(reading) = change::read(old.as_ref(), request, now) else {
            shared.lanes.miss();
            return Ok(Lookup::Miss { expired: newest.expired || newest.item.is_some() });
        };
        let origin = if reading.created { Origin::Newest } else { Origin::Unchanged };
        let cas = match &reading.rewrite {
            Some(version) => match self.keep(key, version, Admitted::Unasked, origin, flushed).await? {
                Written::Stored { cas } => cas,
                other => return Err(unexpected(other)),
            },
            None => {
                self.count_read(key, &newest, request).await;
                if shared.is_flush_past() != flushed {
                    // It may have come up behind the flush.
                    let _ = end(self.drop_above(key)).await;
                }
                reading.meta.cas
            }
        };
        match (reading.created, newest.below) {
            (true, _) => shared.lanes.miss(),
            (false, true) => shared.lanes.lower_hit(),
            (false, false) => _ = shared.lanes.upper_hit(),
        }
        Ok(Lookup::Found(Item { meta: reading.shown(cas), value: reading.value.to_vec() }))
    }

    /// What a read does besides, if it changes nothing.
    async fn count_read(&self, key: &Key<'_>, newest: &Newest, request: &Retrieve) {
        let Some(item) = newest.item.as_ref() else { return };
        let shared = &self.shared;
        if !newest.below {
            let plain = Retrieve { bump: request.bump, ..Retrieve::default() };
            let above = end(shared.upper.get(key, &plain, &mut |_: &ItemRef<'_>| ())).await;
            let _ = shared.counted(above);
            return;
        }
        if request.bump {
            shared.lower.note_hit(key);
        }
        if self.policy == Policy::Online && self.promotes(&item.meta) {
            self.bring_up(key, &item.as_ref(), request).await;
        }
    }
}

/// A tier's answer to a whole item that it had before, or that is empty or a number.
fn unexpected(written: Written) -> StoreError {
    let kind = if written == Written::OutOfMemory { ErrorKind::OutOfMemory } else { ErrorKind::Unsupported };
    let context = match written {
        Written::OutOfMemory => "out of memory storing object".to_owned(),
        other => format!("the lower tier does not take the item: {other:?}"),
    };
    StoreError::new(kind, context)
}

impl<U: Tier + 'static, L: Tier + 'static> Shared<U, L> {
    pub(super) async fn lock(&self, key: &Key<'_>) -> Held<'_> {
        self.stripes.lock(key.hash, &self.counters.key_waits).await
    }

    /// The newest copy of a key. The caller holds its lock, so it stays the newest.
    async fn newest(&self, key: &Key<'_>) -> Result<Newest, StoreError> {
        let above = end(found(|mut seen| self.upper.peek(key, &mut seen))).await;
        let expired = match self.counted(above) {
            Ok(Lookup::Found(item)) => return Ok(Newest { item: Some(item), expired: false, below: false }),
            Ok(above) => above == Lookup::Miss { expired: true },
            Err(_) => false,
        };
        match end(found(|mut seen| self.lower.peek(key, &mut seen))).await {
            Ok(Lookup::Found(item)) => Ok(Newest { item: Some(item), expired: false, below: true }),
            Ok(below) => {
                Ok(Newest { expired: expired || below == Lookup::Miss { expired: true }, ..Newest::default() })
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Newest { expired, ..Newest::default() }),
            Err(error) => Err(error),
        }
    }
}
