//! Writing values too large to be copied under a shard's lock.
//!
//! ```text
//!  locked: make room, take it, hidden        unlocked: copy        locked: look at the conditions again, publish
//! ------------------------------------> (pinned, marked dead) -----------------------------------------------> live
//!                                              |
//!                                              +--> given back: conditions fail, what was to be joined has
//!                                                   changed (then all over again), or a flush came between
//! ```
//!
//! The write takes effect at its publication.

use moneta_pages::Part;
use moneta_store::{Expiry, Key, Written};

use crate::log::{Cas, Draft, Room};
use crate::new_item::NewItem;
use crate::read::Pinned;
use crate::record::{FRAGMENT_HEADER_BYTES, HEADER_MAX, LARGE, NO_FRAGMENT, Stamp, mark};
use crate::segments::Location;
use crate::shard::{Found, Shard};
use crate::write::{Order, Plan};

/// Room for a large value, and the old value that goes into it.
pub(crate) struct Reserved {
    location: Location,
    parts: Vec<Part>,
    segments: Vec<u32>,
    flushes: u64,
    old: Option<Joined>,
}

/// The old value that goes into a new one.
struct Joined {
    value: OldValue,
    location: Location,
    cas: u64,
    append: bool,
}

/// Where the old value is while the lock is not held.
enum OldValue {
    /// Too large to be overwritten where it lies: pinned there.
    Pinned(Pinned),
    /// A shorter one may be overwritten at any moment, under a CAS value of the client's choice even.
    Copied(Vec<u8>),
}

/// How an attempt to publish ends.
pub(crate) enum Published {
    Done(Written),
    /// The old value changed meanwhile: begin again.
    Again,
}

impl Shard {
    /// Takes room for a large result.
    pub(crate) fn reserve(&mut self, key: &Key<'_>, value: &[u8], order: &Order<'_>) -> Result<Reserved, Written> {
        let now = self.settle();
        let length_now = |shard: &mut Self| {
            let old = if order.joins() { shard.find(key, now).ok() } else { None };
            value.len() + old.map_or(0, |old| old.header.value_length as usize)
        };
        // A write that will be refused must not evict items.
        let old = self.find(key, now).ok();
        if let Plan::Refuse(written) = self.plan(old.as_ref(), value.len(), order, now) {
            return Err(written);
        }
        let wanted = length_now(self);
        if !self.make_room(HEADER_MAX + key.bytes.len() + wanted, now) {
            return Err(self.refuse_for_memory(key, order, now));
        }
        let old = self.find(key, now).ok();
        let joined = match self.plan(old.as_ref(), value.len(), order, now) {
            Plan::Refuse(written) => return Err(written),
            Plan::Value(_) => None,
            Plan::Join { append, .. } => old.as_ref().map(|old| (*old, append)),
        };
        let draft = Draft {
            key: key.bytes,
            hash: key.hash,
            value_length: length_now(self),
            marks: mark::DEAD,
            // Longest form of every field: what goes in is known only when it is published.
            cas: Cas::Full(Stamp::Chosen(0)),
            expiry: Expiry::NEVER,
            flags: 0,
            last_access: now,
            all_fields: true,
        };
        let log = self.log_for(key, old.as_ref(), draft.value_length);
        let Ok(room) = self.take_room(log, &draft) else { return Err(self.refuse_for_memory(key, order, now)) };
        let old = joined.map(|(old, append)| {
            let value = if old.header.value_length as usize > LARGE {
                OldValue::Pinned(self.pin(&old, self.meta(&old)))
            } else {
                let mut bytes = Vec::new();
                self.copy_value(&old, &mut bytes);
                OldValue::Copied(bytes)
            };
            Joined { value, location: old.location, cas: self.cas(&old), append }
        });
        Ok(self.hide(room, old))
    }

    fn hide(&mut self, room: Room, old: Option<Joined>) -> Reserved {
        let (start, length) = room.first;
        let mut parts = vec![self.segments.part(room.location, start..start + length)];
        let mut segments = vec![room.location.segment()];
        for &(location, length) in &room.fragments {
            parts.push(self.segments.part(location, FRAGMENT_HEADER_BYTES..FRAGMENT_HEADER_BYTES + length));
            segments.push(location.segment());
        }
        segments.iter().for_each(|&number| self.segments.pin(number));
        Reserved { location: room.location, parts, segments, flushes: self.flushes, old }
    }

    /// Makes a filled reservation the item of its key, if the conditions still hold.
    pub(crate) fn publish_reserved(
        &mut self,
        key: &Key<'_>,
        value_length: usize,
        order: &Order<'_>,
        reserved: &Reserved,
    ) -> Published {
        let now = self.settle();
        if self.flushes != reserved.flushes {
            self.unpin_reserved(reserved);
            return Published::Again;
        }
        let old = self.find(key, now).ok();
        let joined_is_there =
            reserved.old.as_ref().is_none_or(|joined| old.as_ref().is_some_and(|old| self.is_still(joined, old)));
        let plan = self.plan(old.as_ref(), value_length, order, now);
        let version = match (plan, &reserved.old) {
            (Plan::Refuse(written), _) => {
                self.give_back(reserved);
                return Published::Done(written);
            }
            (Plan::Value(version), None) => version,
            (Plan::Join { version, .. }, Some(_)) if joined_is_there => version,
            _ => {
                self.give_back(reserved);
                return Published::Again;
            }
        };
        let cas = self.reveal(reserved.location, &version);
        self.publish(key, old.as_ref(), reserved.location);
        self.unpin_reserved(reserved);
        Published::Done(Written::Stored { cas })
    }

    /// Whether the item has not changed since its value was joined.
    fn is_still(&self, joined: &Joined, old: &Found) -> bool {
        if old.location != joined.location || self.cas(old) != joined.cas {
            return false;
        }
        let OldValue::Copied(bytes) = &joined.value else { return true };
        let mut now = Vec::with_capacity(bytes.len());
        self.copy_value(old, &mut now);
        *bytes == now
    }

    /// Takes the hiding mark off a record and its fragments.
    fn reveal(&mut self, location: Location, version: &NewItem) -> u64 {
        let stamp = self.new_stamp(version.stamp);
        let mut header = self.segments.header(location);
        header.set(mark::DEAD, false);
        header.set(version.marks, true);
        header.set(mark::CAS, matches!(stamp, Stamp::Chosen(_)));
        header.set(mark::CAS_LONG, true);
        header.cas_field = stamp.cas();
        header.expiry = version.expiry;
        header.flags = version.flags;
        header.last_access = version.last_access;
        self.write_header(location, &header);
        self.segments.note_expiry(location, version.expiry);
        let mut next = header.next;
        while header.split && next != NO_FRAGMENT {
            let location = Location(next);
            next = self.segments.fragment(location).0.next;
            self.segments.bytes_mut(location, 0, 1)[0] &= !mark::DEAD;
        }
        stamp.cas()
    }

    fn give_back(&mut self, reserved: &Reserved) {
        self.segments.kill(reserved.location);
        self.unpin_reserved(reserved);
    }

    fn unpin_reserved(&mut self, reserved: &Reserved) {
        if let Some(Joined { value: OldValue::Pinned(pinned), .. }) = &reserved.old {
            self.unpin(pinned);
        }
        reserved.segments.iter().for_each(|&number| self.segments.unpin(number));
    }
}

impl Reserved {
    /// Copies the value, and the old one it is joined with, into the room. Needs no lock.
    pub(crate) fn fill(&self, value: &[u8]) {
        let mut runs: Vec<&[u8]> = Vec::with_capacity(2 + self.parts.len());
        match &self.old {
            None => runs.push(value),
            Some(joined) => {
                if !joined.append {
                    runs.push(value);
                }
                match &joined.value {
                    OldValue::Copied(bytes) => runs.push(bytes),
                    // SAFETY: the old item's segments are pinned, and a record of this size is never written in place.
                    OldValue::Pinned(pinned) => runs.extend(pinned.parts.iter().map(|part| unsafe { part.as_slice() })),
                }
                if joined.append {
                    runs.push(value);
                }
            }
        }
        let mut runs = runs.into_iter();
        let mut run: &[u8] = &[];
        for part in &self.parts {
            let mut at = 0;
            while at < part.len() {
                while run.is_empty() {
                    run = runs.next().expect("the room was taken for exactly these runs");
                }
                let length = run.len().min(part.len() - at);
                // SAFETY: the segments are pinned and the record is hidden: no other thread reads it.
                unsafe { part.sub(at..at + length).fill(&run[..length]) };
                run = &run[length..];
                at += length;
            }
        }
    }
}
