//! The operations on a key, each as one attempt under the lock of the key's shard.

use moneta_store::change::{self, Content, Old, Removal, Version as NewItem};
use moneta_store::component::{RemovalCause, Removed};
use moneta_store::feed::GapCause;
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::{
    Deleted, ErrorKind, Expiry, ItemRef, Key, Lookup, Number, Op, Outcome, Put, StoreError, Version, Visit, Written,
};

use crate::config::Durability;
use crate::counters::count;
use crate::flusher::health::off;
use crate::index::location::Location;
use crate::index::shard::Shard;
use crate::inner::Inner;
use crate::log::writer::{Full, Log, Over};
use crate::operations::attempt::Attempt;
use crate::operations::lookup::{Fetched, Look, Present};
use moneta_device::format::record::{Draft, mark};

/// Why an attempt cannot complete.
pub(crate) enum Halt {
    Full(u64),
    Failed(StoreError),
}

/// Why a key is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removing {
    /// What is here is not to be served again; other copies are not told.
    Here,
    /// It is deleted, under this version or the next: for all copies, whether it is here or not.
    As(Option<Version>),
}

/// Values read at the start of an attempt, before the lookup.
#[derive(Clone, Copy)]
pub(crate) struct Ground {
    /// Reclaim rounds so far.
    room: u64,
    /// The floor of the last flush.
    floor: u64,
}

/// A stored record.
pub(crate) struct Stored {
    pub(crate) cas: u64,
    pub(crate) number: u64,
}

/// The state of a key.
enum KeyState<'f> {
    Live(Present<'f>),
    /// No item, or another key's record. `expired`: an expired item was found and removed.
    Gone {
        expired: bool,
    },
    Elsewhere(crate::operations::lookup::RecordPlace),
}

impl Inner {
    pub(crate) fn ground(&self) -> Ground {
        Ground { room: self.log.queue.freed(), floor: self.log.floor() }
    }

    /// Runs one attempt of an operation; `fetched` is the record read since the attempt before.
    pub(crate) fn attempt(
        &self,
        key: &Key<'_>,
        op: Op<'_>,
        fetched: Option<&Fetched>,
        out: &mut dyn Visit,
    ) -> Attempt<Outcome> {
        match op {
            Op::Read(request) => self.try_get(key, request, fetched, out).map(Outcome::Read),
            Op::Peek => self.try_peek(key, fetched, out).map(Outcome::Read),
            Op::Write(value, request) => self.try_set(key, value, request, fetched).map(Outcome::Written),
            Op::Delete(request) => self.try_delete(key, request, fetched).map(Outcome::Deleted),
            Op::Arithmetic(request) => self.try_arithmetic(key, request, fetched).map(Outcome::Number),
            Op::Put(item, Put::Newer { as_of, base }) => {
                self.try_put_newer(key, item, as_of, base, fetched).map(Outcome::Written)
            }
            Op::Put(item, how) => self.try_put(key, item, how, fetched).map(Outcome::Written),
            Op::Drop => {
                // Without room for the tombstone now, it is appended later; until then the key is not served.
                if matches!(self.forget(key), Attempt::Full(_)) {
                    self.owe(key);
                }
                Attempt::done(Outcome::Done)
            }
            // By the index alone, which mistakes one key for another about once in a million lookups.
            Op::Holds => Attempt::done(Outcome::Held(self.find(&self.shard(key.hash).lock(), key.hash).is_some())),
            Op::NoteHit => {
                self.mark_hit(key);
                Attempt::done(Outcome::Done)
            }
            Op::Bury(version) => self.try_bury(key, version, fetched).map(Outcome::Deleted),
            Op::BuriedAs => Attempt::done(Outcome::Cas(self.buried_as(key).0)),
            Op::NextCas => Attempt::done(Outcome::Cas(self.log.next_stamp().0)),
        }
    }

    fn try_get(
        &self,
        key: &Key<'_>,
        request: &Retrieve,
        fetched: Option<&Fetched>,
        visitor: &mut dyn Visit,
    ) -> Attempt<Lookup> {
        let now = self.settle();
        let ground = self.ground();
        let mut shard = self.shard(key.hash).lock();
        let state = self.state(&mut shard, key, fetched, now);
        let (expired, present) = match state {
            KeyState::Elsewhere(place) => return Attempt::Read(place),
            KeyState::Gone { expired } => (expired, None),
            KeyState::Live(present) => (false, Some(present)),
        };
        let view = present.as_ref().map(|present| (present.meta(now), present.view().value()));
        let old = view.map(|(meta, value)| Old { meta, value });
        let Some(reading) = change::read(old.as_ref(), request, now) else {
            return Attempt::done(Lookup::Miss { expired });
        };
        let mut number = None;
        let mut cas = reading.meta.cas;
        if let Some(version) = &reading.rewrite {
            match self.store(&mut shard, key, &self.versioned(*version, old.as_ref()), now, ground) {
                Ok(stored) => (cas, number) = (stored.cas, Some(stored.number)),
                Err(halt) => return halt.into(),
            }
        } else if request.bump
            && let Some(present) = &present
        {
            shard.index.replace(present.position, present.location.hit().0);
        }
        visitor.item(&ItemRef { meta: reading.shown(cas), value: moneta_store::Value::whole(reading.value) });
        self.ended(Lookup::Visited, number)
    }

    fn try_peek(&self, key: &Key<'_>, fetched: Option<&Fetched>, visitor: &mut dyn Visit) -> Attempt<Lookup> {
        let now = self.settle();
        let mut shard = self.shard(key.hash).lock();
        match self.state(&mut shard, key, fetched, now) {
            KeyState::Elsewhere(place) => Attempt::Read(place),
            KeyState::Gone { expired } => Attempt::done(Lookup::Miss { expired }),
            KeyState::Live(present) => {
                let value = moneta_store::Value::whole(present.view().value());
                visitor.item(&ItemRef { meta: present.meta(now), value });
                Attempt::done(Lookup::Visited)
            }
        }
    }

    fn try_set(&self, key: &Key<'_>, value: &[u8], request: &Write, fetched: Option<&Fetched>) -> Attempt<Written> {
        if value.len() > self.config.item_max {
            return match self.forget(key) {
                Attempt::Durable(_, number) => Attempt::Durable(Written::TooLarge, number),
                other => other.map(|_| Written::TooLarge),
            };
        }
        if self.log.queue.is_off() {
            return self.refuse(key);
        }
        let now = self.settle();
        let ground = self.ground();
        if !change::needs_old(request) {
            return match change::write(None, value, request, now, self.config.item_max) {
                Ok(version) => self.try_store(key, &version, now, ground),
                Err(written) => Attempt::done(written),
            };
        }
        let mut shard = self.shard(key.hash).lock();
        let present = match self.state(&mut shard, key, fetched, now).live() {
            Ok(present) => present,
            Err(place) => return Attempt::Read(place),
        };
        let old = present.as_ref().map(|present| old(present, now));
        match change::write(old.as_ref(), value, request, now, self.config.item_max) {
            Err(written) => Attempt::done(written),
            Ok(version) => match self.store(&mut shard, key, &version, now, ground) {
                Ok(stored) => self.ended(Written::Stored { cas: stored.cas }, Some(stored.number)),
                Err(halt) => halt.into(),
            },
        }
    }

    /// Stores a version unconditionally.
    fn try_store(&self, key: &Key<'_>, version: &NewItem<'_>, now: u32, ground: Ground) -> Attempt<Written> {
        let mut scratch = Vec::new();
        let draft = self.draft(key, version, &mut scratch);
        // Hashing takes long for a long value, so it comes before the lock.
        let hash = draft.content_hash();
        let mut shard = self.shard(key.hash).lock();
        match self.put(&mut shard, key, &draft, hash, Log::group_of(version.expiry, now), ground) {
            Ok(stored) => self.ended(Written::Stored { cas: stored.cas }, Some(stored.number)),
            Err(halt) => halt.into(),
        }
    }

    fn try_delete(&self, key: &Key<'_>, request: &Delete, fetched: Option<&Fetched>) -> Attempt<Deleted> {
        if self.log.queue.is_off() {
            let is_plain = *request == Delete::default();
            return match self.config.versioning.cluster && is_plain {
                true => self.refuse_delete(key, self.log.sequence.next()),
                false => self.refuse(key),
            };
        }
        let now = self.settle();
        let ground = self.ground();
        let mut shard = self.shard(key.hash).lock();
        if fetched.is_none() && *request == Delete::default() {
            // The region's summary usually tells whether the record may have expired, so the record need not be read.
            let Some((_, location)) = self.find(&shard, key.hash) else {
                return self.not_found(&mut shard, key, now, ground);
            };
            let region = self.regions.get(self.regions.region_of(location.block()));
            let summary = region.summary();
            if region.resident.read().is_none() && (summary.expiry_min > now || summary.expiry_max <= now) {
                let dead = summary.expiry_max <= now;
                return self
                    .remove(&mut shard, key, self.deleting(), now, ground)
                    .map_or_else(Attempt::from, |number| {
                        self.ended(if dead { Deleted::NotFound } else { Deleted::Deleted }, number)
                    });
            }
        }
        let present = match self.state(&mut shard, key, fetched, now).live() {
            Ok(present) => present,
            Err(place) => return Attempt::Read(place),
        };
        let old = present.as_ref().map(|present| old(present, now));
        match change::delete(old.as_ref(), request, now) {
            Err(Deleted::NotFound)
                if self.config.versioning.cluster && !self.config.feed && is_on_condition(request) =>
            {
                // What keeps others' older writes out has to be told, and no log tells it here.
                Attempt::done(Deleted::NotFound)
            }
            Err(Deleted::NotFound) => self.not_found(&mut shard, key, now, ground),
            Err(deleted) => Attempt::done(deleted),
            Ok(Removal::Remove) => self
                .remove(&mut shard, key, self.deleting(), now, ground)
                .map_or_else(Attempt::from, |number| self.ended(Deleted::Deleted, number)),
            Ok(Removal::Rewrite(version)) => {
                match self.store(&mut shard, key, &self.versioned(version, old.as_ref()), now, ground) {
                    Ok(stored) => self.ended(Deleted::Deleted, Some(stored.number)),
                    Err(halt) => halt.into(),
                }
            }
        }
    }

    /// A delete without an index entry. A record of an evicted key must not come back at a restart.
    fn not_found(&self, shard: &mut Shard, key: &Key<'_>, now: u32, ground: Ground) -> Attempt<Deleted> {
        // One of several copies has to write the delete down, at the price of the other key.
        if self.find(shard, key.hash).is_some() && !self.config.versioning.cluster {
            // The entry is another key's with this identity, and newer than any evicted record.
            return Attempt::done(Deleted::NotFound);
        }
        self.remove(shard, key, self.deleting(), now, ground)
            .map_or_else(Attempt::from, |number| self.ended(Deleted::NotFound, number))
    }

    fn try_arithmetic(&self, key: &Key<'_>, request: &Arithmetic, fetched: Option<&Fetched>) -> Attempt<Number> {
        if self.log.queue.is_off() {
            return self.refuse(key);
        }
        let now = self.settle();
        let ground = self.ground();
        let mut shard = self.shard(key.hash).lock();
        let present = match self.state(&mut shard, key, fetched, now).live() {
            Ok(present) => present,
            Err(place) => return Attempt::Read(place),
        };
        let old = present.as_ref().map(|present| old(present, now));
        match change::arithmetic(old.as_ref(), request, now) {
            Err(number) => Attempt::done(number),
            Ok(computed) => match self.store(&mut shard, key, &computed.version, now, ground) {
                Ok(stored) => self.ended(computed.answer(stored.cas), Some(stored.number)),
                Err(halt) => halt.into(),
            },
        }
    }

    fn try_put(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Put, fetched: Option<&Fetched>) -> Attempt<Written> {
        let mut copied = Vec::new();
        let value = item.value.as_slice().unwrap_or_else(|| {
            item.value.copy_to(&mut copied);
            &copied
        });
        if value.len() > self.config.item_max {
            return self.forget(key).map(|_| Written::TooLarge);
        }
        if self.log.queue.is_off() {
            return self.refuse(key);
        }
        let now = self.settle();
        let ground = self.ground();
        let version = NewItem::of(&item.meta, Content::whole(value));
        if how == Put::Any {
            return self.try_store(key, &version, now, ground);
        }
        let mut shard = self.shard(key.hash).lock();
        match self.state(&mut shard, key, fetched, now) {
            KeyState::Elsewhere(place) => Attempt::Read(place),
            KeyState::Gone { .. } => Attempt::done(Written::NotStored),
            KeyState::Live(_) => match self.store(&mut shard, key, &version, now, ground) {
                Ok(stored) => self.ended(Written::Stored { cas: stored.cas }, Some(stored.number)),
                Err(halt) => halt.into(),
            },
        }
    }

    /// What is stored in place of `old`, as one of several copies makes it if this is one.
    fn versioned<'v>(&self, version: NewItem<'v>, old: Option<&Old<'_>>) -> NewItem<'v> {
        match old {
            Some(old) if self.config.versioning.cluster => version.in_cluster(&old.meta, old.value.len()),
            _ => version,
        }
    }

    #[inline]
    fn draft<'a>(&self, key: &Key<'a>, version: &'a NewItem<'_>, scratch: &'a mut Vec<u8>) -> Draft<'a> {
        draft(key, version, self.log.sequence.counts(), scratch)
    }

    /// How a client's delete removes a key.
    fn deleting(&self) -> Removing {
        if self.config.versioning.cluster { Removing::As(None) } else { Removing::Here }
    }

    /// Removes a key unconditionally.
    pub(crate) fn forget(&self, key: &Key<'_>) -> Attempt<()> {
        if self.log.queue.is_off() {
            return self.refuse(key);
        }
        let now = self.settle();
        let ground = self.ground();
        let mut shard = self.shard(key.hash).lock();
        self.remove(&mut shard, key, Removing::Here, now, ground)
            .map_or_else(Attempt::from, |number| self.ended((), number))
    }

    /// A change while devices are off: fails, and makes sure that the key's stored version is never served again.
    #[cold]
    pub(crate) fn refuse<T>(&self, key: &Key<'_>) -> Attempt<T> {
        // The upper tier may take it.
        self.note_untold(GapCause::Off);
        let mut shard = self.shard(key.hash).lock();
        self.outdate_key(&mut shard, key);
        Attempt::Done(Err(off()))
    }

    fn outdate_key(&self, shard: &mut Shard, key: &Key<'_>) {
        if let Some((position, _)) = self.find(shard, key.hash) {
            shard.index.remove(position);
            // No tombstone can be written now, so a restart would find the record: mark the devices outdated.
            self.outdate();
        } else if self.log.evicted(key.hash) != 0 {
            self.outdate();
        }
    }

    pub(crate) fn ended<T>(&self, outcome: T, number: Option<u64>) -> Attempt<T> {
        match number {
            Some(number) if self.config.durability == Durability::EveryWrite => Attempt::Durable(outcome, number),
            _ => Attempt::done(outcome),
        }
    }

    /// Looks for a live item. Removes an expired one from the index.
    fn state<'f>(&self, shard: &mut Shard, key: &Key<'_>, fetched: Option<&'f Fetched>, now: u32) -> KeyState<'f> {
        let present = match self.look(shard, key, fetched) {
            Look::Absent | Look::Foreign => return KeyState::Gone { expired: false },
            Look::On(place) => return KeyState::Elsewhere(place),
            Look::Present(present) => present,
        };
        count(&self.counters.lookups, 1);
        if !present.view().expiry().is_dead(now) {
            return KeyState::Live(present);
        }
        self.note_forgotten(key, present.location);
        self.remember_expired(key, &present.meta(now));
        shard.index.remove(present.position);
        let meta = present.meta(now);
        count(&self.counters.expired, 1);
        count(&self.counters.expired_unfetched, u64::from(!meta.fetched));
        if let Some(observer) = self.observer.read().as_ref() {
            let value_bytes = present.view().value().len();
            observer.removed(&Removed { key: key.bytes, meta, value_bytes, cause: RemovalCause::Expired });
        }
        KeyState::Gone { expired: true }
    }

    pub(crate) fn store(
        &self,
        shard: &mut Shard,
        key: &Key<'_>,
        version: &NewItem<'_>,
        now: u32,
        ground: Ground,
    ) -> Result<Stored, Halt> {
        if self.log.queue.is_off() {
            self.note_untold(GapCause::Off);
            self.outdate_key(shard, key);
            return Err(Halt::Failed(off()));
        }
        let mut scratch = Vec::new();
        let draft = self.draft(key, version, &mut scratch);
        let hash = draft.content_hash();
        self.put(shard, key, &draft, hash, Log::group_of(version.expiry, now), ground)
    }

    fn put(
        &self,
        shard: &mut Shard,
        key: &Key<'_>,
        draft: &Draft<'_>,
        content_hash: u64,
        group: usize,
        ground: Ground,
    ) -> Result<Stored, Halt> {
        if draft.len() > self.log.record_max() {
            let reason = "the item does not fit into a region";
            return Err(Halt::Failed(StoreError::new(ErrorKind::OutOfMemory, reason)));
        }
        let block = self.find(shard, key.hash).map(|(_, location)| location.block());
        let over = Over { block, floor: ground.floor };
        let Ok(appended) = self.log.append(draft, key.hash, content_hash, group, over) else {
            return Err(Halt::Full(ground.room));
        };
        self.enter(shard, key.hash, appended.location);
        count(&self.counters.total_items, 1);
        count(&self.counters.item_bytes, (draft.key.len() + draft.value[0].len() + draft.value[1].len()) as u64);
        Ok(Stored { cas: draft.cas.unwrap_or(appended.version.0), number: appended.number })
    }

    /// Removes a key's index entry and appends a tombstone. Without an entry there is nothing to do, unless the key was evicted
    /// from the index.
    pub(crate) fn remove(
        &self,
        shard: &mut Shard,
        key: &Key<'_>,
        how: Removing,
        now: u32,
        ground: Ground,
    ) -> Result<Option<u64>, Halt> {
        let found = self.find(shard, key.hash);
        if found.is_none() && self.log.evicted(key.hash) == 0 && how == Removing::Here {
            return Ok(None);
        }
        let region = found.map(|(_, location)| self.regions.region_of(location.block()));
        // The tombstone is needed only as long as the record it hides can live.
        let expiry = match region.map_or(u32::MAX, |region| self.regions.get(region).summary().expiry_max) {
            u32::MAX => Expiry::NEVER,
            moment => Expiry(moment),
        };
        let cas = match how {
            Removing::As(version) => version.map(|version| version.0),
            Removing::Here => None,
        };
        let tombstone = Draft {
            key: key.bytes,
            value: [&[], &[]],
            marks: mark::TOMBSTONE,
            expiry,
            flags: 0,
            cas,
            unversioned: how == Removing::Here,
        };
        let group = Log::group_of(expiry, now);
        let over = Over { block: found.map(|(_, location)| location.block()), floor: ground.floor };
        let hash = tombstone.content_hash();
        match self.log.append(&tombstone, key.hash, hash, group, over) {
            Err(Full) => Err(Halt::Full(ground.room)),
            Ok(appended) => {
                if let Removing::As(version) = how {
                    self.remember_delete(key, version.unwrap_or(appended.version));
                }
                self.note_forgotten(key, appended.location);
                found.into_iter().for_each(|(position, _)| shard.index.remove(position));
                count(&self.counters.tombstone_bytes, tombstone.len() as u64);
                Ok(Some(appended.number))
            }
        }
    }

    /// Remembers that the index is about to drop a key whose last record is at `location`.
    pub(crate) fn note_forgotten(&self, key: &Key<'_>, location: Location) {
        let region = self.regions.get(self.regions.region_of(location.block()));
        self.log.forgotten.note(key.hash, region.sequence());
    }

    /// Counts a hit for a read that another tier answered.
    fn mark_hit(&self, key: &Key<'_>) {
        let mut shard = self.shard(key.hash).lock();
        if let Some((position, location)) = shard.find(key.hash) {
            shard.index.replace(position, location.hit().0);
        }
    }
}

impl<'f> KeyState<'f> {
    /// The live item, if there is one; or where to read first.
    fn live(self) -> Result<Option<Present<'f>>, crate::operations::lookup::RecordPlace> {
        match self {
            Self::Live(present) => Ok(Some(present)),
            Self::Gone { .. } => Ok(None),
            Self::Elsewhere(place) => Err(place),
        }
    }
}

/// An item as changes look at it.
fn old<'p>(present: &'p Present<'_>, now: u32) -> Old<'p> {
    Old { meta: present.meta(now), value: present.view().value() }
}

impl<T> From<Halt> for Attempt<T> {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Full(room) => Self::Full(room),
            Halt::Failed(error) => Self::Done(Err(error)),
        }
    }
}

/// The record of a new item. Where stamps are `counted`, its CAS value is no version.
#[inline]
fn draft<'a>(key: &Key<'a>, version: &'a NewItem<'_>, counted: bool, scratch: &'a mut Vec<u8>) -> Draft<'a> {
    let if_so = |so: bool, mark: u8| if so { mark } else { 0 };
    let marks = if_so(version.fetched, mark::FETCHED)
        | if_so(version.stale, mark::STALE)
        | if_so(version.token_sent, mark::TOKEN);
    let value = match version.value.runs() {
        Some(runs) => runs,
        None => {
            version.value.value().copy_to(scratch);
            [&scratch[..], &[]]
        }
    };
    Draft {
        key: key.bytes,
        value,
        marks,
        expiry: version.expiry,
        flags: version.flags,
        cas: version.cas,
        unversioned: version.unversioned || counted,
    }
}

/// Whether a delete asks for what is there: it has a condition, or marks an item.
fn is_on_condition(request: &Delete) -> bool {
    request.compare.is_some() || request.invalidate || request.drop_value
}
