//! A lower tier that does as the test says: answers, waits, or fails; and a client that polls by hand.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_store::component::{self, Flush, Walk};
use moneta_store::request::{Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::steps::read_owned;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Calls, Clock, Cursor, Cx, Deleted, ErrorKind, Health, ItemRef, Key, KeyHash, Lookup, Op, Outcome, Parts, Step,
    Store, StoreError, Version, Visit, Walked, Walking, Written,
};
use moneta_testkit::doubles::{self, Double, Layer};
use moneta_testkit::model::ModelStore;

use crate::leaky::Leaky;

/// The second at which tests begin.
pub const START: u32 = 1_700_000_000;
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
    /// The same, as a real engine deletes.
    engine: Layer<Leaky>,
    mode: Arc<Mutex<Mode>>,
    /// Hits above that it was told of.
    pub noted: Arc<AtomicUsize>,
    /// What it says of a flush from before.
    pending_flush: Option<u32>,
    /// How much later it says that it may flush.
    flush_lag: u32,
}

impl Scripted {
    pub fn new(inner: ModelStore) -> Layer<Self> {
        Layer(Self::with(inner))
    }

    /// One whose clock may be so many seconds behind.
    pub fn lagging(inner: ModelStore, flush_lag: u32) -> Layer<Self> {
        Layer(Self { flush_lag, ..Self::with(inner) })
    }

    /// One that was asked for a flush at `moment` before its process began.
    pub fn remembering_flush(inner: ModelStore, moment: u32) -> Layer<Self> {
        Layer(Self { pending_flush: Some(moment), ..Self::with(inner) })
    }

    fn with(inner: ModelStore) -> Self {
        Self {
            engine: Leaky::tight(inner.clone()),
            inner,
            mode: Arc::new(Mutex::new(Mode::Open)),
            noted: Arc::default(),
            pending_flush: None,
            flush_lag: 0,
        }
    }

    pub fn set_mode(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap()
    }

    fn script<T: 'static>(&self, perform: impl FnOnce() -> Step<T>) -> Step<T> {
        match self.mode() {
            Mode::Open | Mode::Late => perform(),
            Mode::Failing(kind) => Step::Done(Err(as_the_test_says(kind))),
            Mode::Parked => {
                let outcome = perform().now();
                let passed = self.passed(Mode::Parked);
                Step::Wait(Box::pin(async {
                    passed.await;
                    outcome
                }))
            }
        }
    }

    /// Waits until the mode is another.
    fn passed(&self, waiting: Mode) -> impl Future<Output = ()> + 'static {
        let mode = Arc::clone(&self.mode);
        poll_fn(move |_| if *mode.lock().unwrap() == waiting { Poll::Pending } else { Poll::Ready(()) })
    }
}

fn as_the_test_says(kind: ErrorKind) -> StoreError {
    StoreError::new(kind, "as the test says")
}

impl Double for Scripted {
    type Inner = Layer<Leaky>;

    fn inner(&self) -> &Layer<Leaky> {
        &self.engine
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match (op, self.mode()) {
            (Op::NoteHit, _) => {
                self.noted.fetch_add(1, Ordering::Relaxed);
                Step::Done(Ok(Outcome::Done))
            }
            (Op::Holds, Mode::Parked) => Step::Done(Ok(Outcome::Held(true))),
            (Op::Holds, Mode::Failing(_)) => Step::Done(Ok(Outcome::Held(false))),
            (Op::Holds | Op::Drop | Op::NextCas | Op::BuriedAs, _) => self.engine.call(cx, key, op, out),
            (Op::Read(_), Mode::Late) => {
                let (passed, read) = (self.passed(Mode::Late), doubles::later(&self.engine, cx, key, op));
                Step::Wait(Box::pin(async {
                    passed.await;
                    read.await
                }))
            }
            (Op::Read(_) | Op::Peek, Mode::Open | Mode::Late) => self.engine.call(cx, key, op, out),
            _ => self.script(|| read_owned(&self.engine, cx, key, op)),
        }
    }

    fn parts(&self) -> Parts<'_> {
        Parts { walk: Some(self), flush: Some(self), ..self.engine.parts() }
    }

    fn health(&self, inner: Health) -> Health {
        if self.mode() == Mode::Open {
            return inner;
        }
        Health { unready: true, notes: vec!["the lower tier is off".to_owned()] }
    }
}

impl Flush for Scripted {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        self.script(|| component::flush(&self.engine, cx, delay))
    }

    fn pending(&self) -> Option<u32> {
        self.pending_flush
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        self.script(|| component::floor(&self.engine, cx, floor))
    }

    fn floors(&self) -> Floors {
        Calls::floors(&self.engine)
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        component::newest(&self.engine, cx)
    }

    fn lag(&self) -> u32 {
        self.flush_lag
    }
}

impl Walk for Scripted {
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        match self.mode() {
            Mode::Failing(ErrorKind::Unavailable) => Walking::End,
            Mode::Failing(kind) => Walking::Wait(Box::pin(std::future::ready(Err(as_the_test_says(kind))))),
            _ => Calls::walk(&self.engine, cursor, show),
        }
    }
}

/// Two tiers under a clock that only the test moves.
pub struct Pair {
    pub clock: Arc<Clock>,
    pub upper: ModelStore,
    pub lower: Layer<Scripted>,
    pub store: Tiered<ModelStore, Layer<Scripted>>,
}

/// A request that may wait.
pub struct AskedTier<T>(Option<Step<T>>);

impl<T> AskedTier<T> {
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

    pub fn over(lower: Layer<Scripted>, clock: Arc<Clock>, promotion: Promotion, write_budget: Option<u64>) -> Self {
        let upper = ModelStore::new(Arc::clone(&clock), VALUE_MAX);
        let config = TieredConfig { promotion, write_budget, item_max: VALUE_MAX, cluster: false };
        let store = Tiered::new(upper.clone(), lower.clone(), config, Arc::clone(&clock));
        Self { clock, upper, lower, store }
    }

    pub fn set(&self, name: &str, value: &str) -> AskedTier<Written> {
        set_on(&self.store, name, value)
    }

    pub fn append(&self, name: &str, value: &str) -> AskedTier<Written> {
        let request = Write { mode: WriteMode::Append, ..Write::default() };
        AskedTier(Some(self.store.set(&key(name), value.as_bytes(), &request)))
    }

    pub fn delete(&self, name: &str) -> AskedTier<Deleted> {
        AskedTier(Some(self.store.delete(&key(name), &Delete::default())))
    }

    pub fn flush(&self, delay: i64) -> AskedTier<()> {
        AskedTier(Some(Calls::flush(&self.store, Exptime(delay))))
    }

    /// Reads; the value comes as the outcome, however it came.
    pub fn get(&self, name: &str) -> AskedTier<Option<String>> {
        get_on(&self.store, name, &Retrieve::default())
    }

    pub fn retrieve(&self, name: &str, request: &Retrieve) -> AskedTier<Option<String>> {
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

pub fn set_on(store: &impl Store, name: &str, value: &str) -> AskedTier<Written> {
    AskedTier(Some(store.set(&key(name), value.as_bytes(), &Write::default())))
}

pub fn get_on(store: &impl Store, name: &str, request: &Retrieve) -> AskedTier<Option<String>> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let mut seen = None;
    let step = store.get(&key(name), request, &mut |item: &ItemRef<'_>| seen = Some(text(item.value.to_vec())));
    AskedTier(Some(match step {
        Step::Done(Ok(Lookup::Visited)) => Step::done(seen),
        Step::Done(Ok(Lookup::Found(item))) => Step::done(Some(text(item.value.into_vec()))),
        Step::Done(Ok(Lookup::Miss { .. })) => Step::done(None),
        Step::Done(Err(error)) => Step::Done(Err(error)),
        Step::Wait(pending) => Step::Wait(Box::pin(async move {
            Ok(match pending.await? {
                Lookup::Found(item) => Some(text(item.value.into_vec())),
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
