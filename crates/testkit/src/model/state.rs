//! The map itself and what each request does to it.

use std::collections::HashMap;

use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Deleted, Expiry, Item, ItemMeta, Number, Written, parse_number};

use moneta_store::{Put, StoreStats, Walked};

/// What the map holds under a key.
#[derive(Clone, Debug)]
pub(crate) struct ModelItem {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
    /// A client chose the CAS value.
    unversioned: bool,
    pub(crate) expiry: Expiry,
    last_access: u32,
    fetched: bool,
    stale: bool,
    /// A client has won the right to recache this version.
    token_sent: bool,
    /// Place of the key in the order of walks; kept while the key keeps an item.
    serial: u64,
}

/// Why there is nothing to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Nothing lies there.
    Absent,
    /// Something lies there whose time is up.
    Expired,
}

/// How an item's CAS value stands to the one a request brings to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// The request brings none.
    NotAsked,
    Equal,
    /// The request's is lower: its sender has seen an older version.
    Older,
    Different,
}

/// An item copied out for a walk.
pub(super) struct WalkEntry {
    pub(super) serial: u64,
    key: Vec<u8>,
    meta: ItemMeta,
    value_bytes: usize,
}

impl WalkEntry {
    /// The item as the walk shows it. The model has no headers: an item's size is its key and value.
    pub(super) fn walked(&self) -> Walked<'_> {
        Walked {
            key: &self.key,
            meta: self.meta,
            value_bytes: self.value_bytes,
            size: self.key.len() + self.value_bytes,
        }
    }
}

/// Everything behind the model's lock.
#[derive(Debug)]
pub(super) struct ModelState {
    items: HashMap<Vec<u8>, ModelItem>,
    now: u32,
    value_max: usize,
    last_cas: u64,
    next_serial: u64,
    total_items: u64,
    /// When everything stored before that second goes.
    pending_flush: Option<u32>,
}

impl ModelItem {
    /// The item's meta data when nothing touches it.
    fn meta(&self) -> ItemMeta {
        ItemMeta {
            flags: self.flags,
            cas: self.cas,
            unversioned: self.unversioned,
            expiry: self.expiry,
            expiry_before: self.expiry,
            last_access: self.last_access,
            fetched: self.fetched,
            stale: self.stale,
            token_sent: self.token_sent,
            won: false,
        }
    }

    fn compare(&self, with: Option<u64>) -> Comparison {
        match with {
            None => Comparison::NotAsked,
            Some(cas) if cas == self.cas => Comparison::Equal,
            Some(cas) if cas < self.cas => Comparison::Older,
            Some(_) => Comparison::Different,
        }
    }
}

impl ModelState {
    pub(super) fn new(value_max: usize) -> Self {
        Self {
            items: HashMap::new(),
            now: 0,
            value_max,
            last_cas: 0,
            next_serial: 1,
            total_items: 0,
            pending_flush: None,
        }
    }

    /// Moves to `now`. Every request passes here first, so when a flush's moment is found to have come, all that is in the
    /// map was stored before that moment.
    pub(super) fn settle(&mut self, now: u32) {
        self.now = now;
        if self.pending_flush.is_some_and(|moment| moment <= now) {
            self.pending_flush = None;
            self.items.clear();
        }
    }

    /// The live item under a key.
    fn live(&mut self, key: &[u8]) -> Result<&mut ModelItem, Missing> {
        let now = self.now;
        match self.items.get_mut(key) {
            None => Err(Missing::Absent),
            Some(item) if item.expiry.is_dead(now) => Err(Missing::Expired),
            Some(item) => Ok(item),
        }
    }

    pub(super) fn remember(&self, key: &[u8]) -> Option<ModelItem> {
        self.items.get(key).cloned()
    }

    pub(super) fn restore(&mut self, key: &[u8], item: Option<ModelItem>) {
        match item {
            Some(item) => self.items.insert(key.to_vec(), item),
            None => self.items.remove(key),
        };
    }

    /// The CAS value of a new version: the client's own, or the next of a sequence that only grows.
    pub(super) fn new_cas(&mut self, explicit: Option<u64>) -> u64 {
        explicit.unwrap_or_else(|| {
            self.last_cas += 1;
            self.last_cas
        })
    }

    /// Stores a fresh version under a key, whatever was there, and tells its CAS value.
    fn store(&mut self, key: &[u8], value: Vec<u8>, flags: u32, expiry: Expiry, new_cas: Option<u64>) -> u64 {
        let cas = self.new_cas(new_cas);
        let serial = self.live(key).map(|old| old.serial).unwrap_or(self.next_serial);
        self.next_serial = self.next_serial.max(serial + 1);
        self.total_items += 1;
        let last_access = self.now;
        let item = ModelItem {
            value,
            flags,
            cas,
            unversioned: new_cas.is_some(),
            expiry,
            last_access,
            fetched: false,
            stale: false,
            token_sent: false,
            serial,
        };
        self.items.insert(key.to_vec(), item);
        cas
    }

    pub(super) fn peek(&mut self, key: &[u8]) -> Result<Item, Missing> {
        self.live(key).map(|item| Item { meta: item.meta(), value: item.value.clone().into() })
    }

    pub(super) fn get(&mut self, key: &[u8], request: &Retrieve) -> Result<Item, Missing> {
        match (self.live(key), request.vivify) {
            (Ok(_), _) => Ok(self.read(key, request)),
            (Err(_), Some(exptime)) => Ok(self.vivify(key, exptime, request)),
            (Err(missing), None) => Err(missing),
        }
    }

    /// A hit: touch it, see who may recache it, count the read.
    fn read(&mut self, key: &[u8], request: &Retrieve) -> Item {
        let now = self.now;
        let item = self.live(key).expect("the caller has seen it");
        let before = item.meta();
        if let Some(exptime) = request.touch {
            item.expiry = Expiry::resolve(exptime, now);
        }
        // Judged by the time left before this very request's touch. memcached goes by the order of the flags.
        let ends_soon = request
            .recache
            .is_some_and(|exptime| before.expiry != Expiry::NEVER && before.expiry.0 < Expiry::resolve(exptime, now).0);
        let won = request.claim && !item.token_sent && (item.stale || ends_soon);
        item.token_sent |= won;
        if request.bump {
            item.fetched = true;
            item.last_access = now;
        }
        Item { meta: ItemMeta { expiry: item.expiry, won, ..before }, value: item.value.clone().into() }
    }

    /// A miss that creates an empty item, whose recache this reader wins. The reader sees it as it was when it came to be.
    fn vivify(&mut self, key: &[u8], exptime: Exptime, request: &Retrieve) -> Item {
        let expiry = Expiry::resolve(exptime, self.now);
        self.store(key, Vec::new(), 0, expiry, request.new_cas);
        let item = self.items.get_mut(key).expect("just stored");
        let before = item.meta();
        item.token_sent = true;
        item.fetched = request.bump;
        let meta = ItemMeta { expiry_before: Expiry::NEVER, won: true, ..before };
        Item { meta, value: Vec::new().into() }
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8], request: &Write) -> Written {
        if value.len() > self.value_max {
            self.items.remove(key);
            return Written::TooLarge;
        }
        match self.live(key).cloned() {
            Ok(old) => self.set_over(key, value, request, &old),
            Err(_) => self.set_anew(key, value, request),
        }
    }

    fn set_anew(&mut self, key: &[u8], value: &[u8], request: &Write) -> Written {
        let exptime = match (request.mode, request.vivify, request.compare) {
            (WriteMode::Set, _, None) | (WriteMode::Add, _, _) => request.exptime,
            (WriteMode::Append | WriteMode::Prepend, Some(exptime), _) => exptime,
            (WriteMode::Set | WriteMode::Replace, _, Some(_)) => return Written::NotFound,
            (WriteMode::Replace | WriteMode::Append | WriteMode::Prepend, _, _) => return Written::NotStored,
        };
        let expiry = Expiry::resolve(exptime, self.now);
        Written::Stored { cas: self.store(key, value.to_vec(), request.flags, expiry, request.new_cas) }
    }

    fn set_over(&mut self, key: &[u8], value: &[u8], request: &Write, old: &ModelItem) -> Written {
        match (request.mode, old.compare(request.compare)) {
            (WriteMode::Add, _) => Written::NotStored,
            (WriteMode::Set | WriteMode::Replace, Comparison::NotAsked | Comparison::Equal) => {
                let expiry = Expiry::resolve(request.exptime, self.now);
                Written::Stored { cas: self.store(key, value.to_vec(), request.flags, expiry, request.new_cas) }
            }
            (WriteMode::Set | WriteMode::Replace, Comparison::Older) if request.invalidate => {
                self.set_stale(key, value, request, old)
            }
            (WriteMode::Append, Comparison::NotAsked | Comparison::Equal) => {
                self.join(key, &[&old.value, value], request, old)
            }
            (WriteMode::Prepend, Comparison::NotAsked | Comparison::Equal) => {
                self.join(key, &[value, &old.value], request, old)
            }
            (_, Comparison::Older | Comparison::Different) => Written::Exists,
        }
    }

    /// A late writer's value: better than nothing, but stale. The old item's expiry and recache token stay.
    fn set_stale(&mut self, key: &[u8], value: &[u8], request: &Write, old: &ModelItem) -> Written {
        let cas = self.store(key, value.to_vec(), request.flags, old.expiry, request.new_cas);
        let item = self.items.get_mut(key).expect("just stored");
        item.stale = true;
        item.token_sent = old.token_sent;
        Written::Stored { cas }
    }

    /// Append and prepend: a fresh version with the old one's flags and expiry. What would grow too large stays as it is;
    /// only a too large value in the request itself costs the old one.
    fn join(&mut self, key: &[u8], parts: &[&[u8]], request: &Write, old: &ModelItem) -> Written {
        let joined = parts.concat();
        if joined.len() > self.value_max {
            return Written::NotStored;
        }
        Written::Stored { cas: self.store(key, joined, old.flags, old.expiry, request.new_cas) }
    }

    /// Stores an item handed over whole.
    pub(super) fn install(&mut self, key: &[u8], item: Item, how: Put) -> Written {
        if item.value.len() > self.value_max {
            self.items.remove(key);
            return Written::TooLarge;
        }
        if how == Put::Present && self.live(key).is_err() {
            return Written::NotStored;
        }
        let Item { meta, value } = item;
        let new_cas = (meta.cas != 0).then_some(meta.cas);
        let cas = self.store(key, value.into_vec(), meta.flags, meta.expiry, new_cas);
        let stored = self.items.get_mut(key).expect("just stored");
        stored.last_access = meta.last_access;
        stored.fetched = meta.fetched;
        stored.stale = meta.stale;
        stored.token_sent = meta.token_sent;
        stored.unversioned = meta.unversioned && meta.cas != 0;
        Written::Stored { cas }
    }

    pub(super) fn delete(&mut self, key: &[u8], request: &Delete) -> Deleted {
        let Ok(old) = self.live(key) else { return Deleted::NotFound };
        let (cas, unversioned) = (old.cas, old.unversioned);
        if request.compare.is_some_and(|compare| compare != cas) {
            return Deleted::Exists;
        }
        if request.drop_value {
            // An empty item in place of the old one. It has the old one's CAS value, and unless told otherwise no expiry.
            let expiry = Expiry::resolve(request.touch.unwrap_or(Exptime::NEVER), self.now);
            self.store(key, Vec::new(), 0, expiry, request.new_cas.or(Some(cas)));
            self.items.get_mut(key).expect("just stored").unversioned = request.new_cas.is_some() || unversioned;
        }
        if request.invalidate {
            self.invalidate(key, request);
        }
        if !request.drop_value && !request.invalidate {
            self.items.remove(key);
        }
        Deleted::Deleted
    }

    /// Marks an item stale, so that the next reader wins its recache.
    fn invalidate(&mut self, key: &[u8], request: &Delete) {
        let now = self.now;
        let cas = self.new_cas(request.new_cas);
        let item = self.items.get_mut(key).expect("the caller has seen it");
        item.cas = cas;
        item.unversioned = request.new_cas.is_some();
        item.stale = true;
        item.token_sent = false;
        if let Some(exptime) = request.touch {
            item.expiry = Expiry::resolve(exptime, now);
        }
    }

    pub(super) fn arithmetic(&mut self, key: &[u8], request: &Arithmetic) -> Number {
        let Ok(old) = self.live(key).cloned() else { return self.create_number(key, request) };
        // memcached looks at the value's length before the CAS value, and at its digits after.
        if old.value.is_empty() {
            return Number::NonNumeric;
        }
        if request.compare.is_some_and(|compare| compare != old.cas) {
            return Number::Exists;
        }
        let Some(number) = parse_number(&old.value) else { return Number::NonNumeric };
        let number =
            if request.decrement { number.saturating_sub(request.delta) } else { number.wrapping_add(request.delta) };
        self.store_number(key, number, request, &old)
    }

    fn create_number(&mut self, key: &[u8], request: &Arithmetic) -> Number {
        let Some(create) = request.create else { return Number::NotFound };
        let expiry = Expiry::resolve(create.exptime, self.now);
        self.store(key, create.initial.to_string().into_bytes(), 0, expiry, request.new_cas);
        let meta = ItemMeta { expiry_before: Expiry::NEVER, ..self.items[key].meta() };
        Number::Value { number: create.initial, meta, created: true }
    }

    /// A number that fits the old text's length is written in place, padded with spaces, and the item stays as fetched and
    /// as stale as it was; a longer one makes a fresh version.
    fn store_number(&mut self, key: &[u8], number: u64, request: &Arithmetic, old: &ModelItem) -> Number {
        let mut text = number.to_string().into_bytes();
        let in_place = text.len() <= old.value.len();
        if in_place {
            text.resize(old.value.len(), b' ');
        }
        let expiry = request.touch.map_or(old.expiry, |exptime| Expiry::resolve(exptime, self.now));
        self.store(key, text, old.flags, expiry, request.new_cas);
        let item = self.items.get_mut(key).expect("just stored");
        if in_place {
            item.fetched = old.fetched;
            item.stale = old.stale;
            item.token_sent = old.token_sent;
        }
        let meta = ItemMeta { expiry_before: old.expiry, last_access: old.last_access, ..item.meta() };
        Number::Value { number, meta, created: false }
    }

    /// Drops everything now, or notes when; either way an earlier flush that still waits is forgotten.
    pub(super) fn flush(&mut self, delay: Exptime) {
        let moment = Expiry::resolve(delay, self.now).0;
        if moment <= self.now {
            self.items.clear();
            self.pending_flush = None;
        } else {
            self.pending_flush = Some(moment);
        }
    }

    pub(super) fn next_serial(&self) -> u64 {
        self.next_serial
    }

    /// Up to `limit` live items in the order of walks, from serial `from` until before `end`.
    pub(super) fn batch(&self, from: u64, end: u64, limit: usize) -> Vec<WalkEntry> {
        let mut entries: Vec<WalkEntry> = self
            .items
            .iter()
            .filter(|(_, item)| (from..end).contains(&item.serial) && !item.expiry.is_dead(self.now))
            .map(|(key, item)| WalkEntry {
                serial: item.serial,
                key: key.clone(),
                meta: item.meta(),
                value_bytes: item.value.len(),
            })
            .collect();
        entries.sort_by_key(|entry| entry.serial);
        entries.truncate(limit);
        entries
    }

    pub(super) fn stats(&self) -> StoreStats {
        let bytes: usize = self.items.iter().map(|(key, item)| key.len() + item.value.len()).sum();
        StoreStats {
            items: self.items.len() as u64,
            total_items: self.total_items,
            bytes: bytes as u64,
            ..StoreStats::default()
        }
    }
}
