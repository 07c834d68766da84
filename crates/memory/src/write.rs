//! Writing and deleting items.

use moneta_store::request::{Delete, Exptime, Write, WriteMode};
use moneta_store::{Deleted, Expiry, ItemRef, Key, Put, Written};

use crate::log::{Cas, Draft, NoRoom};
use crate::new_item::NewItem;
use crate::record::{HEADER_MAX, Header, LARGE, NO_FRAGMENT, Stamp, mark, padded};
use crate::segments::Log;
use crate::shard::{Found, Shard, hits_of, location_of, payload};

/// What is to be done with a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order<'a> {
    /// A client's write.
    Write(&'a Write),
    /// The value is that of an item handed over whole.
    Put(NewItem, Put),
    /// The same, if it is newer than what is there.
    Newer(Newer<'a>),
}

/// An item that is to be stored if it is newer than what is there.
#[derive(Clone, Copy)]
pub(crate) struct Newer<'a> {
    pub(crate) item: NewItem,
    pub(crate) content: &'a ItemRef<'a>,
    pub(crate) hash: u64,
    pub(crate) as_of: u64,
    pub(crate) base: Option<moneta_store::Version>,
}

impl std::fmt::Debug for Newer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Newer").field("item", &self.item).field("as_of", &self.as_of).finish_non_exhaustive()
    }
}

/// How a write goes on after its conditions were looked at.
pub(crate) enum Plan {
    /// Store the value as this version.
    Value(NewItem),
    /// Store the old value with the new one after or before it.
    Join { version: NewItem, append: bool },
    /// Do not store.
    Refuse(Written),
}

impl Order<'_> {
    /// Whether the result holds the old value too.
    pub(crate) fn joins(&self) -> bool {
        matches!(self, Self::Write(Write { mode: WriteMode::Append | WriteMode::Prepend, .. }))
    }

    /// Whether the old item has to go where there is no room for the new one: what replaces it without a condition says that
    /// it is out of date.
    fn leaves_nothing_old(&self) -> bool {
        matches!(self, Self::Write(Write { mode: WriteMode::Set, .. }) | Self::Put(..) | Self::Newer(_))
    }
}

impl Shard {
    /// Writes an item; `None` if the result would be large, which is not for a locked shard to copy.
    #[inline]
    pub(crate) fn set(&mut self, key: &Key<'_>, value: &[u8], order: &Order<'_>) -> Option<Written> {
        let now = self.settle();
        let old_length =
            if order.joins() { self.find(key, now).map_or(0, |old| old.header.value_length as usize) } else { 0 };
        (old_length + value.len() <= LARGE).then(|| self.set_small(key, value, old_length, order, now))
    }

    fn set_small(&mut self, key: &Key<'_>, value: &[u8], old_length: usize, order: &Order<'_>, now: u32) -> Written {
        if !self.make_room(HEADER_MAX + key.bytes.len() + old_length + value.len(), now) {
            return self.set_without_room(key, value, order, now);
        }
        if self.sweep.is_some() {
            self.sweep_step();
        }
        let old = self.find(key, now).ok();
        let written = match self.plan(old.as_ref(), value.len(), order, now) {
            Plan::Refuse(written) => return written,
            Plan::Value(version) => self.place(key, old.as_ref(), [value, &[]], &version),
            Plan::Join { version, append } => {
                let mut joined = std::mem::take(&mut self.scratch);
                joined.clear();
                if let Some(old) = &old {
                    self.copy_value(old, &mut joined);
                }
                let runs = if append { [&joined[..], value] } else { [value, &joined[..]] };
                let written = self.place(key, old.as_ref(), runs, &version);
                self.scratch = joined;
                written
            }
        };
        match written {
            Ok(cas) => Written::Stored { cas },
            Err(NoRoom) => self.refuse_for_memory(key, order, now),
        }
    }

    /// There is no room for a record, but what is to be stored may fit over the old one.
    #[cold]
    fn set_without_room(&mut self, key: &Key<'_>, value: &[u8], order: &Order<'_>, now: u32) -> Written {
        let old = self.find(key, now).ok();
        match (self.plan(old.as_ref(), value.len(), order, now), &old) {
            (Plan::Refuse(written), _) => return written,
            (Plan::Value(version), Some(old)) => {
                if let Ok(cas) = self.overwrite(old, [value, &[]], &version) {
                    return Written::Stored { cas };
                }
            }
            _ => {}
        }
        self.refuse_for_memory(key, order, now)
    }

    /// A value too large for the store: what the key had before would be stale, so it goes.
    pub(crate) fn drop_for_oversize(&mut self, key: &Key<'_>) -> Written {
        let now = self.settle();
        if let Ok(old) = self.find(key, now) {
            self.remove(&old);
        }
        Written::TooLarge
    }

    /// No room: as with a value too large, a plain set leaves nothing old behind.
    pub(crate) fn refuse_for_memory(&mut self, key: &Key<'_>, order: &Order<'_>, now: u32) -> Written {
        self.stats.out_of_memory += 1;
        if order.leaves_nothing_old()
            && let Ok(old) = self.find(key, now)
        {
            self.remove(&old);
        }
        Written::OutOfMemory
    }

    /// What a write comes to, given what is there.
    pub(crate) fn plan(&self, old: Option<&Found>, value_length: usize, order: &Order<'_>, now: u32) -> Plan {
        let request = match order {
            Order::Write(request) => request,
            Order::Put(_, Put::Present) if old.is_none() => return Plan::Refuse(Written::NotStored),
            Order::Put(item, _) => return Plan::Value(*item),
            Order::Newer(newer) => return self.plan_newer(old, newer),
        };
        let fresh = |exptime: Exptime| NewItem {
            marks: 0,
            flags: request.flags,
            expiry: Expiry::resolve(exptime, now),
            last_access: now,
            stamp: request.new_cas.map(Stamp::Chosen),
        };
        let Some(old) = old else {
            return match (request.mode, request.vivify, request.compare) {
                (WriteMode::Set, _, None) | (WriteMode::Add, _, _) => Plan::Value(fresh(request.exptime)),
                (WriteMode::Append | WriteMode::Prepend, Some(exptime), _) => Plan::Value(fresh(exptime)),
                (WriteMode::Set | WriteMode::Replace, _, Some(_)) => Plan::Refuse(Written::NotFound),
                _ => Plan::Refuse(Written::NotStored),
            };
        };
        let cas = self.cas(old);
        let equal = request.compare.is_none_or(|compare| compare == cas);
        match request.mode {
            WriteMode::Add => Plan::Refuse(Written::NotStored),
            WriteMode::Set | WriteMode::Replace if equal => Plan::Value(fresh(request.exptime)),
            WriteMode::Set | WriteMode::Replace if request.invalidate && request.compare < Some(cas) => {
                // A late writer's value: better than nothing, but stale. The old expiry and recache token stay.
                let marks = mark::STALE | (old.header.marks & mark::TOKEN);
                Plan::Value(NewItem { marks, expiry: old.header.expiry, ..fresh(Exptime::NEVER) })
            }
            WriteMode::Append | WriteMode::Prepend if equal => {
                if old.header.value_length as usize + value_length > self.shared.item_max {
                    return Plan::Refuse(Written::NotStored);
                }
                let version = NewItem { flags: old.header.flags, expiry: old.header.expiry, ..fresh(Exptime::NEVER) };
                Plan::Join { version, append: request.mode == WriteMode::Append }
            }
            _ => Plan::Refuse(Written::Exists),
        }
    }

    /// Stores a version whose value is given in two runs, and tells its CAS value. `old` is what is there now.
    pub(crate) fn place(
        &mut self,
        key: &Key<'_>,
        old: Option<&Found>,
        runs: [&[u8]; 2],
        version: &NewItem,
    ) -> Result<u64, NoRoom> {
        let length = runs[0].len() + runs[1].len();
        let stamp = self.new_stamp(version.stamp);
        if let Some(old) = old
            && self.place_over(old, runs, version, stamp)
        {
            self.stats.total_items += 1;
            return Ok(stamp.cas());
        }
        let cas = match old {
            // A large item may move without its header being written anew.
            _ if length > LARGE => Cas::Full(stamp),
            // A key written for the second time will be written again.
            Some(_) => Cas::Lasting(stamp),
            None => Cas::Short(stamp),
        };
        let log = self.log_for(key, old, length);
        let draft = Draft {
            key: key.bytes,
            hash: key.hash,
            value_length: length,
            marks: version.marks,
            cas,
            expiry: version.expiry,
            flags: version.flags,
            last_access: version.last_access,
            // A large item moves as it is, and must have room for a later touch.
            all_fields: length > LARGE,
        };
        let room = self.take_room(log, &draft)?;
        self.fill(&room, runs[0], runs[1]);
        self.publish(key, old, room.location);
        Ok(stamp.cas())
    }

    /// As [`Shard::place`], where there is no room but that of the old record.
    pub(crate) fn overwrite(&mut self, old: &Found, runs: [&[u8]; 2], version: &NewItem) -> Result<u64, NoRoom> {
        let stamp = self.new_stamp(version.stamp);
        if !self.place_over(old, runs, version, stamp) {
            return Err(NoRoom);
        }
        self.stats.total_items += 1;
        Ok(stamp.cas())
    }

    /// Makes a written record the item of its key, in place of `old`.
    pub(crate) fn publish(&mut self, key: &Key<'_>, old: Option<&Found>, location: crate::segments::Location) {
        self.stats.total_items += 1;
        match old {
            Some(old) => {
                self.index.replace(old.position, payload(location, old.hits));
                self.segments.kill(old.location);
            }
            None => self.insert(key.hash, location),
        }
    }

    /// Overwrites a record where it lies, if the new version fits there.
    fn place_over(&mut self, old: &Found, runs: [&[u8]; 2], version: &NewItem, stamp: Stamp) -> bool {
        let length = runs[0].len() + runs[1].len();
        let header = &old.header;
        let start = header.value_start();
        let Some((form, cas_field)) = self.segments.base(old.location).refit(header.marks, stamp) else { return false };
        let fits = !header.split
            && padded(start + length) <= header.size()
            && length < usize::from(u16::MAX)
            && (version.expiry == Expiry::NEVER || header.is(mark::EXPIRY))
            && (version.flags == 0 || header.is(mark::FLAGS));
        if !fits {
            return false;
        }
        let new = Header {
            marks: header.marks & (mark::EXPIRY | mark::FLAGS) | form | version.marks,
            value_length: length as u32,
            first_length: length as u32,
            next: NO_FRAGMENT,
            last_access: version.last_access,
            cas_field,
            expiry: version.expiry,
            flags: version.flags,
            ..*header
        };
        self.write_header(old.location, &new);
        let value = self.segments.bytes_mut(old.location, start, length);
        let (front, back) = value.split_at_mut(runs[0].len());
        front.copy_from_slice(runs[0]);
        back.copy_from_slice(runs[1]);
        self.segments.leave_filler(old.location, new.size(), header.size());
        self.segments.note_expiry(old.location, version.expiry);
        true
    }

    /// The log a new version belongs in.
    pub(crate) fn log_for(&mut self, key: &Key<'_>, old: Option<&Found>, length: usize) -> Log {
        match old {
            Some(old) => self.segments.log(old.location),
            None => self.log_for_new(key, length),
        }
    }

    /// The log a key belongs in that is not there: the main one if it was there lately and is worth its bytes.
    fn log_for_new(&mut self, key: &Key<'_>, length: usize) -> Log {
        let items = self.index.len();
        let Some(ghost) = self.ghosts.take(key.hash, items) else { return Log::Small };
        self.numbers.ghost_hits += 1;
        self.probation.note_return(ghost.log, ghost.recent, items);
        if self.probation.is_worth(key.bytes.len() + length, 1) { Log::Main } else { Log::Small }
    }

    fn insert(&mut self, hash: u64, location: crate::segments::Location) {
        // Two steps of growth an insert catch up with a burst; in the long run one in seven inserts takes one.
        for _ in 0..2 {
            if self.index.wants_growth() && (!self.index.growth_needs_page() || self.add_index_page()) {
                self.index.grow();
            }
        }
        while self.index.insert(hash, payload(location, 0)).is_err() {
            let Some((position, payload)) = self.index.rivals(hash).next() else { return };
            let location = location_of(payload);
            let header = self.segments.header(location);
            self.evict(&Found { position, location, hits: hits_of(payload), header });
        }
    }

    fn add_index_page(&mut self) -> bool {
        if self.pages_left() == 0 {
            return false;
        }
        let Ok(page) = self.shared.pool.take() else { return false };
        self.index.add_page(page);
        true
    }

    /// Removes what a key has here. Other copies keep it: this is no delete.
    pub(crate) fn forget(&mut self, key: &Key<'_>) {
        let now = self.settle();
        if let Ok(found) = self.find(key, now) {
            self.remove(&found);
        }
    }

    pub(crate) fn delete(&mut self, key: &Key<'_>, request: &Delete) -> Deleted {
        let now = self.settle();
        let rewrites = request.drop_value || request.invalidate;
        let has_room = !rewrites || self.make_room_to_rewrite(key, now);
        let Ok(found) = self.find(key, now) else {
            // What is not here may be elsewhere.
            if self.shared.versioning.cluster && request.compare.is_none() && !rewrites {
                self.remember_delete(key.hash);
            }
            return Deleted::NotFound;
        };
        if request.compare.is_some_and(|compare| compare != self.cas(&found)) {
            return Deleted::Exists;
        }
        let old = has_room.then_some(key);
        if !rewrites || self.mark_deleted(old, &found, request, now).is_err() {
            self.remove(&found);
            if self.shared.versioning.cluster {
                self.remember_delete(key.hash);
            }
        }
        Deleted::Deleted
    }

    /// Meta delete with `I` or `x`: the item stays, stale, or empty, or both. The key is given if there is room to write it
    /// anew.
    fn mark_deleted(&mut self, key: Option<&Key<'_>>, found: &Found, request: &Delete, now: u32) -> Result<(), NoRoom> {
        let touched = request.touch.map(|exptime| Expiry::resolve(exptime, now));
        let stale = if request.invalidate { mark::STALE } else { 0 };
        let (chosen, kept) = (request.new_cas.map(Stamp::Chosen), Some(self.stamp(found)));
        if request.drop_value {
            // An empty item in place of the old one, without flags, and unless told otherwise without expiry.
            let version = NewItem {
                marks: stale,
                flags: 0,
                expiry: touched.unwrap_or(Expiry::NEVER),
                last_access: now,
                stamp: if request.invalidate || self.shared.versioning.cluster { chosen } else { chosen.or(kept) },
            };
            return self.rewrite(key, found, &[], &version);
        }
        let mut header = found.header;
        let stamp = self.new_stamp(chosen);
        let expiry = touched.unwrap_or(header.expiry);
        header.set(mark::TOKEN, false);
        header.set(mark::STALE, true);
        if (expiry == Expiry::NEVER || header.is(mark::EXPIRY)) && self.restamp(found, &mut header, stamp) {
            header.expiry = expiry;
            self.write_header(found.location, &header);
            self.segments.note_expiry(found.location, expiry);
            return Ok(());
        }
        let version = NewItem {
            marks: header.marks & (mark::FETCHED | mark::STALE),
            flags: header.flags,
            expiry,
            last_access: header.last_access,
            stamp: Some(stamp),
        };
        let mut value = Vec::new();
        self.copy_value(found, &mut value);
        self.rewrite(key, found, &value, &version)
    }

    fn rewrite(&mut self, key: Option<&Key<'_>>, found: &Found, value: &[u8], version: &NewItem) -> Result<(), NoRoom> {
        match key {
            Some(key) => self.place(key, Some(found), [value, &[]], version),
            None => self.overwrite(found, [value, &[]], version),
        }
        .map(|_| ())
    }

    /// Room to write an item anew as large as it is.
    pub(crate) fn make_room_to_rewrite(&mut self, key: &Key<'_>, now: u32) -> bool {
        let Ok(found) = self.find(key, now) else { return true };
        self.make_room(HEADER_MAX + key.bytes.len() + found.header.value_length as usize, now)
    }
}
