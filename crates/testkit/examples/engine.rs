//! An engine in one file: a sorted map. docs/engines.md goes through it.
//!
//! `cargo test -p moneta-testkit --example engine` compares it with the model.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use moneta_store::change::{self, Content, Old, Removal, Version};
use moneta_store::component::{Component, Flush, Health, Parts, Report, Walk};
use moneta_store::request::Exptime;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cursor, Cx, Deleted, Expiry, Item, ItemMeta, Key, KeyHash, Lookup, Op, Outcome, Put, Reactors, ReadSeveral,
    Step, Store, StoreError, StoreStats, Visit, Walked, Walking, Written,
};
use parking_lot::Mutex;

/// Items shown by one call of a walk.
const BATCH: usize = 64;

/// A store in a sorted map behind one lock.
struct Shelf {
    items: Mutex<Items>,
    clock: Arc<Clock>,
    item_max: usize,
}

#[derive(Default)]
struct Items {
    by_key: BTreeMap<Vec<u8>, Item>,
    last_cas: u64,
    stored: u64,
    /// The second of a delayed flush.
    flush_at: Option<u32>,
}

impl Shelf {
    fn new(clock: Arc<Clock>, item_max: usize) -> Self {
        Self { items: Mutex::default(), clock, item_max }
    }
}

impl Items {
    /// The item under a key as it is now; one whose time is up is removed. Says whether there was one of those.
    fn live(&mut self, key: &[u8], now: u32) -> (Option<Item>, bool) {
        match self.by_key.get(key) {
            None => (None, false),
            Some(item) if item.meta.expiry.is_dead(now) => {
                self.by_key.remove(key);
                (None, true)
            }
            Some(item) => (Some(item.clone()), false),
        }
    }

    fn store(&mut self, key: &[u8], version: &Version<'_>) -> u64 {
        let cas = version.cas.unwrap_or_else(|| self.next_cas());
        self.stored += 1;
        self.by_key
            .insert(key.to_vec(), Item { meta: version.meta(cas), value: version.value.value().to_vec().into() });
        cas
    }

    fn next_cas(&mut self) -> u64 {
        self.last_cas += 1;
        self.last_cas
    }
}

/// An item as changes look at it.
fn old(item: &Option<Item>) -> Option<Old<'_>> {
    item.as_ref().map(|item| Old { meta: item.meta, value: &item.value })
}

impl Store for Shelf {
    fn call(&self, _: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let now = self.clock.now();
        let mut items = self.items.lock();
        if items.flush_at.take_if(|moment| *moment <= now).is_some() {
            items.by_key.clear();
        }
        let (item, expired) = items.live(key.bytes, now);
        match op {
            // For stores that are one of several copies: this one keeps no versions.
            Op::Put(_, Put::Newer { .. }) | Op::Bury(_) => Step::Done(Err(StoreError::no_versions())),
            Op::Read(request) => {
                let before = old(&item);
                let Some(reading) = change::read(before.as_ref(), request, now) else {
                    return Step::ended(Lookup::Miss { expired });
                };
                let cas = match &reading.rewrite {
                    Some(version) => items.store(key.bytes, version),
                    None => reading.meta.cas,
                };
                if let Some(kept) = items.by_key.get_mut(key.bytes).filter(|_| request.bump && !reading.created) {
                    (kept.meta.fetched, kept.meta.last_access) = (true, now);
                }
                out.item(&Item { meta: reading.shown(cas), value: reading.value.to_vec().into() }.as_ref());
                Step::ended(Lookup::Visited)
            }
            Op::Peek => match item {
                None => Step::ended(Lookup::Miss { expired }),
                Some(item) => {
                    out.item(&item.as_ref());
                    Step::ended(Lookup::Visited)
                }
            },
            Op::Write(value, request) => {
                let written = change::write(old(&item).as_ref(), value, request, now, self.item_max);
                Step::ended(match written {
                    Ok(version) => Written::Stored { cas: items.store(key.bytes, &version) },
                    Err(Written::TooLarge) => {
                        items.by_key.remove(key.bytes);
                        Written::TooLarge
                    }
                    Err(written) => written,
                })
            }
            Op::Delete(request) => {
                let removal = change::delete(old(&item).as_ref(), request, now);
                Step::ended(match removal {
                    Ok(Removal::Remove) => {
                        items.by_key.remove(key.bytes);
                        Deleted::Deleted
                    }
                    Ok(Removal::Rewrite(version)) => {
                        items.store(key.bytes, &version);
                        Deleted::Deleted
                    }
                    Err(deleted) => deleted,
                })
            }
            Op::Arithmetic(request) => {
                let computed = change::arithmetic(old(&item).as_ref(), request, now);
                Step::ended(match computed {
                    Ok(computed) => computed.answer(items.store(key.bytes, &computed.version)),
                    Err(number) => number,
                })
            }
            Op::Put(put, how) => Step::ended(if how == Put::Present && item.is_none() {
                Written::NotStored
            } else {
                let value = put.value.to_vec();
                Written::Stored { cas: items.store(key.bytes, &Version::of(&put.meta, Content::whole(&value))) }
            }),
            Op::Drop => {
                items.by_key.remove(key.bytes);
                Step::Done(Ok(Outcome::Done))
            }
            Op::Holds => Step::Done(Ok(Outcome::Held(item.is_some()))),
            Op::NoteHit => Step::Done(Ok(Outcome::Done)),
            Op::BuriedAs => Step::Done(Ok(Outcome::Cas(0))),
            Op::NextCas => Step::Done(Ok(Outcome::Cas(items.next_cas()))),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        KeyHash::seeded(0)
    }
}

impl Component for Shelf {
    fn parts(&self) -> Parts<'_> {
        Parts { below: Vec::new(), walk: Some(self), flush: Some(self), resize: None, observe: None, feed: None }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, _: Vec<Report>) -> Report {
        let items = self.items.lock();
        let stats = StoreStats { items: items.by_key.len() as u64, total_items: items.stored, ..StoreStats::default() };
        Report { stats, ..Report::default() }
    }

    fn health(&self, _: Vec<Health>) -> Health {
        Health::default()
    }

    fn close(&self) {}
}

impl Walk for Shelf {
    /// In the order of keys, from the last one that was shown.
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let last: Option<Box<Vec<u8>>> = cursor.take();
        let from = last.map_or(Bound::Unbounded, |key| Bound::Excluded(*key));
        let (now, items) = (self.clock.now(), self.items.lock());
        if items.flush_at.is_some_and(|moment| moment <= now) {
            return Walking::End;
        }
        let mut last = None;
        for (key, item) in items.by_key.range((from, Bound::Unbounded)).take(BATCH) {
            let (meta, value_bytes): (ItemMeta, usize) = (item.meta, item.value.len());
            if !meta.expiry.is_dead(now) {
                show(&Walked { key, meta, value_bytes, size: key.len() + value_bytes });
            }
            last = Some(key.clone());
        }
        match last {
            Some(last) => {
                cursor.keep(Box::new(last));
                Walking::More
            }
            None => Walking::End,
        }
    }
}

impl Flush for Shelf {
    fn flush(&self, _: &Cx, delay: Exptime) -> Step<()> {
        let now = self.clock.now();
        let moment = Expiry::resolve(delay, now).0;
        let mut items = self.items.lock();
        // A flush that waits takes the place of an earlier one.
        items.flush_at = (moment > now).then_some(moment);
        if moment <= now {
            items.by_key.clear();
        }
        Step::done(())
    }

    fn pending(&self) -> Option<u32> {
        self.items.lock().flush_at
    }

    fn floor(&self, _: &Cx, _: Floor) -> Step<()> {
        Step::Done(Err(StoreError::no_versions()))
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn newest(&self, _: &Cx) -> Step<moneta_store::Version> {
        Step::done(moneta_store::Version::ZERO)
    }

    fn lag(&self) -> u32 {
        0
    }
}

fn main() {
    moneta_testkit::suite::run(
        |config, clock| Shelf::new(clock, config.value_max),
        moneta_testkit::suite::Options::exact(),
    );
    println!("the engine does as the model");
}

#[cfg(test)]
moneta_testkit::store_conformance!(|config, clock| Shelf::new(clock, config.value_max));
