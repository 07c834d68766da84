//! The model with one fault, for the suite to find.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{
    Clock, Cursor, Deleted, Departed, Departure, Expiry, Item, ItemRef, Key, KeyHash, Lookup, Number, Observer, Step,
    Store, StoreStats, Value, Visit, Walked, Walking, Written,
};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Drops items that nobody deleted.
    Evicts,
    /// Now and then reads a version that was overwritten.
    ShowsOlderValue,
    /// Says deleted, and does not.
    ForgetsDelete,
    /// Dies one second after its expiry.
    LivesASecondTooLong,
    /// Append and prepend change the flags.
    AppendTakesNewFlags,
    /// A touch makes a new version.
    TouchChangesCas,
    /// An overwrite makes no new version.
    KeepsCas,
    /// Skips an item after some batches of a walk, as an index that grows meanwhile may.
    WalkLeavesOut,
    /// Shows an item again in the next batch of a walk.
    WalkShowsTwice,
    /// A delayed flush spares what was stored after the call.
    DelayedFlushSparesLaterItems,
    /// The recache token is given to every reader.
    EverybodyWins,
    /// `decr` shortens the value instead of padding it.
    NumbersShrink,
    /// Takes keys of one hash for the same key.
    MixesUpHashes,
    /// Its gauge of items counts overwritten ones.
    CountsOverwrites,
    /// Panics on long values.
    Panics,
    /// Evicts, and later finds the evicted version again; at each read that asks for a recache.
    Resurrects,
    /// Takes more memory than its limit.
    OverItsLimit,
    /// Reports live items as evicted.
    ReportsEvictions,
    /// Reports live items as expired.
    ReportsExpiries,
    /// Says stored, and keeps nothing.
    KeepsNothing,
    /// `incr` is not atomic.
    LosesCounts,
    /// Comparing and swapping are two steps.
    LosesSwaps,
    /// `append` is not atomic.
    LosesAppends,
    /// Two adds at once both succeed.
    AddsTwice,
}

/// The model with one fault.
pub struct Faulty {
    inner: ModelStore,
    clock: Arc<Clock>,
    fault: Fault,
    /// Operations so far: what happens now and then happens by their count.
    count: AtomicU64,
    memory: Mutex<Memory>,
    observer: Mutex<Option<Arc<dyn Observer>>>,
}

/// What a fault has to remember.
#[derive(Default)]
struct Memory {
    /// An older version of each key.
    older: HashMap<Vec<u8>, Item>,
    /// First key seen of each hash.
    first_of_hash: HashMap<u8, Vec<u8>>,
    /// Last item of the batch before.
    last_walked: Option<Vec<u8>>,
}

impl Faulty {
    pub fn new(inner: ModelStore, clock: Arc<Clock>, fault: Fault) -> Self {
        Self { inner, clock, fault, count: AtomicU64::new(0), memory: Mutex::default(), observer: Mutex::default() }
    }

    /// Whether this is the fault, and it is its turn: one time in `every`.
    fn strikes(&self, fault: Fault, every: u64) -> bool {
        self.fault == fault && self.count.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }

    fn look(&self, key: &Key<'_>) -> Option<Item> {
        let mut seen = None;
        let mut visitor = |item: &ItemRef<'_>| seen = Some(Item { meta: item.meta, value: item.value.to_vec() });
        let _ = self.inner.peek(key, &mut visitor);
        seen
    }

    /// Stores an item as it was, CAS value included.
    fn put(&self, key: &Key<'_>, item: &Item) {
        let exptime = Exptime(i64::from(item.meta.expiry.0));
        let request = Write { flags: item.meta.flags, exptime, new_cas: Some(item.meta.cas), ..Write::default() };
        let _ = self.inner.set(key, &item.value, &request);
    }

    fn remove(&self, key: &Key<'_>) {
        let _ = self.inner.delete(key, &Delete::default());
    }

    /// The key that the fault takes this one for.
    fn alias(&self, key: &Key<'_>) -> Vec<u8> {
        if self.fault != Fault::MixesUpHashes {
            return key.bytes.to_vec();
        }
        let mut memory = self.memory.lock().unwrap();
        memory.first_of_hash.entry(key.hash as u8).or_insert_with(|| key.bytes.to_vec()).clone()
    }

    /// An expiration time of the client's, a second late.
    fn late(&self, exptime: Exptime) -> Exptime {
        let expiry = Expiry::resolve(exptime, self.clock.now());
        let lives = expiry != Expiry::NEVER && !expiry.is_dead(self.clock.now());
        if self.fault == Fault::LivesASecondTooLong && lives { Exptime(i64::from(expiry.0) + 1) } else { exptime }
    }

    /// Tells the observer of a departure that did not happen.
    fn report(&self, key: &Key<'_>, why: Departure) {
        let observer = self.observer.lock().unwrap();
        if let (Some(observer), Some(item)) = (observer.as_ref(), self.look(key)) {
            observer.departed(&Departed { key: key.bytes, meta: item.meta, value_bytes: item.value.len(), why });
        }
    }

    /// What the faults do before a read.
    fn before_read(&self, key: &Key<'_>, request: &Retrieve) {
        match self.fault {
            Fault::ReportsEvictions => self.report(key, Departure::Evicted),
            Fault::ReportsExpiries => self.report(key, Departure::Expired),
            _ => (),
        }
        if self.strikes(Fault::Evicts, 5) {
            self.remove(key);
        }
        if self.fault == Fault::Resurrects && request.recache.is_some() {
            self.swap_with_older(key);
        }
        if self.fault == Fault::EverybodyWins
            && let Some(item) = self.look(key).filter(|item| item.meta.stale)
        {
            let invalidate = Delete { invalidate: true, new_cas: Some(item.meta.cas), ..Delete::default() };
            let _ = self.inner.delete(key, &invalidate);
        }
        if self.fault == Fault::TouchChangesCas
            && request.touch.is_some()
            && let Some(item) = self.look(key)
        {
            let exptime = Exptime(i64::from(item.meta.expiry.0));
            let again = Write { flags: item.meta.flags, exptime, ..Write::default() };
            let _ = self.inner.set(key, &item.value, &again);
        }
    }

    /// Evicts what is there and brings back what was evicted before.
    fn swap_with_older(&self, key: &Key<'_>) {
        let item = self.look(key);
        self.remove(key);
        let mut memory = self.memory.lock().unwrap();
        if let Some(older) = memory.older.remove(key.bytes) {
            self.put(key, &older);
        }
        memory.older.extend(item.map(|item| (key.bytes.to_vec(), item)));
    }

    /// Append in two steps; other threads come in between.
    fn append_in_steps(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let Some(item) = self.look(key) else { return self.inner.set(key, value, request) };
        std::thread::yield_now();
        let flags = if self.fault == Fault::AppendTakesNewFlags { request.flags } else { item.meta.flags };
        let (mode, exptime) = (WriteMode::Set, Exptime(i64::from(item.meta.expiry.0)));
        let joined = match request.mode {
            WriteMode::Append => [&item.value, value].concat(),
            _ => [value, &item.value].concat(),
        };
        self.inner.set(key, &joined, &Write { mode, flags, exptime, ..*request })
    }

    /// Arithmetic in two steps.
    fn count_in_steps(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        let before = self.look(key);
        std::thread::yield_now();
        let step = self.inner.arithmetic(key, request);
        if self.fault == Fault::LosesCounts
            && let Some(before) = before
        {
            self.put(key, &before);
            return self.inner.arithmetic(key, request);
        }
        if self.fault == Fault::NumbersShrink
            && let Some(mut item) = self.look(key)
            && before.is_some()
        {
            item.value = item.value.trim_ascii_end().to_vec();
            self.put(key, &item);
        }
        step
    }
}

impl Store for Faulty {
    fn seed(&self) -> KeyHash {
        self.inner.seed()
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        let alias = self.alias(key);
        let key = &Key { bytes: &alias, hash: key.hash };
        self.before_read(key, request);
        if self.strikes(Fault::ShowsOlderValue, 5)
            && let Some(current) = self.look(key)
            && let Some(older) = self.memory.lock().unwrap().older.get(key.bytes)
        {
            visitor.item(&ItemRef { meta: current.meta, value: Value::whole(&older.value) });
            return Step::done(Lookup::Visited);
        }
        let late = Retrieve {
            touch: request.touch.map(|exptime| self.late(exptime)),
            vivify: request.vivify.map(|exptime| self.late(exptime)),
            ..*request
        };
        self.inner.get(key, &late, visitor)
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let alias = self.alias(key);
        let key = &Key { bytes: &alias, hash: key.hash };
        assert!(self.fault != Fault::Panics || value.len() < 1000, "on purpose");
        let mut request = Write { exptime: self.late(request.exptime), ..*request };
        let before = self.look(key);
        let in_steps = matches!(self.fault, Fault::AppendTakesNewFlags | Fault::LosesAppends);
        match request.mode {
            WriteMode::Append | WriteMode::Prepend if in_steps && request.compare.is_none() => {
                return self.append_in_steps(key, value, &request);
            }
            WriteMode::Add if self.fault == Fault::AddsTwice && before.is_none() => {
                std::thread::yield_now();
                request.mode = WriteMode::Set;
            }
            WriteMode::Set if self.fault == Fault::LosesSwaps && request.compare.is_some() => {
                if before.is_some_and(|item| Some(item.meta.cas) != request.compare) {
                    return Step::done(Written::Exists);
                }
                std::thread::yield_now();
                request.compare = None;
            }
            WriteMode::Set if self.fault == Fault::KeepsCas => {
                request.new_cas = request.new_cas.or(before.map(|item| item.meta.cas));
            }
            _ if self.fault == Fault::ShowsOlderValue => {
                self.memory.lock().unwrap().older.extend(before.map(|item| (key.bytes.to_vec(), item)));
            }
            _ => (),
        }
        let step = self.inner.set(key, value, &request);
        if self.fault == Fault::KeepsNothing {
            self.remove(key);
        }
        step
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        let alias = self.alias(key);
        let key = &Key { bytes: &alias, hash: key.hash };
        let plain = *request == Delete::default();
        if plain && self.look(key).is_some() && self.strikes(Fault::ForgetsDelete, 3) {
            return Step::done(Deleted::Deleted);
        }
        let request = Delete { touch: request.touch.map(|exptime| self.late(exptime)), ..*request };
        self.inner.delete(key, &request)
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        let alias = self.alias(key);
        let key = &Key { bytes: &alias, hash: key.hash };
        if matches!(self.fault, Fault::LosesCounts | Fault::NumbersShrink) {
            return self.count_in_steps(key, request);
        }
        self.inner.arithmetic(key, request)
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        let alias = self.alias(key);
        self.inner.peek(&Key { bytes: &alias, hash: key.hash }, visitor)
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        let waits = Expiry::resolve(delay, self.clock.now()).0 > self.clock.now();
        if self.fault == Fault::DelayedFlushSparesLaterItems && waits {
            return Step::done(());
        }
        self.inner.flush(delay)
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let began = cursor.position != 0;
        let mut first = true;
        let mut memory = self.memory.lock().unwrap();
        let last = memory.last_walked.take();
        self.inner.walk(cursor, &mut |item| {
            let left_out = self.fault == Fault::WalkLeavesOut && began && first;
            if !left_out {
                show(item);
            }
            if self.fault == Fault::WalkShowsTwice && began && first && last.is_some() {
                show(item);
            }
            first = false;
            memory.last_walked = Some(item.key.to_vec());
        })
    }

    fn stats(&self) -> StoreStats {
        let stats = self.inner.stats();
        match self.fault {
            Fault::OverItsLimit => StoreStats { limit: 1 << 20, bytes: 1 << 40, ..stats },
            Fault::CountsOverwrites => StoreStats { items: stats.total_items, ..stats },
            _ => stats,
        }
    }

    fn resize(&self, limit: u64) -> bool {
        self.inner.resize(limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        *self.observer.lock().unwrap() = observer;
    }
}
