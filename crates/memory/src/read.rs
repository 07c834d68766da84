//! Reading an item: the value is shown where it lies, or, if it is large, pinned there and shown without the lock.

use moneta_pages::Part;
use moneta_store::request::{Exptime, Retrieve};
use moneta_store::{ErrorKind, Expiry, ItemMeta, ItemRef, Key, Rest, StoreError, Value, Visit};

use crate::new_item::NewItem;
use crate::record::{FRAGMENT_HEADER_BYTES, HEADER_MAX, LARGE, NO_FRAGMENT, Stamp, mark};
use crate::segments::{Location, Segments};
use crate::shard::{Found, Missing, Shard};

/// How a read under the lock ends.
pub(crate) enum Read {
    /// The visitor has seen it.
    Visited,
    /// It is large: to be shown without the lock.
    Large(Pinned),
    /// Nothing there.
    Missing(Missing),
}

/// A large item whose segments stay where they are until [`Shard::unpin`].
pub(crate) struct Pinned {
    pub(crate) meta: ItemMeta,
    pub(crate) parts: Vec<Part>,
    segments: Vec<u32>,
}

/// The fragments of a split value, read under the lock.
struct Fragments<'a> {
    segments: &'a Segments,
    next: u64,
    length: usize,
}

impl Rest for Fragments<'_> {
    fn len(&self) -> usize {
        self.length
    }

    fn copy_to(&self, out: &mut Vec<u8>) {
        let mut next = self.next;
        while next != NO_FRAGMENT {
            let (fragment, payload) = self.segments.fragment(Location(next));
            out.extend_from_slice(payload);
            next = fragment.next;
        }
    }
}

impl Shard {
    // The way of a hit is compiled into its one caller; what happens seldom is kept out of it.
    #[inline(always)]
    pub(crate) fn get(
        &mut self,
        key: &Key<'_>,
        request: &Retrieve,
        visitor: &mut dyn Visit,
    ) -> Result<Read, StoreError> {
        let now = self.settle();
        let found = match (self.find(key, now), request.vivify) {
            (Ok(found), _) => found,
            (Err(missing), None) => return Ok(Read::Missing(missing)),
            (Err(_), Some(exptime)) => return self.vivify(key, exptime, request, now, visitor),
        };
        let meta = self.meta(&found);
        if request.touch.is_some() || request.recache.is_some() || (request.claim && meta.stale) {
            return self.get_and_change(key, found, meta, request, now, visitor);
        }
        if request.bump {
            self.bump(&found, now);
        }
        Ok(self.show(&found, meta, visitor))
    }

    /// The rest of a read that changes the item, or may.
    #[cold]
    fn get_and_change(
        &mut self,
        key: &Key<'_>,
        found: Found,
        mut meta: ItemMeta,
        request: &Retrieve,
        now: u32,
        visitor: &mut dyn Visit,
    ) -> Result<Read, StoreError> {
        let found = match self.apply(key, found, request, now, &mut meta) {
            Ok(found) => found,
            // It went to make room for its own touch.
            Err(_) if self.find(key, now).is_err() => {
                return match request.vivify {
                    Some(exptime) => self.vivify(key, exptime, request, now, visitor),
                    None => Ok(Read::Missing(Missing { expired: false })),
                };
            }
            Err(error) => return Err(error),
        };
        if request.bump {
            self.bump(&found, now);
        }
        Ok(self.show(&found, meta, visitor))
    }

    pub(crate) fn peek(&mut self, key: &Key<'_>, visitor: &mut dyn Visit) -> Read {
        let now = self.settle();
        match self.find(key, now) {
            Ok(found) => self.show(&found, self.meta(&found), visitor),
            Err(missing) => Read::Missing(missing),
        }
    }

    /// Ends what showing a large item began.
    pub(crate) fn unpin(&mut self, pinned: &Pinned) {
        pinned.segments.iter().for_each(|&number| self.segments.unpin(number));
    }

    #[inline(always)]
    fn show(&mut self, found: &Found, meta: ItemMeta, visitor: &mut dyn Visit) -> Read {
        let header = &found.header;
        if header.value_length as usize > LARGE {
            return Read::Large(self.pin(found, meta));
        }
        let start = header.value_start();
        let first = self.segments.bytes(found.location, start..start + header.first_length as usize);
        if header.split {
            let length = (header.value_length - header.first_length) as usize;
            let rest = Fragments { segments: &self.segments, next: header.next, length };
            visitor.item(&ItemRef { meta, value: Value::split(first, &rest) });
        } else {
            visitor.item(&ItemRef { meta, value: Value::whole(first) });
        }
        Read::Visited
    }

    /// Pins all segments of an item.
    #[cold]
    pub(crate) fn pin(&mut self, found: &Found, meta: ItemMeta) -> Pinned {
        let start = found.header.value_start();
        let length = found.header.first_length as usize;
        let mut parts = vec![self.segments.part(found.location, start..start + length)];
        let mut segments = vec![found.location.segment()];
        let mut next = found.header.next;
        while found.header.split && next != NO_FRAGMENT {
            let location = Location(next);
            let fragment = self.segments.fragment(location).0;
            let end = FRAGMENT_HEADER_BYTES + fragment.length as usize;
            parts.push(self.segments.part(location, FRAGMENT_HEADER_BYTES..end));
            segments.push(location.segment());
            next = fragment.next;
        }
        segments.iter().for_each(|&number| self.segments.pin(number));
        Pinned { meta, parts, segments }
    }

    /// The side effects a read may ask for besides being counted.
    fn apply(
        &mut self,
        key: &Key<'_>,
        found: Found,
        request: &Retrieve,
        now: u32,
        meta: &mut ItemMeta,
    ) -> Result<Found, StoreError> {
        let before = meta.expiry;
        let mut found = found;
        if let Some(exptime) = request.touch {
            meta.expiry = Expiry::resolve(exptime, now);
            found = self.touch(key, found, meta.expiry, now)?;
        }
        let ends_soon = request
            .recache
            .is_some_and(|exptime| before != Expiry::NEVER && before.0 < Expiry::resolve(exptime, now).0);
        meta.won = request.claim && !meta.token_sent && (meta.stale || ends_soon);
        if meta.won {
            found.header.set(mark::TOKEN, true);
            self.write_header(found.location, &found.header);
        }
        Ok(found)
    }

    /// Gives an item another expiry: in place if its record has the field, else by writing the record anew.
    pub(crate) fn touch(&mut self, key: &Key<'_>, found: Found, expiry: Expiry, now: u32) -> Result<Found, StoreError> {
        let mut found = found;
        if self.is_new_by_touch(&found, expiry) {
            if !self.renew(key, &found, now) {
                return Err(no_room_to_touch());
            }
            found = self.find(key, now).map_err(|_| no_room_to_touch())?;
        }
        if expiry != Expiry::NEVER && !found.header.is(mark::EXPIRY) {
            found = self.with_expiry_field(key, &found, now).ok_or_else(no_room_to_touch)?;
        }
        if found.header.is(mark::EXPIRY) {
            found.header.expiry = expiry;
            self.write_header(found.location, &found.header);
            self.segments.note_expiry(found.location, expiry);
        }
        Ok(found)
    }

    fn with_expiry_field(&mut self, key: &Key<'_>, found: &Found, now: u32) -> Option<Found> {
        let size = HEADER_MAX + key.bytes.len() + found.header.value_length as usize;
        if !self.make_room(size, now) {
            return None;
        }
        // Making room may have moved it, or evicted it.
        let mut found = self.find(key, now).ok()?;
        if !found.header.is(mark::EXPIRY) {
            let log = self.segments.log(found.location);
            // Any expiry that is not "never" gives the new record the field; the caller sets the right one.
            found.header.expiry = Expiry(u32::MAX);
            if !self.relocate(&found, key.hash, log, found.hits) {
                return None;
            }
            found = self.find(key, now).ok()?;
        }
        Some(found)
    }

    /// A miss that creates an empty item whose recache this reader wins.
    #[cold]
    fn vivify(
        &mut self,
        key: &Key<'_>,
        exptime: Exptime,
        request: &Retrieve,
        now: u32,
        visitor: &mut dyn Visit,
    ) -> Result<Read, StoreError> {
        let out_of_memory = || StoreError::new(ErrorKind::OutOfMemory, "out of memory creating item");
        if !self.make_room(key.bytes.len() + 64, now) {
            return Err(out_of_memory());
        }
        let expiry = Expiry::resolve(exptime, now);
        let marks = mark::TOKEN | if request.bump { mark::FETCHED } else { 0 };
        let version = NewItem { marks, flags: 0, expiry, last_access: now, stamp: request.new_cas.map(Stamp::Chosen) };
        let cas = self.place(key, None, [&[], &[]], &version).map_err(|_| out_of_memory())?;
        let unversioned = request.new_cas.is_some();
        let meta = ItemMeta { cas, unversioned, expiry, last_access: now, won: true, ..ItemMeta::default() };
        visitor.item(&ItemRef { meta, value: Value::whole(&[]) });
        Ok(Read::Visited)
    }
}

fn no_room_to_touch() -> StoreError {
    StoreError::new(ErrorKind::OutOfMemory, "out of memory touching object")
}
