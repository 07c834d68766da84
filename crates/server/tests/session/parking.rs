//! A store that answers late, in whatever order the test says: replies must keep the order of the requests.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use moneta_server::auth::Authenticator;
use moneta_server::node::{NodeSettings, Peer};
use moneta_server::session::{MAX_PARKED, Session, Worker};
use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Clock, Cursor, Deleted, ErrorKind, Item, ItemRef, Key, Lookup, Number, Observer, Pending, Step, Store, StoreError,
    StoreStats, Visit, Walked, Walking, Written,
};
use proptest::prelude::*;

use crate::talk::{HIGH_WATER, NOW, worker_on};

/// Gates of requests that wait, in the order the requests came.
type Gates = Rc<RefCell<VecDeque<Rc<RefCell<bool>>>>>;

/// A model that parks requests whose key begins with `w`; keys that begin with `we` fail in the end.
struct ParkingStore {
    model: ModelStore,
    gates: Gates,
}

struct Gate<T> {
    open: Rc<RefCell<bool>>,
    outcome: Option<Result<T, StoreError>>,
}

impl<T: Unpin> Future for Gate<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let open = *self.open.borrow();
        if open { Poll::Ready(self.outcome.take().expect("polled once after it is done")) } else { Poll::Pending }
    }
}

impl ParkingStore {
    fn park<T: Unpin + 'static>(&self, key: &Key<'_>, outcome: Result<T, StoreError>) -> Step<T> {
        if !key.bytes.starts_with(b"w") {
            return Step::Done(outcome);
        }
        let outcome =
            if key.bytes.starts_with(b"we") { Err(StoreError::new(ErrorKind::Device, "bad disk")) } else { outcome };
        let open = Rc::new(RefCell::new(false));
        self.gates.borrow_mut().push_back(Rc::clone(&open));
        let pending: Pending<T> = Box::pin(Gate { open, outcome: Some(outcome) });
        Step::Wait(pending)
    }

    fn look(
        &self,
        key: &Key<'_>,
        visitor: &mut impl Visit,
        look: impl FnOnce(&mut dyn FnMut(&ItemRef<'_>)) -> Step<Lookup>,
    ) -> Step<Lookup> {
        let mut found = None;
        let outcome = look(&mut |item| found = Some(Item { meta: item.meta, value: item.value.to_vec() })).now();
        match (key.bytes.starts_with(b"w"), found) {
            (true, Some(item)) => self.park(key, Ok(Lookup::Found(item))),
            (true, None) => self.park(key, outcome),
            (false, Some(item)) => {
                visitor.item(&item.as_ref());
                Step::Done(outcome)
            }
            (false, None) => Step::Done(outcome),
        }
    }
}

impl Store for ParkingStore {
    fn seed(&self) -> u64 {
        self.model.seed()
    }
    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        self.look(key, visitor, |mut seen| self.model.get(key, request, &mut seen))
    }
    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let outcome = self.model.set(key, value, request).now();
        self.park(key, outcome)
    }
    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        let outcome = self.model.delete(key, request).now();
        self.park(key, outcome)
    }
    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        let outcome = self.model.arithmetic(key, request).now();
        self.park(key, outcome)
    }
    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        self.look(key, visitor, |mut seen| self.model.peek(key, &mut seen))
    }
    fn flush(&self, delay: Exptime) -> Step<()> {
        self.model.flush(delay)
    }
    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.model.walk(cursor, show)
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

fn parking() -> (Worker<ParkingStore>, Gates) {
    let clock = Arc::new(Clock::manual(NOW));
    let gates = Gates::default();
    let store = ParkingStore { model: ModelStore::new(Arc::clone(&clock), 1 << 20), gates: Rc::clone(&gates) };
    // However much is sent at once is received at once.
    let settings = NodeSettings { requests_per_event: u32::MAX, ..NodeSettings::default() };
    (worker_on(store, &clock, settings, Authenticator::off()), gates)
}

fn poll(session: &mut Session, worker: &Worker<ParkingStore>, output: &mut Vec<u8>) {
    session.poll(worker, &mut Context::from_waker(Waker::noop()), output, HIGH_WATER);
}

fn open(gates: &Gates, index: usize) {
    let gate = gates.borrow_mut().remove(index).unwrap();
    *gate.borrow_mut() = true;
}

#[test]
fn later_requests_start_and_their_replies_line_up() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let input = b"mn\r\nset w1 0 0 1\r\n1\r\nset a 0 0 1\r\n2\r\nget w1 a w2 b\r\nmg w1 v k Oabc\r\nmn\r\n";
    let received = session.receive(&worker, input, &mut output, HIGH_WATER);
    assert_eq!(received.consumed, input.len(), "nothing holds up what comes behind");
    assert_eq!(output, b"MN\r\n");
    assert_eq!(worker.counters.cmd_set.get(), 1, "the later set is done already");
    assert_eq!(gates.borrow().len(), 4);
    // The last first: nothing may come out before the first.
    for _ in 0..3 {
        let last = gates.borrow().len() - 1;
        open(&gates, last);
        poll(&mut session, &worker, &mut output);
        assert_eq!(output, b"MN\r\n");
    }
    open(&gates, 0);
    poll(&mut session, &worker, &mut output);
    let expected =
        "MN\r\nSTORED\r\nSTORED\r\nVALUE w1 0 1\r\n1\r\nVALUE a 0 1\r\n2\r\nEND\r\nVA 1 kw1 Oabc\r\n1\r\nMN\r\n";
    assert_eq!(String::from_utf8(output).unwrap(), expected);
    assert!(!session.is_waiting());
}

#[test]
fn failures_are_told_where_the_protocol_can() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    session.receive(
        &worker,
        b"get we\r\nmg we v\r\nset we 0 0 1\r\nx\r\ndelete we\r\nincr we 1\r\nme we\r\n",
        &mut output,
        HIGH_WATER,
    );
    while !gates.borrow().is_empty() {
        open(&gates, 0);
    }
    poll(&mut session, &worker, &mut output);
    let failed = "SERVER_ERROR bad disk\r\n";
    assert_eq!(String::from_utf8(output).unwrap(), format!("END\r\n{}", failed.repeat(5)));
}

#[test]
fn only_so_many_requests_wait() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let input = b"get w\r\n".repeat(MAX_PARKED + 10);
    let received = session.receive(&worker, &input, &mut output, HIGH_WATER);
    assert_eq!((received.consumed, received.needed), (MAX_PARKED * 7, 0));
    assert_eq!(gates.borrow().len(), MAX_PARKED);
    assert_eq!(session.receive(&worker, &input[received.consumed..], &mut output, HIGH_WATER).consumed, 0);
    open(&gates, 0);
    poll(&mut session, &worker, &mut output);
    assert_eq!(session.receive(&worker, &input[received.consumed..], &mut output, HIGH_WATER).consumed, 7);
}

#[test]
fn a_multi_get_stops_at_the_same_limit_and_goes_on() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let (mut output, mut polled) = (Vec::new(), 0);
    let line = format!("get{}\r\nmn\r\n", " w".repeat(1000));
    let mut input = line.as_bytes();
    while !input.is_empty() || session.is_waiting() {
        let received = session.receive(&worker, input, &mut output, HIGH_WATER);
        input = &input[received.consumed..];
        assert!(gates.borrow().len() <= MAX_PARKED);
        while !gates.borrow().is_empty() {
            open(&gates, 0);
            polled += 1;
        }
        poll(&mut session, &worker, &mut output);
    }
    assert_eq!(polled, 1000);
    assert_eq!(output, b"END\r\nMN\r\n");
}

#[test]
fn answers_behind_a_waiting_request_are_bounded() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let value = "v".repeat(10_000);
    let set = format!("set a 0 0 {}\r\n{value}\r\nget w\r\n", value.len());
    session.receive(&worker, set.as_bytes(), &mut output, HIGH_WATER);
    let input = b"get a\r\n".repeat(1000);
    let received = session.receive(&worker, &input, &mut output, HIGH_WATER);
    assert!(received.consumed <= 8 * 7, "{}", received.consumed);
    open(&gates, 0);
    poll(&mut session, &worker, &mut output);
    assert!(output.len() < 2 * HIGH_WATER && output.len() > HIGH_WATER);
}

#[test]
fn what_waits_goes_on_without_room_for_its_answer() {
    // Others may wait for it in the store: a client that does not read must not hold them up.
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    session.receive(&worker, b"set w 0 0 1\r\nx\r\n", &mut output, HIGH_WATER);
    open(&gates, 0);
    let polled = session.poll(&worker, &mut Context::from_waker(Waker::noop()), &mut output, 0);
    assert_eq!(worker.counters.cmd_set.get(), 1, "the set is done");
    assert!(output.is_empty() && !polled.receive_again);
    poll(&mut session, &worker, &mut output);
    assert_eq!(output, b"STORED\r\n");
}

#[test]
fn closing_waits_for_what_is_parked() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    session.receive(&worker, b"get w\r\nquit\r\n", &mut output, HIGH_WATER);
    assert!(session.is_waiting() && output.is_empty());
    open(&gates, 0);
    poll(&mut session, &worker, &mut output);
    assert_eq!((session.is_waiting(), &output[..]), (false, &b"END\r\n"[..]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever waits and in whatever order it ends, the client cannot tell it from a store that never waits.
    #[test]
    fn waiting_changes_no_reply(commands in prop::collection::vec(0..8usize, 1..30), order in prop::collection::vec(any::<prop::sample::Index>(), 60)) {
        const COMMANDS: [&str; 8] = [
            "set w1 0 0 2\r\nab\r\n", "get w1 a w2\r\n", "incr w2 1\r\n", "ms w2 1 c O1\r\n5\r\n",
            "delete w1\r\n", "append a 0 0 1\r\nz\r\n", "mg w2 v q k\r\n", "set a 0 0 1\r\nx\r\n",
        ];
        let input: String = commands.iter().map(|&index| COMMANDS[index]).collect();
        let direct = crate::talk::Talk::new().say(&crate::talk::worker(NodeSettings::default(), Authenticator::off()), input.as_bytes());
        let (worker, gates) = parking();
        let mut session = Session::new(Peer::default());
        let mut output = Vec::new();
        let received = session.receive(&worker, input.as_bytes(), &mut output, HIGH_WATER);
        prop_assert_eq!(received.consumed, input.len());
        let mut order = order.iter();
        while session.is_waiting() {
            let waiting = gates.borrow().len();
            if waiting > 0 {
                let index = order.next().map_or(0, |index| index.index(waiting));
                open(&gates, index);
            }
            poll(&mut session, &worker, &mut output);
        }
        prop_assert_eq!(String::from_utf8(output), String::from_utf8(direct));
    }
}
