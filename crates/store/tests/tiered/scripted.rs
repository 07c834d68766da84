//! A lower tier that does as the test says: answers, waits, or fails; and a client that polls by hand.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{
    Clock, Cursor, Deleted, ErrorKind, Health, Install, ItemRef, Key, KeyHash, Lookup, Number, Observer, Pending,
    Promotion, Step, Store, StoreError, StoreStats, Tier, Tiered, TieredConfig, Visit, Walked, Walking, Written,
};

use crate::leaky::delete;
use crate::slow::found;

/// The second at which tests begin.
pub const START: u32 = 1_000_000_000;
/// Longest value.
pub const VALUE_MAX: usize = 1 << 20;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Done and answered at once.
    Open,
    /// Done at once, answered when the mode is another.
    Parked,
    /// For reads: done when the mode is another.
    Late,
    /// Refused, and not done.
    Failing(ErrorKind),
}

/// The model behind a script.
#[derive(Clone)]
pub struct Scripted {
    pub inner: ModelStore,
    mode: Arc<Mutex<Mode>>,
    /// Hits above that it was told of.
    pub noted: Arc<AtomicUsize>,
    /// What it says of a flush from before.
    pending_flush: Option<u32>,
    /// How much later it says that it may flush.
    flush_lag: u32,
}

impl Scripted {
    pub fn new(inner: ModelStore) -> Self {
        Self { inner, mode: Arc::new(Mutex::new(Mode::Open)), noted: Arc::default(), pending_flush: None, flush_lag: 0 }
    }

    /// One whose clock may be so many seconds behind.
    pub fn lagging(inner: ModelStore, flush_lag: u32) -> Self {
        Self { flush_lag, ..Self::new(inner) }
    }

    /// One that was asked for a flush at `moment` before its process began.
    pub fn remembering_flush(inner: ModelStore, moment: u32) -> Self {
        Self { pending_flush: Some(moment), ..Self::new(inner) }
    }

    pub fn set_mode(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    fn script<T: 'static>(&self, perform: impl FnOnce() -> Step<T>) -> Step<T> {
        let mode = *self.mode.lock().unwrap();
        match mode {
            Mode::Open | Mode::Late => perform(),
            Mode::Failing(kind) => Step::Done(Err(StoreError::new(kind, "as the test says"))),
            Mode::Parked => {
                let mut outcome = Some(perform().now());
                let mode = Arc::clone(&self.mode);
                let pending: Pending<T> = Box::pin(poll_fn(move |_| match *mode.lock().unwrap() {
                    Mode::Parked => Poll::Pending,
                    _ => Poll::Ready(outcome.take().expect("polled after its end")),
                }));
                Step::Wait(pending)
            }
        }
    }

    fn read(
        &self,
        visitor: &mut impl Visit,
        read: impl FnOnce(&mut dyn FnMut(&ItemRef<'_>)) -> Step<Lookup>,
    ) -> Step<Lookup> {
        match self.script(|| found(read)) {
            Step::Done(Ok(Lookup::Found(item))) => {
                visitor.item(&item.as_ref());
                Step::done(Lookup::Visited)
            }
            step => step,
        }
    }
}

impl Store for Scripted {
    fn seed(&self) -> KeyHash {
        self.inner.seed()
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        if *self.mode.lock().unwrap() == Mode::Late {
            let (inner, mode) = (self.inner.clone(), Arc::clone(&self.mode));
            let (bytes, hash, request) = (key.bytes.to_vec(), key.hash, *request);
            let pending: Pending<Lookup> = Box::pin(poll_fn(move |_| match *mode.lock().unwrap() {
                Mode::Late => Poll::Pending,
                _ => Poll::Ready(found(|mut seen| inner.get(&Key { bytes: &bytes, hash }, &request, &mut seen)).now()),
            }));
            return Step::Wait(pending);
        }
        self.read(visitor, |mut seen| self.inner.get(key, request, &mut seen))
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        self.script(|| self.inner.set(key, value, request))
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        self.script(|| delete(&self.inner, key, request))
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        self.script(|| self.inner.arithmetic(key, request))
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        self.read(visitor, |mut seen| self.inner.peek(key, &mut seen))
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.script(|| self.inner.flush(delay))
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        match *self.mode.lock().unwrap() {
            Mode::Failing(ErrorKind::Unavailable) => Walking::End,
            Mode::Failing(kind) => {
                let failure = StoreError::new(kind, "as the test says");
                Walking::Wait(Box::pin(std::future::ready(Err(failure))))
            }
            _ => self.inner.walk(cursor, show),
        }
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn resize(&self, limit: u64) -> bool {
        self.inner.resize(limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.inner.observe(observer);
    }

    fn health(&self) -> Health {
        let off = *self.mode.lock().unwrap() != Mode::Open;
        Health { unready: off, notes: if off { vec!["the lower tier is off".to_owned()] } else { Vec::new() } }
    }
}

impl Tier for Scripted {
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        self.script(|| self.inner.install(key, item, how))
    }

    fn next_cas(&self, key: &Key<'_>) -> u64 {
        self.inner.next_cas(key)
    }

    fn pending_flush(&self) -> Option<u32> {
        self.pending_flush
    }

    fn flush_lag(&self) -> u32 {
        self.flush_lag
    }

    fn note_hit(&self, _key: &Key<'_>) {
        self.noted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Two tiers under a clock that only the test moves.
pub struct Pair {
    pub clock: Arc<Clock>,
    pub upper: ModelStore,
    pub lower: Scripted,
    pub store: Tiered<ModelStore, Scripted>,
}

/// A request that may wait.
pub struct Asked<T>(Option<Step<T>>);

impl<T> Asked<T> {
    pub fn new(step: Step<T>) -> Self {
        Self(Some(step))
    }

    /// Its end, if it has come to it.
    pub fn poll(&mut self) -> Option<Result<T, StoreError>> {
        match self.0.take()? {
            Step::Done(outcome) => Some(outcome),
            Step::Wait(mut pending) => match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => Some(outcome),
                Poll::Pending => {
                    self.0 = Some(Step::Wait(pending));
                    None
                }
            },
        }
    }

    #[track_caller]
    pub fn waits(mut self) -> Self {
        assert!(self.poll().is_none(), "it does not wait");
        self
    }

    #[track_caller]
    pub fn done(mut self) -> T {
        self.poll().expect("it waits").expect("it failed")
    }

    #[track_caller]
    pub fn failed(mut self) -> ErrorKind {
        match self.poll().expect("it waits") {
            Ok(_) => panic!("it did not fail"),
            Err(error) => error.kind(),
        }
    }
}

pub fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes(), KeyHash::seeded(0))
}

impl Pair {
    pub fn new() -> Self {
        Self::with(Promotion::Always, None)
    }

    pub fn with(promotion: Promotion, write_budget: Option<u64>) -> Self {
        let clock = Arc::new(Clock::manual(START));
        let lower = Scripted::new(ModelStore::new(Arc::clone(&clock), VALUE_MAX));
        Self::over(lower, clock, promotion, write_budget)
    }

    pub fn over(lower: Scripted, clock: Arc<Clock>, promotion: Promotion, write_budget: Option<u64>) -> Self {
        let upper = ModelStore::new(Arc::clone(&clock), VALUE_MAX);
        let config = TieredConfig { promotion, write_budget, item_max: VALUE_MAX };
        let store = Tiered::new(upper.clone(), lower.clone(), config, Arc::clone(&clock));
        Self { clock, upper, lower, store }
    }

    pub fn set(&self, name: &str, value: &str) -> Asked<Written> {
        set_on(&self.store, name, value)
    }

    pub fn append(&self, name: &str, value: &str) -> Asked<Written> {
        let request = Write { mode: WriteMode::Append, ..Write::default() };
        Asked(Some(self.store.set(&key(name), value.as_bytes(), &request)))
    }

    pub fn delete(&self, name: &str) -> Asked<Deleted> {
        Asked(Some(self.store.delete(&key(name), &Delete::default())))
    }

    pub fn flush(&self, delay: i64) -> Asked<()> {
        Asked(Some(self.store.flush(Exptime(delay))))
    }

    /// Reads; the value comes as the outcome, however it came.
    pub fn get(&self, name: &str) -> Asked<Option<String>> {
        get_on(&self.store, name, &Retrieve::default())
    }

    pub fn retrieve(&self, name: &str, request: &Retrieve) -> Asked<Option<String>> {
        get_on(&self.store, name, request)
    }

    /// What the upper tier has.
    pub fn above(&self, name: &str) -> Option<String> {
        peek_in(&self.upper, name)
    }

    /// What the lower tier has.
    pub fn below(&self, name: &str) -> Option<String> {
        peek_in(&self.lower.inner, name)
    }

    /// The upper tier evicts an item.
    pub fn evict(&self, name: &str) {
        let _ = self.upper.delete(&key(name), &Delete::default());
    }
}

pub fn set_on(store: &impl Store, name: &str, value: &str) -> Asked<Written> {
    Asked(Some(store.set(&key(name), value.as_bytes(), &Write::default())))
}

pub fn get_on(store: &impl Store, name: &str, request: &Retrieve) -> Asked<Option<String>> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let mut seen = None;
    let step = store.get(&key(name), request, &mut |item: &ItemRef<'_>| seen = Some(text(item.value.to_vec())));
    Asked(Some(match step {
        Step::Done(Ok(Lookup::Visited)) => Step::done(seen),
        Step::Done(Ok(Lookup::Found(item))) => Step::done(Some(text(item.value))),
        Step::Done(Ok(Lookup::Miss { .. })) => Step::done(None),
        Step::Done(Err(error)) => Step::Done(Err(error)),
        Step::Wait(pending) => Step::Wait(Box::pin(async move {
            Ok(match pending.await? {
                Lookup::Found(item) => Some(text(item.value)),
                _ => None,
            })
        })),
    }))
}

fn peek_in(store: &ModelStore, name: &str) -> Option<String> {
    let mut seen = None;
    let _ = store.peek(&key(name), &mut |item: &ItemRef<'_>| seen = String::from_utf8(item.value.to_vec()).ok());
    seen
}
