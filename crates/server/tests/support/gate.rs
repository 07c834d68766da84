//! A store some of whose requests wait until the test lets them go on, as a slow device would make them, or hold their worker
//! up so long, as much work would.

use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};

use moneta_store::metric::Sample;
use moneta_store::{Calls, Cx, Health, ItemRef, Key, Op, Report, Step, Store, StoreStats, Visit};
use moneta_testkit::doubles::{Double, Layer, later};
use moneta_testkit::model::ModelStore;

use super::PATIENCE;

/// Keys that begin like this wait.
const SLOW: &[u8] = b"slow";
/// A write of such a key holds the thread up that asks for it.
const HEAVY: &[u8] = b"heavy";

#[derive(Default)]
struct GateState {
    open: bool,
    waiting: usize,
    wakers: Vec<Waker>,
    /// Heavy writes that have begun, and how many may end.
    heavy: (usize, usize),
    stats: Option<fn(StoreStats) -> StoreStats>,
    health: Health,
    metrics: Vec<Sample>,
    /// Whether numbers are not told, and how many wait for them.
    mute: (bool, usize),
}

/// Holds requests up until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<GateState>>, Arc<Condvar>);

impl Gate {
    /// Lets everything through, from any thread.
    pub fn open(&self) {
        let wakers = {
            let mut state = self.0.lock().unwrap();
            state.open = true;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Holds up what comes from now on.
    pub fn close(&self) {
        self.0.lock().unwrap().open = false;
    }

    /// Lets the store behind it say what `change` makes of its numbers.
    pub fn set_stats(&self, change: fn(StoreStats) -> StoreStats) {
        self.0.lock().unwrap().stats = Some(change);
    }

    /// Lets the store behind it say that of its health.
    pub fn set_health(&self, health: Health) {
        self.0.lock().unwrap().health = health;
    }

    /// Lets the store behind it tell these metrics.
    pub fn set_metrics(&self, metrics: Vec<Sample>) {
        self.0.lock().unwrap().metrics = metrics;
    }

    /// Lets the store behind it tell no numbers, as if a lock were held by a device that hangs, or tell them again.
    pub fn mute(&self, mute: bool) {
        self.0.lock().unwrap().mute.0 = mute;
        self.1.notify_all();
    }

    /// Those that wait for numbers.
    pub fn muted(&self) -> usize {
        self.0.lock().unwrap().mute.1
    }

    fn tell(&self) {
        let mut state = self.0.lock().unwrap();
        state.mute.1 += 1;
        let mut state = self.1.wait_timeout_while(state, PATIENCE, |state| state.mute.0).unwrap().0;
        state.mute.1 -= 1;
    }

    /// Requests that came to the gate and have not passed it.
    pub fn waiting(&self) -> usize {
        self.0.lock().unwrap().waiting
    }

    /// Heavy writes that have begun.
    pub fn heavy(&self) -> usize {
        self.0.lock().unwrap().heavy.0
    }

    /// Lets so many heavy writes end.
    pub fn let_heavy(&self, count: usize) {
        self.0.lock().unwrap().heavy.1 += count;
        self.1.notify_all();
    }

    fn pass_heavy(&self) {
        let mut state = self.0.lock().unwrap();
        state.heavy.0 += 1;
        let own = state.heavy.0;
        drop(self.1.wait_timeout_while(state, PATIENCE, |state| state.heavy.1 < own).unwrap());
    }

    /// Counts a request among those that wait, until it has passed or is given up.
    fn arrive(&self) -> Arrived {
        self.0.lock().unwrap().waiting += 1;
        Arrived(self.clone())
    }

    async fn pass(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if state.open {
                return Poll::Ready(());
            }
            state.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

struct Arrived(Gate);

impl Drop for Arrived {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().waiting -= 1;
    }
}

/// The model behind a gate: reads and writes of slow keys wait, heavy writes hold their thread up, everything else is answered
/// at once.
pub struct GatedStore {
    inner: ModelStore,
    gate: Gate,
}

impl GatedStore {
    pub fn layer(inner: ModelStore, gate: Gate) -> Layer<Self> {
        Layer(Self { inner, gate })
    }
}

impl Double for GatedStore {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        if matches!(op, Op::Write(..)) && key.bytes.starts_with(HEAVY) {
            self.gate.pass_heavy();
        }
        if !matches!(op, Op::Read(_) | Op::Write(..)) || !key.bytes.starts_with(SLOW) {
            return self.inner.call(cx, key, op, out);
        }
        let arrived = self.gate.arrive();
        if let Op::Read(_) = op {
            let _ = self.inner.peek(key, &mut |item: &ItemRef<'_>| cx.will_read(item.value.len()));
        }
        let (gate, answer) = (self.gate.clone(), later(&self.inner, cx, key, op));
        Step::Wait(Box::pin(async move {
            gate.pass().await;
            drop(arrived);
            answer.await
        }))
    }

    fn report(&self, inner: Report) -> Report {
        self.gate.tell();
        let state = self.gate.0.lock().unwrap();
        let stats = state.stats.map_or(inner.stats, |change| change(inner.stats));
        Report { stats, metrics: state.metrics.clone() }
    }

    fn health(&self, _: Health) -> Health {
        self.gate.0.lock().unwrap().health.clone()
    }
}
