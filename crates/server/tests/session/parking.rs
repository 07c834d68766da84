//! A store that acts and answers late, in whatever order the test says: replies must keep the order of the requests, and what
//! is asked of one key must take effect in it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use moneta_server::auth::Authenticator;
use moneta_server::latency::{Kind, SAMPLE};
use moneta_server::node::{NodeSettings, Peer};
use moneta_server::session::{MAX_PARKED, Session, Worker};
use moneta_store::component::Flush;
use moneta_store::request::Exptime;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Calls, Clock, Component, Cx, ErrorKind, Key, Op, Parts, Policy, Step, Store, StoreError, Version, Visit,
};
use moneta_testkit::doubles::{Double, Layer, later};
use moneta_testkit::model::ModelStore;
use proptest::prelude::*;

use crate::talk::{HIGH_WATER, NOW, worker_on};

/// Gates of requests that wait, in the order the requests came. An open one is true.
#[derive(Clone, Default)]
pub struct Gates(Arc<Mutex<VecDeque<Arc<Gate>>>>);

/// Whether it is open, and who is woken when it opens.
type Gate = Mutex<(bool, Option<Waker>)>;

impl Gates {
    /// Ends as `act` does, which begins once the gate that this adds is open.
    fn park<T>(&self, act: impl Future<Output = Result<T, StoreError>> + 'static) -> Step<T> {
        let gate = Arc::<Gate>::default();
        self.0.lock().unwrap().push_back(Arc::clone(&gate));
        Step::Wait(Box::pin(async move {
            poll_fn(|cx| {
                let mut gate = gate.lock().unwrap();
                gate.1 = Some(cx.waker().clone());
                if gate.0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            act.await
        }))
    }

    pub fn open(&self, index: usize) {
        let gate = self.0.lock().unwrap().remove(index).unwrap();
        let mut gate = gate.lock().unwrap();
        gate.0 = true;
        gate.1.take().into_iter().for_each(Waker::wake);
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A model that parks requests whose key begins with `w`, and flushes: they take effect when their gate is opened. Keys that
/// begin with `we` fail in the end, and so do those with `wl`, whose node is lost.
struct ParkingStore {
    model: ModelStore,
    gates: Gates,
}

impl Double for ParkingStore {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.model
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let answers_at_once = matches!(op, Op::Drop | Op::Holds | Op::NoteHit | Op::NextCas | Op::BuriedAs);
        if answers_at_once || !key.bytes.starts_with(b"w") {
            return self.model.call(cx, key, op, out);
        }
        if key.bytes.starts_with(b"we") {
            return self.gates.park(async { Err(StoreError::new(ErrorKind::Device, "bad disk")) });
        }
        if key.bytes.starts_with(b"wl") {
            return self.gates.park(async { Err(StoreError::new(ErrorKind::Lost, "node gone")) });
        }
        self.gates.park(later(&self.model, cx, key, op))
    }

    fn parts(&self) -> Parts<'_> {
        Parts { flush: Some(self), ..self.model.parts() }
    }
}

impl Flush for ParkingStore {
    fn flush(&self, _: &Cx, delay: Exptime) -> Step<()> {
        let model = self.model.clone();
        self.gates.park(async move { Calls::flush(&model, delay).now() })
    }

    fn pending(&self) -> Option<u32> {
        self.model.pending()
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        Flush::floor(&self.model, cx, floor)
    }

    fn floors(&self) -> Floors {
        Flush::floors(&self.model)
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        Flush::newest(&self.model, cx)
    }

    fn lag(&self) -> u32 {
        self.model.lag()
    }
}

pub fn parking() -> (Worker, Gates) {
    let clock = Arc::new(Clock::manual(NOW));
    let gates = Gates::default();
    let store = ParkingStore { model: ModelStore::new(Arc::clone(&clock), 1 << 20), gates: gates.clone() };
    // However much is sent at once is received at once.
    let settings = NodeSettings { requests_per_event: u32::MAX, ..NodeSettings::default() };
    (worker_on(Layer(store), &clock, settings, Authenticator::off()), gates)
}

fn poll(session: &mut Session, worker: &Worker, output: &mut Vec<u8>) {
    session.poll(worker, &mut Context::from_waker(Waker::noop()), output, HIGH_WATER);
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
    assert_eq!(gates.len(), 4);
    // The last first: nothing may come out before the first.
    for _ in 0..3 {
        let last = gates.len() - 1;
        gates.open(last);
        poll(&mut session, &worker, &mut output);
        assert_eq!(output, b"MN\r\n");
    }
    gates.open(0);
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
    while gates.len() > 0 {
        gates.open(0);
    }
    poll(&mut session, &worker, &mut output);
    let failed = "SERVER_ERROR bad disk\r\n";
    assert_eq!(String::from_utf8(output).unwrap(), format!("END\r\n{}", failed.repeat(6)));
}

/// A client that takes it for a miss writes what it has over what the other copies hold.
#[test]
fn a_classic_get_that_lost_a_node_is_no_miss() {
    let gone = "SERVER_ERROR node gone\r\n";
    let value = "VALUE a 0 1\r\n2\r\n";
    // Opened from the first and from the last.
    for first in [true, false] {
        let (worker, gates) = parking();
        let mut session = Session::new(Peer::default());
        let mut output = Vec::new();
        let input = b"set a 0 0 1\r\n2\r\nget wl1\r\nget a wl2 a w3\r\nget w4 a\r\ngat 1 wl5 wl6\r\nget b a\r\nget a\r\ntouch wl7 1\r\n";
        let received = session.receive(&worker, input, &mut output, HIGH_WATER);
        assert_eq!(received.consumed, input.len());
        while gates.len() > 0 {
            let last = gates.len() - 1;
            gates.open(if first { 0 } else { last });
            poll(&mut session, &worker, &mut output);
        }
        let expected = [
            "STORED\r\n",
            gone,
            &format!("{value}{value}{gone}"),
            &format!("{value}END\r\n"),
            gone,
            &format!("{value}END\r\n"),
            &format!("{value}END\r\n"),
            gone,
        ];
        assert_eq!(String::from_utf8(output).unwrap(), expected.concat());
        assert!(!session.is_waiting());
        assert_eq!(worker.counters.store_errors.get(), 5);
    }
}

/// A proxy's commands all wait for nodes, and reads of an SSD for the device: times without that wait would say nothing.
#[test]
fn a_command_that_waits_is_timed_until_it_is_answered() {
    const WAIT: Duration = Duration::from_millis(5);
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let counted = |kind| worker.node.registry.latencies(Policy::Online).of(kind).count();
    // The first command of a worker is timed.
    session.receive(&worker, b"get a w1 b\r\n", &mut output, HIGH_WATER);
    std::thread::sleep(WAIT);
    poll(&mut session, &worker, &mut output);
    assert_eq!(counted(Kind::Get), 0, "it waits");
    // Others of the sample are not timed, whether they wait or not.
    let others = ["get w2\r\n", "get b\r\n", &"mn\r\n".repeat(SAMPLE as usize - 3)].concat();
    session.receive(&worker, others.as_bytes(), &mut output, HIGH_WATER);
    gates.open(0);
    poll(&mut session, &worker, &mut output);
    assert_eq!(counted(Kind::Get), SAMPLE);
    let waited = SAMPLE * u64::try_from(WAIT.as_nanos()).unwrap();
    assert!(worker.node.registry.latencies(Policy::Online).of(Kind::Get).sum >= waited);
    // One that does not wait is not taken for what waits before it.
    session.receive(&worker, b"set a 0 0 1\r\n1\r\n", &mut output, HIGH_WATER);
    assert_eq!(counted(Kind::Set), SAMPLE);
    // So are changes.
    for (kind, command) in [(Kind::Set, "set w3 0 0 1\r\n1\r\n"), (Kind::Delete, "delete w4\r\n")] {
        let before = counted(kind);
        let others = "mn\r\n".repeat(SAMPLE as usize - 1);
        session.receive(&worker, [&others, command].concat().as_bytes(), &mut output, HIGH_WATER);
        assert_eq!(counted(kind), before, "it waits");
        while gates.len() > 0 {
            gates.open(0);
        }
        poll(&mut session, &worker, &mut output);
        assert_eq!(counted(kind), before + SAMPLE);
    }
    assert_eq!(counted(Kind::Get), SAMPLE);
}

/// What is sent after a request that waits: how much of it starts.
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
        gates.open(0);
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

/// What is too large leaves its key without a value, also where a change of the key has not taken effect yet.
#[test]
fn the_delete_behind_a_write_that_is_too_large_does_not_overtake() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let first = b"set w1 0 0 1\r\n1\r\n";
    let (large, behind) = (2 << 20, "get a\r\n");
    let refused = format!("ms w1 {large}\r\n{}\r\n{behind}", "x".repeat(large));
    let input = [first, refused.as_bytes()].concat();
    let mut rest = &input[session.receive(&worker, &input, &mut output, HIGH_WATER).consumed..];
    assert_eq!(gates.len(), 1, "the delete has overtaken the set");
    while gates.len() > 0 || !rest.is_empty() {
        if gates.len() > 0 {
            gates.open(0);
        }
        poll(&mut session, &worker, &mut output);
        rest = &rest[session.receive(&worker, rest, &mut output, HIGH_WATER).consumed..];
    }
    assert_eq!(String::from_utf8_lossy(&output), "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\n");
    output.clear();
    session.receive(&worker, b"get w1\r\n", &mut output, HIGH_WATER);
    gates.open(0);
    poll(&mut session, &worker, &mut output);
    assert_eq!(String::from_utf8_lossy(&output), "END\r\n");
}

#[test]
fn only_so_many_requests_wait() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let input = b"get w\r\n".repeat(MAX_PARKED + 10);
    let received = session.receive(&worker, &input, &mut output, HIGH_WATER);
    assert_eq!((received.consumed, received.needed), (MAX_PARKED * 7, 0));
    assert_eq!(gates.len(), MAX_PARKED);
    assert_eq!(session.receive(&worker, &input[received.consumed..], &mut output, HIGH_WATER).consumed, 0);
    gates.open(0);
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
        assert!(gates.len() <= MAX_PARKED);
        while gates.len() > 0 {
            gates.open(0);
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
    gates.open(0);
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
    gates.open(0);
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
    gates.open(0);
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
            let waiting = gates.len();
            prop_assert!(rest.is_empty() || waiting > 0, "nothing holds up {:?}", String::from_utf8_lossy(rest));
            if waiting > 0 {
                let index = order.next().map_or(0, |index| index.index(waiting));
                gates.open(index);
            }
            poll(&mut session, &worker, &mut output);
        }
        prop_assert_eq!(String::from_utf8(output), String::from_utf8(direct));
    }
}
