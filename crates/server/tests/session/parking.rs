//! A store that acts and answers late, in whatever order the test says: replies must keep the order of the requests, and what
//! is asked of one key must take effect in it.

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
    Clock, Cursor, Deleted, ErrorKind, Item, ItemRef, Key, KeyHash, Lookup, Number, Observer, Pending, Step, Store,
    StoreError, StoreStats, Visit, Walked, Walking, Written,
};
use proptest::prelude::*;

use crate::talk::{HIGH_WATER, NOW, worker_on};

/// Gates of requests that wait, in the order the requests came.
type Gates = Rc<RefCell<VecDeque<Rc<RefCell<bool>>>>>;

/// A model that parks requests whose key begins with `w`, and flushes: they take effect when their gate is opened. Keys that
/// begin with `we` fail in the end.
struct ParkingStore {
    model: ModelStore,
    gates: Gates,
}

/// What a request does to the model.
type Act<T> = Box<dyn FnOnce(&ModelStore) -> Result<T, StoreError>>;

struct Gate<T> {
    open: Rc<RefCell<bool>>,
    model: ModelStore,
    act: Option<Act<T>>,
}

impl<T> Future for Gate<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if !*self.open.borrow() {
            return Poll::Pending;
        }
        let act = self.act.take().expect("polled once after it is done");
        Poll::Ready(act(&self.model))
    }
}

impl ParkingStore {
    fn waits(key: &Key<'_>) -> bool {
        key.bytes.starts_with(b"w")
    }

    /// Parks what is asked of `key`, whose bytes `act` gets.
    fn park<T: 'static>(
        &self,
        key: &Key<'_>,
        act: impl FnOnce(&ModelStore, &Key<'_>) -> Result<T, StoreError> + 'static,
    ) -> Step<T> {
        let bytes = key.bytes.to_vec();
        self.gate(move |model| match bytes.starts_with(b"we") {
            true => Err(StoreError::new(ErrorKind::Device, "bad disk")),
            false => act(model, &Key::new(&bytes, model.seed())),
        })
    }

    fn gate<T: 'static>(&self, act: impl FnOnce(&ModelStore) -> Result<T, StoreError> + 'static) -> Step<T> {
        let open = Rc::new(RefCell::new(false));
        self.gates.borrow_mut().push_back(Rc::clone(&open));
        let pending: Pending<T> = Box::pin(Gate { open, model: self.model.clone(), act: Some(Box::new(act)) });
        Step::Wait(pending)
    }
}

/// The outcome of a read that keeps what it is shown.
fn kept(look: impl FnOnce(&mut dyn FnMut(&ItemRef<'_>)) -> Step<Lookup>) -> Result<Lookup, StoreError> {
    let mut found = None;
    let outcome = look(&mut |item| found = Some(Item { meta: item.meta, value: item.value.to_vec() })).now();
    found.map_or(outcome, |item| Ok(Lookup::Found(item)))
}

impl Store for ParkingStore {
    fn seed(&self) -> KeyHash {
        self.model.seed()
    }
    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        if !Self::waits(key) {
            return self.model.get(key, request, visitor);
        }
        let request = *request;
        self.park(key, move |model, key| kept(|mut seen| model.get(key, &request, &mut seen)))
    }
    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        if !Self::waits(key) {
            return self.model.set(key, value, request);
        }
        let (value, request) = (value.to_vec(), *request);
        self.park(key, move |model, key| model.set(key, &value, &request).now())
    }
    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        if !Self::waits(key) {
            return self.model.delete(key, request);
        }
        let request = *request;
        self.park(key, move |model, key| model.delete(key, &request).now())
    }
    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        if !Self::waits(key) {
            return self.model.arithmetic(key, request);
        }
        let request = *request;
        self.park(key, move |model, key| model.arithmetic(key, &request).now())
    }
    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        if !Self::waits(key) {
            return self.model.peek(key, visitor);
        }
        self.park(key, move |model, key| kept(|mut seen| model.peek(key, &mut seen)))
    }
    fn flush(&self, delay: Exptime) -> Step<()> {
        self.gate(move |model| model.flush(delay).now())
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
    let input = b"mn\r\nset w1 0 0 1\r\n1\r\nset a 0 0 1\r\n2\r\nget w3 a w2 b\r\nmg w4 v k Oabc\r\nmn\r\n";
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
    let expected = "MN\r\nSTORED\r\nSTORED\r\nVALUE a 0 1\r\n2\r\nEND\r\nEN kw4 Oabc\r\nMN\r\n";
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
        b"get we1\r\nmg we2 v\r\nset we3 0 0 1\r\nx\r\ndelete we4\r\nincr we5 1\r\nme we6\r\ntouch we7 1\r\n",
        &mut output,
        HIGH_WATER,
    );
    while !gates.borrow().is_empty() {
        open(&gates, 0);
    }
    poll(&mut session, &worker, &mut output);
    let failed = "SERVER_ERROR bad disk\r\n";
    assert_eq!(String::from_utf8(output).unwrap(), format!("END\r\n{}", failed.repeat(6)));
}

/// What is sent behind a request that waits: how much of it starts.
fn started_behind(first: &str, second: &str) -> usize {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let input = [first, second].concat();
    let received = session.receive(&worker, input.as_bytes(), &mut output, HIGH_WATER);
    assert!(received.consumed >= first.len() && received.needed <= 1);
    // Whatever was held up goes on as soon as what it waits for is done.
    let mut rest = &input.as_bytes()[received.consumed..];
    while session.is_waiting() {
        open(&gates, 0);
        poll(&mut session, &worker, &mut output);
        rest = &rest[session.receive(&worker, rest, &mut output, HIGH_WATER).consumed..];
    }
    assert!(rest.is_empty());
    received.consumed - first.len()
}

#[test]
fn only_what_would_overtake_a_request_on_its_own_key_waits_for_it() {
    const SET: &str = "set w1 0 0 1\r\n1\r\n";
    for early in [
        "get w1\r\n",
        "gets w1\r\n",
        "get w1 w2\r\n",
        "touch w1 5\r\n",
        "mg w1 v\r\n",
        "mg dzE= b v\r\n",
        "me w1\r\n",
        "set w1 0 0 1\r\n2\r\n",
        "append w1 0 0 1\r\n2\r\n",
        "delete w1\r\n",
        "incr w1 1\r\n",
        "flush_all\r\n",
    ] {
        // A line of keys may have begun, but not with this one.
        let begun = early.find(" w1").filter(|_| early.starts_with("gets") || early.contains("w2")).unwrap_or(0);
        assert_eq!(started_behind(SET, early), begun, "{early}");
    }
    for other in ["get w2\r\n", "set w2 0 0 1\r\n2\r\n", "delete w11\r\n", "get a\r\n", "mn\r\n", "version\r\n"] {
        assert_eq!(started_behind(SET, other), other.len(), "{other}");
    }
    assert_eq!(started_behind(SET, "get w2 w1\r\n"), "get w2".len(), "keys before it are read");
    for change in ["delete w1\r\n", "gat 5 w1\r\n", "incr w1 1\r\n", "ma w1\r\n", "flush_all\r\n", "mg w1 N5 v\r\n"] {
        assert_eq!(started_behind(change, "get w1\r\n"), 0, "{change}");
    }
    for read in ["get w1\r\n", "get w1 w1\r\n", "me w1\r\n"] {
        assert_eq!(started_behind("get w1\r\n", read), read.len(), "{read}");
        assert_eq!(started_behind(read, "delete w1\r\n"), 0, "a change must not be seen by a read before it: {read}");
    }
    assert_eq!(started_behind("flush_all\r\n", "get w2\r\n"), 0, "a flush is of every key");
    assert_eq!(started_behind("get w2\r\n", "flush_all\r\n"), 0, "a flush is of every key");
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

    /// Whatever waits, in whatever order it is done, the client cannot tell it from a store that never waits.
    #[test]
    fn waiting_changes_no_reply(commands in prop::collection::vec(0..14usize, 1..30), order in prop::collection::vec(any::<prop::sample::Index>(), 60)) {
        const COMMANDS: [&str; 14] = [
            "set w1 0 0 2\r\nab\r\n", "get w1 a w2\r\n", "incr w2 1\r\n", "ms w2 1 O1\r\n5\r\n",
            "delete w1\r\n", "append a 0 0 1\r\nz\r\n", "mg w2 v q k\r\n", "set a 0 0 1\r\nx\r\n",
            "get w1\r\n", "set w1 0 0 1 noreply\r\nc\r\n", "gat 100 w2 w1 b\r\n", "flush_all noreply\r\n", "mg dzI= b v t N30\r\n",
            "get w2 w1 w1\r\n",
        ];
        let input: String = commands.iter().map(|&index| COMMANDS[index]).collect();
        let direct = crate::talk::Talk::new().say(&crate::talk::worker(NodeSettings::default(), Authenticator::off()), input.as_bytes());
        let (worker, gates) = parking();
        let mut session = Session::new(Peer::default());
        let mut output = Vec::new();
        let mut rest = input.as_bytes();
        let mut order = order.iter().cycle();
        while !rest.is_empty() || session.is_waiting() {
            let received = session.receive(&worker, rest, &mut output, HIGH_WATER);
            rest = &rest[received.consumed..];
            let waiting = gates.borrow().len();
            prop_assert!(rest.is_empty() || waiting > 0, "nothing holds up {:?}", String::from_utf8_lossy(rest));
            if waiting > 0 {
                let index = order.next().map_or(0, |index| index.index(waiting));
                open(&gates, index);
            }
            poll(&mut session, &worker, &mut output);
        }
        prop_assert_eq!(String::from_utf8(output), String::from_utf8(direct));
    }
}
