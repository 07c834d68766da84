//! The model with one fault, for the suite to find.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use moneta_store::component::{self, Flush, Observe, RemovalCause, Removed, Walk};
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Calls, Clock, Component, Cursor, Cx, Deleted, Expiry, Item, ItemRef, Key, Lookup, Observer, Op, Parts, Report,
    Step, Store, StoreError, StoreStats, Unseen, Value, Version, Visit, Walked, Walking, Written,
};
use moneta_testkit::doubles::{Double, Layer};
use moneta_testkit::model::ModelStore;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Drops items that were not deleted.
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
    pub fn new(inner: ModelStore, clock: Arc<Clock>, fault: Fault) -> Layer<Self> {
        let (memory, observer) = (Mutex::default(), Mutex::default());
        Layer(Self { inner, clock, fault, count: AtomicU64::new(0), memory, observer })
    }

    /// Whether this is the fault, and it is its turn: one time in `every`.
    fn strikes(&self, fault: Fault, every: u64) -> bool {
        self.fault == fault && self.count.fetch_add(1, Ordering::Relaxed) % every == every - 1
    }

    fn look(&self, key: &Key<'_>) -> Option<Item> {
        let mut seen = None;
        let mut visitor = |item: &ItemRef<'_>| seen = Some(Item::copy(item));
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

    /// Tells the observer of a removal that did not happen.
    fn tell(&self, key: &Key<'_>, cause: RemovalCause) {
        let observer = self.observer.lock().unwrap();
        if let (Some(observer), Some(item)) = (observer.as_ref(), self.look(key)) {
            observer.removed(&Removed { key: key.bytes, meta: item.meta, value_bytes: item.value.len(), cause });
        }
    }

    /// What the faults do before a read.
    fn before_read(&self, key: &Key<'_>, request: &Retrieve) {
        match self.fault {
            Fault::ReportsEvictions => self.tell(key, RemovalCause::Evicted),
            Fault::ReportsExpiries => self.tell(key, RemovalCause::Expired),
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
    fn append_in_steps(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step {
        let Some(item) = self.look(key) else { return self.write(key, value, request) };
        std::thread::yield_now();
        let flags = if self.fault == Fault::AppendTakesNewFlags { request.flags } else { item.meta.flags };
        let (mode, exptime) = (WriteMode::Set, Exptime(i64::from(item.meta.expiry.0)));
        let joined = match request.mode {
            WriteMode::Append => [&item.value, value].concat(),
            _ => [value, &item.value].concat(),
        };
        self.write(key, &joined, &Write { mode, flags, exptime, ..*request })
    }

    /// Arithmetic in two steps.
    fn count_in_steps(&self, key: &Key<'_>, request: &Arithmetic) -> Step {
        let before = self.look(key);
        std::thread::yield_now();
        let count = || self.inner.call(&Cx::outside(), key, Op::Arithmetic(request), &mut Unseen);
        let step = count();
        if self.fault == Fault::LosesCounts
            && let Some(before) = before
        {
            self.put(key, &before);
            return count();
        }
        if self.fault == Fault::NumbersShrink
            && let Some(mut item) = self.look(key)
            && before.is_some()
        {
            item.value = item.value.trim_ascii_end().to_vec().into();
            self.put(key, &item);
        }
        step
    }

    fn write(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step {
        self.inner.call(&Cx::outside(), key, Op::Write(value, request), &mut Unseen)
    }

    fn get(&self, cx: &Cx, key: &Key<'_>, request: &Retrieve, out: &mut dyn Visit) -> Step {
        self.before_read(key, request);
        if self.strikes(Fault::ShowsOlderValue, 5)
            && let Some(current) = self.look(key)
            && let Some(older) = self.memory.lock().unwrap().older.get(key.bytes)
        {
            out.item(&ItemRef { meta: current.meta, value: Value::whole(&older.value) });
            return Step::ended(Lookup::Visited);
        }
        let late = Retrieve {
            touch: request.touch.map(|exptime| self.late(exptime)),
            vivify: request.vivify.map(|exptime| self.late(exptime)),
            ..*request
        };
        self.inner.call(cx, key, Op::Read(&late), out)
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step {
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
                    return Step::ended(Written::Exists);
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
        let step = self.write(key, value, &request);
        if self.fault == Fault::KeepsNothing {
            self.remove(key);
        }
        step
    }

    fn delete(&self, cx: &Cx, key: &Key<'_>, request: &Delete) -> Step {
        let plain = *request == Delete::default();
        if plain && self.look(key).is_some() && self.strikes(Fault::ForgetsDelete, 3) {
            return Step::ended(Deleted::Deleted);
        }
        let request = Delete { touch: request.touch.map(|exptime| self.late(exptime)), ..*request };
        self.inner.call(cx, key, Op::Delete(&request), &mut Unseen)
    }
}

impl Double for Faulty {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let alias = self.alias(key);
        let key = &Key { bytes: &alias, hash: key.hash };
        match op {
            Op::Read(request) => self.get(cx, key, request, out),
            Op::Write(value, request) => self.set(key, value, request),
            Op::Delete(request) => self.delete(cx, key, request),
            Op::Arithmetic(request) if matches!(self.fault, Fault::LosesCounts | Fault::NumbersShrink) => {
                self.count_in_steps(key, request)
            }
            _ => self.inner.call(cx, key, op, out),
        }
    }

    fn parts(&self) -> Parts<'_> {
        Parts { walk: Some(self), flush: Some(self), observe: Some(self), ..self.inner.parts() }
    }

    fn report(&self, inner: Report) -> Report {
        let stats = inner.stats;
        let stats = match self.fault {
            Fault::OverItsLimit => StoreStats { limit: 1 << 20, bytes: 1 << 40, ..stats },
            Fault::CountsOverwrites => StoreStats { items: stats.total_items, ..stats },
            _ => stats,
        };
        Report { stats, ..inner }
    }
}

impl Flush for Faulty {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        let waits = Expiry::resolve(delay, self.clock.now()).0 > self.clock.now();
        if self.fault == Fault::DelayedFlushSparesLaterItems && waits {
            return Step::done(());
        }
        component::flush(&self.inner, cx, delay)
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, _: &Cx, _: Floor) -> Step<()> {
        Step::Done(Err(StoreError::no_versions()))
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn newest(&self, _: &Cx) -> Step<Version> {
        Step::done(Version::ZERO)
    }

    fn lag(&self) -> u32 {
        0
    }
}

impl Walk for Faulty {
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let began = cursor.is_under_way();
        let mut first = true;
        let mut memory = self.memory.lock().unwrap();
        let last = memory.last_walked.take();
        Calls::walk(&self.inner, cursor, &mut |item| {
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
}

impl Observe for Faulty {
    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        *self.observer.lock().unwrap() = observer;
    }
}
