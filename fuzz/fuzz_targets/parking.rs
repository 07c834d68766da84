//! Any bytes, cut anywhere, to a session over a store whose answers wait, come in any order, or fail: replies come in the order
//! of the requests and say what they say over a store that answers at once; no more waits than may; a client that is lost
//! takes its reads with it and not its changes.
//!
//! The first byte says how long the pieces are, the second how many follow that say which answer comes next: 255 is a
//! client that is lost, in whose place another goes on with the rest of the bytes.
#![no_main]

mod common;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use common::{Client, HIGH_WATER, ITEM_MAX, Turn, depends_on_cuts, has, worker};
use libfuzzer_sys::fuzz_target;
use moneta_server::auth::Authenticator;
use moneta_server::node::NodeSettings;
use moneta_server::session::{After, CloseReason, MAX_PARKED, Worker};
use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Cursor, Deleted, ErrorKind, Item, ItemRef, Key, KeyHash, Lookup, Number, Observer, Step, Store, StoreError,
    StoreStats, Visit, Walked, Walking, Written,
};

/// Means that the client is lost.
const LOST: u8 = u8::MAX;

/// Requests that wait, in the order they came.
type Gates = Rc<RefCell<VecDeque<Rc<Cell<bool>>>>>;

/// A model that parks requests whose key begins with an odd byte, flushes, and every other batch of a walk. Of those that
/// wait some fail.
struct Parking {
    model: ModelStore,
    gates: Gates,
    /// Nothing waits longer than until it is asked again.
    at_once: bool,
    walks: Cell<u32>,
    /// Changes that were begun and have not ended.
    changes: Rc<Cell<usize>>,
}

type Act<T> = Box<dyn FnOnce(&ModelStore) -> Result<T, StoreError>>;

struct Gate<T> {
    open: Rc<Cell<bool>>,
    model: ModelStore,
    act: Option<Act<T>>,
}

impl<T> Future for Gate<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.open.get() {
            return Poll::Pending;
        }
        let act = self.act.take().expect("polled once after it is done");
        Poll::Ready(act(&self.model))
    }
}

impl Parking {
    fn waits(key: &Key<'_>) -> bool {
        key.bytes[0] & 1 == 1
    }

    fn park<T: 'static>(
        &self,
        key: &Key<'_>,
        changes: bool,
        act: impl FnOnce(&ModelStore, &Key<'_>) -> Result<T, StoreError> + 'static,
    ) -> Step<T> {
        let bytes = key.bytes.to_vec();
        self.gate(changes, move |model| match bytes[0] & 7 {
            5 => Err(StoreError::new(ErrorKind::Device, "bad disk")),
            _ => act(model, &Key::new(&bytes, model.seed())),
        })
    }

    fn gate<T: 'static>(
        &self,
        changes: bool,
        act: impl FnOnce(&ModelStore) -> Result<T, StoreError> + 'static,
    ) -> Step<T> {
        let open = Rc::new(Cell::new(self.at_once));
        if !self.at_once {
            self.gates.borrow_mut().push_back(Rc::clone(&open));
        }
        let under_way = Rc::clone(&self.changes);
        under_way.set(under_way.get() + usize::from(changes));
        let act: Act<T> = Box::new(move |model| {
            under_way.set(under_way.get() - usize::from(changes));
            act(model)
        });
        Step::Wait(Box::pin(Gate { open, model: self.model.clone(), act: Some(act) }))
    }
}

/// The outcome of a read that keeps what it is shown.
fn kept(look: impl FnOnce(&mut dyn FnMut(&ItemRef<'_>)) -> Step<Lookup>) -> Result<Lookup, StoreError> {
    let mut found = None;
    let outcome = look(&mut |item| found = Some(Item { meta: item.meta, value: item.value.to_vec() })).now();
    found.map_or(outcome, |item| Ok(Lookup::Found(item)))
}

/// Whether a read is one that a lost client takes with it.
fn only_reads(request: &Retrieve) -> bool {
    request.touch.is_none() && request.vivify.is_none() && request.recache.is_none() && !request.claim
}

impl Store for Parking {
    fn seed(&self) -> KeyHash {
        self.model.seed()
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        if !Self::waits(key) {
            return self.model.get(key, request, visitor);
        }
        let request = *request;
        // What claims may be taken for a change or not.
        let changes = !only_reads(&request) && !request.claim;
        self.park(key, changes, move |model, key| kept(|mut seen| model.get(key, &request, &mut seen)))
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        if !Self::waits(key) {
            return self.model.set(key, value, request);
        }
        let (value, request) = (value.to_vec(), *request);
        self.park(key, true, move |model, key| model.set(key, &value, &request).now())
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        if !Self::waits(key) {
            return self.model.delete(key, request);
        }
        let request = *request;
        self.park(key, true, move |model, key| model.delete(key, &request).now())
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        if !Self::waits(key) {
            return self.model.arithmetic(key, request);
        }
        let request = *request;
        self.park(key, true, move |model, key| model.arithmetic(key, &request).now())
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        if !Self::waits(key) {
            return self.model.peek(key, visitor);
        }
        self.park(key, false, move |model, key| kept(|mut seen| model.peek(key, &mut seen)))
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.gate(true, move |model| model.flush(delay).now())
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.walks.set(self.walks.get() + 1);
        if self.walks.get() % 2 == 1 {
            return self.model.walk(cursor, show);
        }
        match self.gate(false, |_| Ok(())) {
            Step::Wait(pending) => Walking::Wait(pending),
            Step::Done(_) => Walking::More,
        }
    }

    fn stats(&self) -> StoreStats {
        self.model.stats()
    }

    fn resize(&self, limit: u64) -> bool {
        self.model.resize(limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.model.observe(observer);
    }
}

fn parking(at_once: bool) -> (Worker<Parking>, Gates) {
    let gates = Gates::default();
    let worker = worker(NodeSettings::default(), Authenticator::off(), |clock| Parking {
        model: ModelStore::new(clock, ITEM_MAX),
        gates: Rc::clone(&gates),
        at_once,
        walks: Cell::default(),
        changes: Rc::default(),
    });
    (worker, gates)
}

/// Answers one request; false if none waits.
fn answer(gates: &Gates, which: u8) -> bool {
    let mut gates = gates.borrow_mut();
    let index = usize::from(which) % gates.len().max(1);
    gates.remove(index).is_some_and(|gate| {
        gate.set(true);
        true
    })
}

/// Loses a client; what it changes ends all the same.
fn lose(mut client: Client<'_>, worker: &Worker<Parking>, gates: &Gates) {
    let mut changing = client.session.give_up();
    assert!(changing || worker.store.changes.get() == 0, "a change goes with its client");
    while changing {
        assert!(answer(gates, 0), "a change is waited for that nothing holds up");
        let mut output = Vec::new();
        client.session.poll(worker, &mut Context::from_waker(Waker::noop()), &mut output, HIGH_WATER);
        changing = client.session.is_changing();
    }
    assert_eq!(worker.store.changes.get(), 0, "a change was dropped");
    client.session.closed(worker, CloseReason::Normal);
    gates.borrow_mut().clear();
}

fn replies(input: &[u8], piece: usize, order: Option<&[u8]>) -> (Vec<u8>, After) {
    let (worker, gates) = parking(order.is_none());
    let mut client = Client::new(input, piece);
    let mut order = order.unwrap_or_default().iter().copied();
    loop {
        let turn = client.turn(&worker);
        let waiting = gates.borrow().len();
        assert!(waiting <= MAX_PARKED + 1, "{waiting} requests wait");
        match turn {
            Turn::GoesOn => {}
            Turn::Over => break,
            Turn::Waits => match order.next().unwrap_or(0) {
                LOST => {
                    let rest = client.rest();
                    lose(client, &worker, &gates);
                    client = Client::new(rest, piece);
                }
                which => {
                    assert!(answer(&gates, which), "stalls");
                    client.goes_on();
                }
            },
        }
    }
    let ended = (std::mem::take(&mut client.answers), client.after);
    lose(client, &worker, &gates);
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
