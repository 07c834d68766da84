//! What the curve of misses is told by sessions: flushes to come and those of other copies, batch reads, and answers that come late.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use moneta_server::auth::Authenticator;
use moneta_server::node::{NodeSettings, Peer};
use moneta_server::session::{Session, Worker};
use moneta_store::{Cx, Policy};

use crate::parking::parking;
use crate::talk::{HIGH_WATER, NOW, Talk, worker};
use crate::versions;

/// Enough that about a hundred are sampled.
const KEYS: usize = 3200;

/// A number of `stats mrc`; `None` before anything was counted.
fn told(worker: &Worker, name: &str) -> Option<f64> {
    let stats = String::from_utf8(Talk::new().say(worker, b"stats mrc\r\n")).unwrap();
    let line = |line: &str| line.strip_prefix(&format!("STAT {name} "))?.trim().parse().ok();
    stats.lines().find_map(line)
}

fn store_all(worker: &Worker) {
    let mut talk = Talk::new();
    for number in 0..KEYS {
        assert_eq!(talk.say(worker, format!("set k{number} 0 0 1\r\nx\r\n").as_bytes()), b"STORED\r\n");
    }
    assert!(is_about(told(worker, "items"), KEYS), "{:?}", told(worker, "items"));
}

/// Whether a number that was found by samples of one in 32 can be this one.
fn is_about(told: Option<f64>, number: usize) -> bool {
    told.is_some_and(|told| (told / number as f64 - 1.0).abs() < 0.4)
}

#[test]
fn a_flush_with_a_delay_clears_the_curve_at_its_second_and_not_before() {
    let (worker, clock) = versions::node(false);
    store_all(&worker);
    let mut talk = Talk::new();
    assert_eq!(talk.say(&worker, b"flush_all 10\r\n"), b"OK\r\n");
    clock.advance(9);
    assert!(is_about(told(&worker, "items"), KEYS));
    clock.advance(1);
    assert_eq!(told(&worker, "items"), Some(0.0));
    // A later flush that takes effect at once is all there is.
    store_all(&worker);
    talk.say(&worker, b"flush_all 10\r\nflush_all\r\n");
    store_all(&worker);
    clock.advance(20);
    assert!(is_about(told(&worker, "items"), KEYS));
}

#[test]
fn a_flush_of_another_copy_clears_it_once() {
    let (worker, clock) = versions::node(true);
    store_all(&worker);
    let mut talk = Talk::new();
    clock.advance(1);
    let flush = format!("mf {} {}\r\n", versions::at(1000), NOW + 1);
    assert_eq!(talk.say(&worker, flush.as_bytes()), b"HD\r\n");
    assert_eq!(told(&worker, "items"), Some(0.0));
    store_all(&worker);
    assert_eq!(talk.say(&worker, flush.as_bytes()), b"HD\r\n", "a proxy tells it again");
    assert!(is_about(told(&worker, "items"), KEYS));
}

#[test]
fn batch_reads_are_no_gets_of_the_curve() {
    let online = worker(NodeSettings::default(), Authenticator::off());
    store_all(&online);
    let batch = Worker {
        store: Arc::clone(&online.store),
        cx: Cx::of_worker(Policy::Batch, &Rc::default()),
        node: Arc::clone(&online.node),
        counters: Arc::clone(&online.counters),
    };
    let read_all = |worker: &Worker, talk: &mut Talk| {
        (0..KEYS).for_each(|number| drop(talk.say(worker, format!("get k{number}\r\n").as_bytes())));
    };
    read_all(&online, &mut Talk::new());
    assert_eq!(told(&online, "gets"), Some(KEYS as f64));
    (0..3).for_each(|_| read_all(&batch, &mut Talk::of(&batch, Peer { policy: Policy::Batch, ..Peer::default() })));
    let gets = told(&online, "gets").unwrap();
    assert!(gets < 2.0 * KEYS as f64, "12,800 would be all of them: {gets}");
    // Nor are keys used by them: what was stored and read online lies where it did.
    let cold = told(&online, "cold").unwrap();
    assert!(cold < 0.02, "{cold}");
    assert!(is_about(told(&online, "items"), KEYS));
}

#[test]
fn hits_and_misses_that_come_late_are_told_as_those_at_once() {
    let (worker, gates) = parking();
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let mut say = |line: String| {
        output.clear();
        session.receive(&worker, line.as_bytes(), &mut output, HIGH_WATER);
        assert!(output.is_empty() && gates.len() == 1, "it waits");
        gates.open(0);
        session.poll(&worker, &mut Context::from_waker(Waker::noop()), &mut output, HIGH_WATER);
        String::from_utf8_lossy(&output).into_owned()
    };
    (0..KEYS).for_each(|number| assert_eq!(say(format!("set w{number} 0 0 1\r\nx\r\n")), "STORED\r\n"));
    for _ in 0..2 {
        (0..KEYS).for_each(|number| assert!(say(format!("get w{number}\r\n")).starts_with("VALUE")));
    }
    assert!(is_about(told(&worker, "items"), KEYS));
    assert_eq!((told(&worker, "gets"), told(&worker, "cold")), (Some(2.0 * KEYS as f64), Some(0.0)));
    let in_less = told(&worker, "items:2048");
    assert!(in_less.is_some_and(|misses| misses > 0.9), "all keys are used between two uses of one: {in_less:?}");
    (0..KEYS).for_each(|number| assert_eq!(say(format!("get wx{number}\r\n")), "END\r\n"));
    let cold = told(&worker, "cold").unwrap();
    assert!((cold - 1.0 / 3.0).abs() < 0.05, "keys that are not there: {cold}");
}
