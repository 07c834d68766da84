//! Any bytes, cut anywhere, to a session over a store whose answers wait, come in any order, or fail: replies come in the order
//! of the requests and say what they say over a store that answers at once; no more waits than may; a client that is lost
//! takes its reads with it and not its changes.
//!
//! The first byte says how long the pieces are, the second how many follow that say which answer comes next: 255 is a
//! client that is lost, in whose place another goes on with the rest of the bytes.
#![no_main]

mod common;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use common::{Client, HIGH_WATER, ITEM_MAX, Turn, depends_on_cuts, has, worker};
use libfuzzer_sys::fuzz_target;
use moneta_server::auth::Authenticator;
use moneta_server::node::NodeSettings;
use moneta_server::session::{After, CloseReason, MAX_PARKED, Worker};
use moneta_store::component::{self, Component, Flush, Parts, Walk};
use moneta_store::request::{Exptime, Retrieve};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{Cursor, Cx, ErrorKind, Key, Op, Pending, Step, StoreError, Version, Visit, Walked, Walking};
use moneta_testkit::doubles::{Double, Layer, later};
use moneta_testkit::model::ModelStore;

/// Means that the client is lost.
const LOST: u8 = u8::MAX;

/// What one request waits for.
#[derive(Default)]
struct Gate {
    open: bool,
    waker: Option<Waker>,
}

/// Requests that wait, in the order they came.
type Gates = Arc<Mutex<VecDeque<Arc<Mutex<Gate>>>>>;

/// A model that parks requests whose key begins with an odd byte, flushes, and every other batch of a walk. Of those that
/// wait some fail.
struct Parking {
    model: ModelStore,
    gates: Gates,
    /// Nothing waits longer than until it is asked again.
    at_once: bool,
    walks: AtomicU32,
    /// Changes that were begun and have not ended.
    changes: Arc<AtomicUsize>,
}

/// The end of `then`, once the gate is open.
struct Gated<T> {
    gate: Arc<Mutex<Gate>>,
    then: Pending<T>,
}

impl<T> Future for Gated<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut gate = self.gate.lock().expect("one thread");
        if !gate.open {
            gate.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        drop(gate);
        self.then.as_mut().poll(context)
    }
}

impl Parking {
    fn waits(key: &Key<'_>) -> bool {
        key.bytes[0] & 1 == 1
    }

    /// Has `then` wait until it is answered.
    fn park<T: 'static>(&self, changes: bool, then: impl Future<Output = Result<T, StoreError>> + 'static) -> Step<T> {
        let gate = Arc::new(Mutex::new(Gate { open: self.at_once, waker: None }));
        if !self.at_once {
            self.gates.lock().expect("one thread").push_back(Arc::clone(&gate));
        }
        let under_way = Arc::clone(&self.changes);
        under_way.fetch_add(usize::from(changes), Ordering::Relaxed);
        let then: Pending<T> = Box::pin(async move {
            under_way.fetch_sub(usize::from(changes), Ordering::Relaxed);
            then.await
        });
        Step::Wait(Box::pin(Gated { gate, then }))
    }
}

/// Whether a request is one that a lost client does not take with it. What claims may be taken for a change or not.
fn changes(op: Op<'_>) -> bool {
    match op {
        Op::Read(Retrieve { touch, vivify, recache, claim, .. }) => {
            (touch.is_some() || vivify.is_some() || recache.is_some()) && !claim
        }
        other => other.changes(),
    }
}

impl Double for Parking {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.model
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let at_once = matches!(op, Op::Drop | Op::Holds | Op::NoteHit | Op::NextCas);
        if at_once || !Self::waits(key) {
            return moneta_store::Store::call(&self.model, cx, key, op, out);
        }
        let fails = key.bytes[0] & 7 == 5;
        let performed = later(&self.model, cx, key, op);
        self.park(changes(op), async move {
            if fails { Err(StoreError::new(ErrorKind::Device, "bad disk")) } else { performed.await }
        })
    }

    fn parts(&self) -> Parts<'_> {
        Parts { walk: Some(self), flush: Some(self), ..self.model.parts() }
    }
}

impl Flush for Parking {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        let (model, cx) = (self.model.clone(), cx.clone());
        self.park(true, async move { component::flush(&model, &cx, delay).now() })
    }

    fn pending(&self) -> Option<u32> {
        self.model.pending()
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        let (model, cx) = (self.model.clone(), cx.clone());
        self.park(true, async move { model.floor(&cx, floor).now() })
    }

    fn floors(&self) -> Floors {
        self.model.floors()
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        self.model.newest(cx)
    }

    fn lag(&self) -> u32 {
        self.model.lag()
    }
}

impl Walk for Parking {
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        if self.walks.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
            return self.model.walk(cx, cursor, show);
        }
        match self.park(false, async { Ok(()) }) {
            Step::Wait(pending) => Walking::Wait(pending),
            Step::Done(_) => Walking::More,
        }
    }
}

/// A worker over a parking store, what waits there, and how many changes do.
struct Rig {
    worker: Worker,
    gates: Gates,
    changes: Arc<AtomicUsize>,
}

fn parking(at_once: bool) -> Rig {
    let (gates, changes) = (Gates::default(), Arc::<AtomicUsize>::default());
    let worker = worker(NodeSettings::default(), Authenticator::off(), |clock| {
        Layer(Parking {
            model: ModelStore::new(clock, ITEM_MAX),
            gates: Arc::clone(&gates),
            at_once,
            walks: AtomicU32::new(0),
            changes: Arc::clone(&changes),
        })
    });
    Rig { worker, gates, changes }
}

/// Answers one request; false if none waits.
fn answer(gates: &Gates, which: u8) -> bool {
    let gate = {
        let mut gates = gates.lock().expect("one thread");
        let index = usize::from(which) % gates.len().max(1);
        gates.remove(index)
    };
    let Some(gate) = gate else { return false };
    let waker = {
        let mut gate = gate.lock().expect("one thread");
        gate.open = true;
        gate.waker.take()
    };
    waker.into_iter().for_each(Waker::wake);
    true
}

/// Loses a client; what it changes ends all the same.
fn lose(mut client: Client<'_>, Rig { worker, gates, changes }: &Rig) {
    let mut changing = client.session.give_up();
    assert!(changing || changes.load(Ordering::Relaxed) == 0, "a change goes with its client");
    while changing {
        assert!(answer(gates, 0), "a change is waited for that nothing holds up");
        let mut output = Vec::new();
        client.session.poll(worker, &mut Context::from_waker(Waker::noop()), &mut output, HIGH_WATER);
        changing = client.session.is_changing();
    }
    assert_eq!(changes.load(Ordering::Relaxed), 0, "a change was dropped");
    client.session.closed(worker, CloseReason::Normal);
    gates.lock().expect("one thread").clear();
}

fn replies(input: &[u8], piece: usize, order: Option<&[u8]>) -> (Vec<u8>, After) {
    let rig = parking(order.is_none());
    let mut client = Client::new(input, piece);
    let mut order = order.unwrap_or_default().iter().copied();
    loop {
        let turn = client.turn(&rig.worker);
        let waiting = rig.gates.lock().expect("one thread").len();
        assert!(waiting <= MAX_PARKED + 1, "{waiting} requests wait");
        match turn {
            Turn::GoesOn => {}
            Turn::Over => break,
            Turn::Waits => match order.next().unwrap_or(0) {
                LOST => {
                    let rest = client.rest();
                    lose(client, &rig);
                    client = Client::new(rest, piece);
                }
                which => {
                    assert!(answer(&rig.gates, which), "stalls");
                    client.goes_on();
                }
            },
        }
    }
    let ended = (std::mem::take(&mut client.answers), client.after);
    lose(client, &rig);
    ended
}

/// Whether replies may depend on when the store answers: CAS values tell in which order different keys were changed.
fn depends_on_order(input: &[u8]) -> bool {
    let words: [&[u8]; 10] = [b"gets", b"gats", b"cas", b"me ", b" c", b" C", b" E", b"dump", b"crawl", b"\x80"];
    depends_on_cuts(input) || words.iter().any(|word| has(input, word))
}

fuzz_target!(|data: &[u8]| {
    let Some(([piece, count], rest)) = data.split_first_chunk() else { return };
    let Some((order, input)) = rest.split_at_checked(usize::from(*count)) else { return };
    let piece = usize::from(*piece).max(1);
    let late = replies(input, piece, Some(order));
    if !order.contains(&LOST) && !depends_on_order(input) {
        let at_once = replies(input, piece, None);
        if late.1 == After::CloseNow {
            // What is closed without a word leaves unsaid what was waited for.
            assert!(at_once.1 == late.1 && at_once.0.starts_with(&late.0), "the order shows: {late:?}, {at_once:?}");
        } else {
            assert_eq!(late, at_once, "the order shows");
        }
    }
});
