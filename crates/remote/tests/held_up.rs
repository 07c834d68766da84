//! A thread that is held up (a process that is stopped, a machine that is overloaded) while requests are under way: it can
//! neither send nor receive meanwhile, and must not take that for the server's silence when it goes on.
//!
//! The test's own thread turns the connections, and holds them up by not doing so. A server here says nothing before that is
//! over, so that no reply can lie ready to be received by the first turn after it.

mod common;

use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::peer::{Peer, Visit};
use common::{SEED, remote, wait_until};
use moneta_net::{Address, Endpoint};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::request::Retrieve;
use moneta_store::{
    Cx, ErrorKind, Key, Lookup, Op, Outcome, Pending, Policy, Reactors, Step, Store, StoreError, Unseen, component,
};
use rustix::event::epoll;
use rustix::time::Timespec;

/// Long enough for a server of the test on a busy machine, which has three quarters of it left after a thread was held up.
const TIMEOUT: Duration = Duration::from_secs(5);
/// By how much a thread is held up for longer than a request may take.
const BEYOND: Duration = Duration::from_millis(300);
/// What has not come about by then never will.
const LIMIT: Duration = Duration::from_secs(60);

/// A thread with an event loop, turned by hand.
struct Worker {
    store: Remote,
    reactors: Rc<Reactors>,
    cx: Cx,
}

impl Worker {
    fn new(peer: &Peer, timeout: Duration) -> Self {
        let endpoint = Endpoint::new(Address::Unix(peer.path())).patient(timeout);
        let config =
            RemoteConfig { request_timeout: timeout.into(), timeouts_max: 1000, ..RemoteConfig::new(endpoint, SEED) };
        let store = remote(config);
        let mut reactors = Reactors::default();
        component::attach(&store, &mut reactors);
        assert!(!reactors.is_empty(), "the store has connections of this thread");
        let reactors = Rc::new(reactors);
        let cx = Cx::of_worker(Policy::Online, &reactors);
        Self { store, reactors, cx }
    }

    fn get(&self, key: &str) -> Step<Lookup> {
        let key = Key::new(key.as_bytes(), SEED);
        self.store.call(&self.cx, &key, Op::Read(&Retrieve::default()), &mut Unseen).map(Outcome::lookup)
    }

    /// Begins a read, which waits for the next turn.
    fn begin(&self, key: &str) -> Pending<Lookup> {
        match self.get(key) {
            Step::Wait(pending) => pending,
            Step::Done(ended) => panic!("it is at its end at once: {ended:?}"),
        }
    }

    /// Reads until the server has answered in time, for which a busy machine may need several attempts.
    fn come_up(&mut self) {
        wait_until("the server answers", || {
            let ended = match self.get("first") {
                Step::Wait(pending) => self.finish(pending),
                // Not connected, and not to be tried again yet.
                Step::Done(ended) => ended,
            };
            self.reactors.turn();
            matches!(ended, Ok(Lookup::Found(_)))
        });
    }

    /// Turns until the read ends; sleeps in between until the event queue tells of something.
    fn finish(&mut self, mut read: Pending<Lookup>) -> Result<Lookup, StoreError> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            self.reactors.turn();
            if let Poll::Ready(ended) = poll(&mut read) {
                return ended;
            }
            self.wait();
        }
        panic!("the read has no end");
    }

    fn wait(&self) {
        let descriptor = self.reactors.descriptors().next().expect("the store has one reactor");
        // SAFETY: the reactor is alive, and keeps its descriptor open as long as it is.
        let queue = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let mut events = Vec::with_capacity(16);
        let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
        let told = epoll::wait(queue, rustix::buffer::spare_capacity(&mut events), Some(&limit));
        assert_ne!(told, Ok(0), "no turn is planned, though a request is under way");
    }
}

fn poll(read: &mut Pending<Lookup>) -> Poll<Result<Lookup, StoreError>> {
    read.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// What keeps a server silent while it is shut. Open at the end, so that no server outlives its test.
struct Gate(Arc<AtomicBool>);

impl Gate {
    fn shut() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn pass(gate: &AtomicBool) {
        while !gate.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

fn take_probe(visit: &mut Visit) -> bool {
    std::iter::from_fn(|| visit.next()).take(5).count() == 5
}

fn answer_probe(visit: &mut Visit) -> bool {
    visit.say(b"VERSION 1.6.45\r\nMN\r\nEN\r\nERROR\r\nVERSION 1.6.45\r\n")
}

fn is_here(ended: Result<Lookup, StoreError>) {
    match ended {
        Ok(Lookup::Found(item)) => assert_eq!(item.value, b"here"),
        other => panic!("the server is well, and yet: {other:?}"),
    }
}

/// What is in flight, be it sent or not.
#[test]
fn a_request_is_not_late_because_its_thread_was() {
    for is_sent in [false, true] {
        let gate = Gate::shut();
        let theirs = Arc::clone(&gate.0);
        let peer = Peer::play(None, move |mut visit| {
            if take_probe(&mut visit) && answer_probe(&mut visit) {
                while let Some(asked) = visit.next() {
                    if asked.key != "first" {
                        Gate::pass(&theirs);
                    }
                    visit.say(&asked.hit(b"here"));
                }
            }
        });
        let mut worker = Worker::new(&peer, TIMEOUT);
        let first = worker.begin("first");
        is_here(worker.finish(first));

        let read = worker.begin("key");
        if is_sent {
            worker.reactors.turn();
        }
        sleep(TIMEOUT + BEYOND);
        worker.reactors.turn();
        gate.open();
        is_here(worker.finish(read));
        assert_eq!(peer.connections.load(Ordering::SeqCst), 1, "sent before: {is_sent}");
    }
}

/// A request that waits for its connection, and the questions that a server is asked first.
#[test]
fn a_server_that_is_being_asked_what_it_is_does_not_count_as_silent() {
    let gate = Gate::shut();
    let theirs = Arc::clone(&gate.0);
    let peer = Peer::play(None, move |mut visit| {
        if take_probe(&mut visit) {
            Gate::pass(&theirs);
            answer_probe(&mut visit);
            while let Some(asked) = visit.next() {
                visit.say(&asked.hit(b"here"));
            }
        }
    });
    let mut worker = Worker::new(&peer, TIMEOUT);
    let read = worker.begin("key");
    sleep(TIMEOUT + BEYOND);
    worker.reactors.turn();
    gate.open();
    is_here(worker.finish(read));
    assert_eq!(peer.connections.load(Ordering::SeqCst), 1);
}

/// A request that is carried over from a connection which the server closed to the next one.
#[test]
fn a_request_on_its_second_connection_is_not_late_because_its_thread_was() {
    let gate = Gate::shut();
    let theirs = Arc::clone(&gate.0);
    let peer = Peer::play(None, move |mut visit| {
        if !take_probe(&mut visit) {
            return;
        }
        if visit.number > 0 {
            Gate::pass(&theirs);
        }
        answer_probe(&mut visit);
        while let Some(asked) = visit.next() {
            if visit.number == 0 && asked.key == "closing" {
                return;
            }
            visit.say(&asked.hit(b"here"));
        }
    });
    let mut worker = Worker::new(&peer, TIMEOUT);
    let first = worker.begin("first");
    is_here(worker.finish(first));

    let read = worker.begin("closing");
    wait_until("it is on its second connection", || {
        worker.reactors.turn();
        peer.connections.load(Ordering::SeqCst) == 2
    });
    sleep(TIMEOUT + BEYOND);
    worker.reactors.turn();
    gate.open();
    is_here(worker.finish(read));
    assert_eq!(peer.connections.load(Ordering::SeqCst), 2);
}

/// A server that answers its probe, and then nothing any more.
fn hung_server() -> Peer {
    Peer::play(None, |mut visit| {
        if take_probe(&mut visit) && answer_probe(&mut visit) {
            while let Some(asked) = visit.next() {
                if asked.key == "first" {
                    visit.say(&asked.hit(b"here"));
                }
            }
        }
    })
}

#[test]
fn a_server_that_hangs_is_still_found_out_after_its_thread_was_held_up() {
    let timeout = Duration::from_millis(200);
    let peer = hung_server();
    let mut worker = Worker::new(&peer, timeout);
    worker.come_up();

    let read = worker.begin("key");
    sleep(2 * timeout);
    assert_eq!(worker.finish(read).expect_err("it hangs").kind(), ErrorKind::Timeout);
}

/// A thread for which no turn comes in time: what a hung server costs must have an end for it, too.
#[test]
fn a_thread_that_is_always_held_up_finds_a_hung_server_out() {
    let timeout = Duration::from_millis(200);
    let peer = hung_server();
    let mut worker = Worker::new(&peer, timeout);
    worker.come_up();

    let mut read = worker.begin("key");
    let ended = (0..6).find_map(|_| {
        sleep(2 * timeout);
        worker.reactors.turn();
        match poll(&mut read) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        }
    });
    let ended = ended.expect("six turns, each later than a request may take, are enough");
    assert_eq!(ended.expect_err("it hangs").kind(), ErrorKind::Timeout);
}
