//! Requests whose outcome depends on what is there: decided on the newest copy, under the key's lock, whichever tier has it.

use moneta_store::change::{self, Content, Old, Removal, Version};
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::steps::{finish, look_up, start_operation};
use moneta_store::{
    Deleted, ErrorKind, Item, ItemMeta, ItemRef, Key, Lookup, Number, Op, OwnedKey, Policy, Put, Step, Store,
    StoreError, Unseen, Value, Written,
};

use super::keep::{Admitted, Origin};
use super::{Call, TieredShared};
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

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    /// `incr` and `decr`.
    pub(super) fn compute(self, key: &Key<'_>, request: &Arithmetic) -> Step {
        let (kept, key, request) = (self.kept(), OwnedKey::of(key), *request);
        start_operation(async move { kept.call().change_number(&key.key(), &request).await })
    }

    /// Stores a whole item, as it is.
    pub(super) fn put(self, key: &Key<'_>, item: &ItemRef<'_>, how: Put) -> Step {
        if let Put::Newer { base, .. } = how
            && let Some(held) = self.shared.stripes.try_lock(key.hash)
        {
            if !self.shared.moves.is_watched() {
                return self.put_newer_at_once(held, key, item, (how, base));
            }
            // Whether the key moves has to be looked at first, and that may wait.
            held.release_unchanged();
        }
        let (kept, key, meta, value) = (self.kept(), OwnedKey::of(key), item.meta, item.value.to_vec());
        start_operation(async move { kept.call().put_whole(&key.key(), meta, &value, how).await })
    }

    async fn put_whole(self, key: &Key<'_>, meta: ItemMeta, value: &[u8], how: Put) -> Result<Written, StoreError> {
        let _held = self.lock(key).await;
        let flushed = self.shared.is_flush_past();
        let origin = match how {
            Put::Any => Origin::Blind,
            how @ Put::Newer { base, .. } => {
                let item = ItemRef { meta, value: Value::whole(value) };
                return self.put_newer(key, &item, (how, base), flushed).await;
            }
            Put::Present => {
                let newest = self.newest(key).await?;
                if newest.live(self.shared.clock.now()).is_none() {
                    return Ok(Written::NotStored);
                }
                Origin::Newest
            }
        };
        let version = Version::of(&meta, Content::whole(value));
        self.keep(key, &version, Admitted::Unasked, origin, flushed).await
    }

    /// A read that changes the item, or may. `seen`: the item's meta data before this very request was counted as a read.
    pub(super) fn change_by_read(self, key: &Key<'_>, request: &Retrieve, seen: Option<ItemMeta>) -> Step {
        let (kept, key, request) = (self.kept(), OwnedKey::of(key), *request);
        start_operation(async move { kept.call().read_and_change(&key.key(), &request, seen).await })
    }

    pub(super) async fn change_value(
        self,
        key: &Key<'_>,
        value: &[u8],
        request: &Write,
        admitted: Admitted,
    ) -> Result<Written, StoreError> {
        let shared = &self.shared;
        let _held = self.lock(key).await;
        let flushed = shared.is_flush_past();
        let blind = !change::needs_old(request);
        let newest = if blind { Newest::default() } else { self.newest(key).await? };
        let now = shared.clock.now();
        match change::write(newest.live(now).as_ref(), value, request, now, shared.item_max) {
            Ok(version) => {
                let origin = if blind { Origin::Blind } else { Origin::Newest };
                self.keep(key, &version, admitted, origin, flushed).await
            }
            Err(Written::TooLarge) => {
                let _ = finish(self.drop_above(key)).await;
                self.drop_below(key).await?;
                Ok(Written::TooLarge)
            }
            Err(written) => Ok(written),
        }
    }

    pub(super) async fn change_by_delete(self, key: &Key<'_>, request: &Delete) -> Result<Deleted, StoreError> {
        let shared = &self.shared;
        let _held = self.lock(key).await;
        let flushed = shared.is_flush_past();
        let newest = self.newest(key).await?;
        let now = shared.clock.now();
        let version = match change::delete(newest.live(now).as_ref(), request, now) {
            Ok(Removal::Rewrite(version)) => shared.versioned(version, newest.live(now).as_ref()),
            Ok(Removal::Remove) => {
                let below = self.delete_below(key).await;
                finish(self.deleted(key, below)).await?;
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

    async fn change_number(self, key: &Key<'_>, request: &Arithmetic) -> Result<Number, StoreError> {
        let shared = &self.shared;
        let _held = self.lock(key).await;
        let flushed = shared.is_flush_past();
        let newest = self.newest(key).await?;
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
        self,
        key: &Key<'_>,
        request: &Retrieve,
        seen: Option<ItemMeta>,
    ) -> Result<Lookup, StoreError> {
        let shared = &self.shared;
        let _held = self.lock(key).await;
        let flushed = shared.is_flush_past();
        let newest = self.newest(key).await?;
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
            Some(version) => match self
                .keep(key, &shared.versioned(*version, old.as_ref()), Admitted::Unasked, origin, flushed)
                .await?
            {
                Written::Stored { cas } => cas,
                other => return Err(unexpected(other)),
            },
            None => {
                self.count_read(key, &newest, request).await;
                if shared.is_flush_past() != flushed {
                    // It may have come up after the flush.
                    let _ = finish(self.drop_above(key)).await;
                }
                reading.meta.cas
            }
        };
        match (reading.created, newest.below) {
            (true, _) => shared.lanes.miss(),
            (false, true) => shared.lanes.lower_hit(),
            (false, false) => _ = shared.lanes.upper_hit(),
        }
        Ok(Lookup::Found(Item { meta: reading.shown(cas), value: reading.value.to_vec().into() }))
    }

    /// What a read does besides, if it changes nothing.
    async fn count_read(self, key: &Key<'_>, newest: &Newest, request: &Retrieve) {
        let Some(item) = newest.item.as_ref() else { return };
        let shared = &self.shared;
        if !newest.below {
            let plain = Retrieve { bump: request.bump, ..Retrieve::default() };
            let above = finish(shared.upper.call(self.cx, key, Op::Read(&plain), &mut Unseen)).await;
            let _ = shared.counted(above);
            return;
        }
        if request.bump {
            let _ = shared.lower.call(self.cx, key, Op::NoteHit, &mut Unseen);
        }
        if self.cx.policy() == Policy::Online && self.promotes(&item.meta) {
            self.bring_up(key, &item.as_ref(), request).await;
        }
    }
}

impl<U, L> TieredShared<U, L> {
    /// What is stored in place of `old`, as one of several copies makes it if this is one.
    fn versioned<'v>(&self, version: Version<'v>, old: Option<&Old<'_>>) -> Version<'v> {
        match old {
            Some(old) if self.cluster => version.in_cluster(&old.meta, old.value.len()),
            _ => version,
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

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    pub(super) async fn lock(self, key: &Key<'_>) -> Held<'a> {
        self.shared.stripes.lock(key.hash, &self.shared.counters.key_waits).await
    }

    /// The newest copy of a key. The caller holds its lock, so it stays the newest.
    async fn newest(self, key: &Key<'_>) -> Result<Newest, StoreError> {
        let above = look_up(&self.shared.upper, self.cx, key, Op::Peek).await;
        let expired = match self.shared.counted(above) {
            Ok(Lookup::Found(item)) => return Ok(Newest { item: Some(item), expired: false, below: false }),
            Ok(above) => above == Lookup::Miss { expired: true },
            Err(_) => false,
        };
        match look_up(&self.shared.lower, self.cx, key, Op::Peek).await {
            Ok(Lookup::Found(item)) => Ok(Newest { item: Some(item), expired: false, below: true }),
            Ok(below) => {
                Ok(Newest { expired: expired || below == Lookup::Miss { expired: true }, ..Newest::default() })
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Newest { expired, ..Newest::default() }),
            Err(error) => Err(error),
        }
    }
}
