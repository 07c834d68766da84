//! `incr` and `decr`: numbers kept as decimal text.

use moneta_store::request::{Arithmetic, Create};
use moneta_store::{Expiry, ItemMeta, Key, NUMBER_VALUE_MAX, Number, parse_number};

use crate::new_item::NewItem;
use crate::record::{HEADER_MAX, Stamp, mark};
use crate::shard::{Found, Shard};

/// Digits of 2^64 - 1.
const DIGITS_MAX: usize = 20;

impl Shard {
    pub(crate) fn arithmetic(&mut self, key: &Key<'_>, request: &Arithmetic) -> Number {
        let now = self.settle();
        let old_length = self.find(key, now).map_or(0, |found| found.header.value_length as usize);
        // Without room a number can still be changed where it lies.
        let has_room = self.make_room(HEADER_MAX + key.bytes.len() + old_length.max(DIGITS_MAX), now);
        let Ok(found) = self.find(key, now) else {
            return match &request.create {
                Some(create) if has_room => self.create_number(key, create, request, now),
                Some(_) => self.refuse_number(),
                None => Number::NotFound,
            };
        };
        // memcached looks at the value's length before the CAS value, and at its digits after.
        if found.header.value_length == 0 {
            return Number::NonNumeric;
        }
        let cas = self.cas(&found);
        if request.compare.is_some_and(|compare| compare != cas) {
            return Number::Exists;
        }
        let Some(number) = self.number(&found) else { return Number::NonNumeric };
        let number =
            if request.decrement { number.saturating_sub(request.delta) } else { number.wrapping_add(request.delta) };
        let place = has_room.then_some(key);
        self.store_number(place, &found, number, request, now)
    }

    #[cold]
    fn refuse_number(&mut self) -> Number {
        self.stats.out_of_memory += 1;
        Number::OutOfMemory
    }

    fn number(&self, found: &Found) -> Option<u64> {
        if found.header.value_length as usize > NUMBER_VALUE_MAX {
            return None;
        }
        if found.header.split {
            let mut value = Vec::new();
            self.copy_value(found, &mut value);
            return parse_number(&value);
        }
        let from = found.header.value_start();
        parse_number(self.segments.bytes(found.location, from..from + found.header.value_length as usize))
    }

    fn create_number(&mut self, key: &Key<'_>, create: &Create, request: &Arithmetic, now: u32) -> Number {
        let expiry = Expiry::resolve(create.exptime, now);
        let version =
            NewItem { marks: 0, flags: 0, expiry, last_access: now, stamp: request.new_cas.map(Stamp::Chosen) };
        let mut text = itoa::Buffer::new();
        let text = text.format(create.initial).as_bytes();
        let Ok(cas) = self.place(key, None, [text, &[]], &version) else { return self.refuse_number() };
        let unversioned = request.new_cas.is_some();
        let meta = ItemMeta { cas, unversioned, expiry, last_access: now, ..ItemMeta::default() };
        Number::Value { number: create.initial, meta, created: true }
    }

    /// A number that fits the old text's length is padded with spaces to it, and the item stays as fetched and as stale as
    /// it was; a longer one makes a fresh version. The key is given if there is room to write it anew.
    fn store_number(
        &mut self,
        key: Option<&Key<'_>>,
        found: &Found,
        number: u64,
        request: &Arithmetic,
        now: u32,
    ) -> Number {
        let mut text = itoa::Buffer::new();
        let text = text.format(number).as_bytes();
        let old = &found.header;
        let padding = vec![b' '; (old.value_length as usize).saturating_sub(text.len())];
        let in_place = text.len() <= old.value_length as usize;
        let kept = if in_place { mark::FETCHED | mark::STALE | mark::TOKEN } else { 0 };
        let expiry = request.touch.map_or(old.expiry, |exptime| Expiry::resolve(exptime, now));
        let version = NewItem {
            marks: old.marks & kept,
            flags: old.flags,
            expiry,
            last_access: now,
            stamp: request.new_cas.map(Stamp::Chosen),
        };
        let placed = match key {
            Some(key) => self.place(key, Some(found), [text, &padding], &version),
            None => self.overwrite(found, [text, &padding], &version),
        };
        let Ok(cas) = placed else { return self.refuse_number() };
        let meta = ItemMeta {
            flags: old.flags,
            cas,
            unversioned: request.new_cas.is_some(),
            expiry,
            expiry_before: old.expiry,
            last_access: old.last_access,
            fetched: version.marks & mark::FETCHED != 0,
            stale: version.marks & mark::STALE != 0,
            token_sent: version.marks & mark::TOKEN != 0,
            won: false,
        };
        Number::Value { number, meta, created: false }
    }
}
