//! Guards stores whose I/O a worker does itself: I/O that a turn submits is completed whenever the device is done, and its waiter
//! is woken. The silent failure is a completion between the worker's last check and its sleep, which is never taken.

mod support;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use moneta_server::ServerConfig;
use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings};
use moneta_store::{Clock, Cx, Key, Op, Reactor, Reactors, Slot, Step, Store, Visit};
use moneta_testkit::doubles::{Double, Layer, later};
use moneta_testkit::model::ModelStore;
use support::{TestServer, config, eventually, hit, set};

/// A request on its way through the device.
type Ticket = Arc<Mutex<Progress>>;

#[derive(Default)]
struct Progress {
    done: bool,
    waker: Option<Waker>,
}

/// The model behind a device: every read waits for it. Only the reactor of the thread that asked brings reads there and back.
struct DeviceStore {
    inner: ModelStore,
    slot: Slot,
    gathers: bool,
    /// Reactors that have not been closed and dropped.
    reactors: Arc<AtomicUsize>,
}

struct DeviceReactor {
    /// What requests asked for since the last turn.
    asked: RefCell<Vec<Ticket>>,
    /// To the device's thread.
    begin: Sender<Ticket>,
    /// From the device's thread; `news` becomes readable with it.
    ended: Arc<Mutex<Vec<Ticket>>>,
    news: UnixStream,
    closed: Cell<bool>,
    reactors: Arc<AtomicUsize>,
    /// Reads are to go to the device together, as requests to another server do.
    gathers: bool,
}

impl DeviceReactor {
    fn ask(&self) -> Ticket {
        let ticket = Ticket::default();
        self.asked.borrow_mut().push(Arc::clone(&ticket));
        ticket
    }

    fn take_ended(&self) {
        while (&self.news).read(&mut [0; 64]).is_ok_and(|count| count == 64) {}
        for ticket in std::mem::take(&mut *self.ended.lock().unwrap()) {
            let waker = {
                let mut progress = ticket.lock().unwrap();
                progress.done = true;
                progress.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Reactor for DeviceReactor {
    fn descriptor(&self) -> RawFd {
        self.news.as_raw_fd()
    }

    fn turn(&self) {
        self.asked.take().into_iter().for_each(|ticket| self.begin.send(ticket).unwrap());
        self.take_ended();
    }

    fn reap(&self) {
        if self.gathers { self.take_ended() } else { self.turn() }
    }

    fn gathers(&self) -> bool {
        self.gathers && !self.asked.borrow().is_empty()
    }
    fn is_eager(&self) -> bool {
        !self.gathers
    }

    fn close(&self) {
        self.closed.set(true);
    }
}

impl Drop for DeviceReactor {
    fn drop(&mut self) {
        if self.closed.get() {
            self.reactors.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Ends reads one by one, some at once, some after a while, so that they end at every point of the worker's loop.
fn run_device(begun: Receiver<Ticket>, ended: Arc<Mutex<Vec<Ticket>>>, mut tell: UnixStream) {
    for (number, ticket) in begun.into_iter().enumerate() {
        match number % 7 {
            0 => std::thread::sleep(std::time::Duration::from_micros(300)),
            1..4 => std::thread::yield_now(),
            _ => {}
        }
        ended.lock().unwrap().push(ticket);
        // A full pipe is readable already; at a closed one there is no reader.
        let _ = tell.write(&[1]);
    }
}

impl Double for DeviceStore {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let Op::Read(_) = op else { return self.inner.call(cx, key, op, out) };
        let ticket = cx.reactor::<DeviceReactor>(self.slot).expect("a reactor on this thread").ask();
        let answer = later(&self.inner, cx, key, op);
        Step::Wait(Box::pin(async move {
            poll_fn(|context| {
                let mut progress = ticket.lock().unwrap();
                progress.waker = Some(context.waker().clone());
                if progress.done { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            answer.await
        }))
    }

    fn attach(&self, worker: &mut Reactors) {
        let (begin, begun) = channel();
        let (news, tell) = UnixStream::pair().unwrap();
        news.set_nonblocking(true).unwrap();
        tell.set_nonblocking(true).unwrap();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let to_end = Arc::clone(&ended);
        // It ends when the reactor is dropped.
        std::thread::spawn(move || run_device(begun, to_end, tell));
        self.reactors.fetch_add(1, Ordering::SeqCst);
        let (asked, closed, reactors) = (RefCell::default(), Cell::default(), Arc::clone(&self.reactors));
        worker.add(
            self.slot,
            Rc::new(DeviceReactor { asked, begin, ended, news, closed, reactors, gathers: self.gathers }),
        );
    }
}

fn start(workers: usize) -> (TestServer, Arc<AtomicUsize>) {
    start_with(workers, false)
}

fn start_with(workers: usize, gathers: bool) -> (TestServer, Arc<AtomicUsize>) {
    let clock = Arc::new(Clock::system());
    let reactors = Arc::new(AtomicUsize::new(0));
    let inner = ModelStore::new(Arc::clone(&clock), 1024 * 1024);
    let store = Layer(DeviceStore { inner, slot: Slot::draw(), gathers, reactors: Arc::clone(&reactors) });
    let node = Arc::new(Node::new(NodeSettings::default(), clock, Authenticator::off()));
    let config = ServerConfig { workers, ..config() };
    let running = moneta_server::Server::start(&config, Arc::new(store), Arc::clone(&node)).unwrap();
    (TestServer { running, desk: None, node, gate: Default::default() }, reactors)
}

#[test]
fn one_read_after_the_other_ends() {
    read_one_by_one(&start(1).0);
}

#[test]
fn one_read_after_the_other_ends_where_reads_wait_for_more() {
    read_one_by_one(&start_with(1, true).0);
}

fn read_one_by_one(server: &TestServer) {
    let mut client = server.connect();
    client.ask(set("key", b"value"), "STORED\r\n");
    for _ in 0..2_000 {
        client.ask("get key\r\n", hit("key", b"value"));
    }
}

#[test]
fn many_reads_of_many_connections_end_in_order() {
    read_side_by_side(start(2));
}

#[test]
fn many_reads_of_many_connections_end_in_order_where_reads_wait_for_more() {
    read_side_by_side(start_with(2, true));
}

fn read_side_by_side((server, reactors): (TestServer, Arc<AtomicUsize>)) {
    let (connections, rounds, batch) = (8, 40, 50);
    std::thread::scope(|scope| {
        for connection in 0..connections {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect();
                let keys: Vec<String> = (0..batch).map(|number| format!("key-{connection}-{number}")).collect();
                for key in &keys {
                    client.ask(set(key, key.as_bytes()), "STORED\r\n");
                }
                for _ in 0..rounds {
                    client.send(keys.iter().map(|key| format!("get {key}\r\n")).collect::<String>());
                    for key in &keys {
                        client.expect(hit(key, key.as_bytes()));
                    }
                }
            });
        }
    });
    assert_eq!(reactors.load(Ordering::SeqCst), 2, "one for each worker");
}

#[test]
fn a_client_may_leave_while_the_device_works_and_a_stop_drops_the_reactors() {
    let (server, reactors) = start(2);
    for _ in 0..50 {
        server.connect().send(b"get key\r\n".repeat(20));
    }
    eventually("all are gone", || server.node.registry.totals().curr_connections == 0);
    let mut left = server.connect();
    left.send(b"get key\r\n".repeat(20));
    drop(server);
    assert_eq!(reactors.load(Ordering::SeqCst), 0);
}
