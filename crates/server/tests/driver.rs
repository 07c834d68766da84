//! Guards stores whose I/O a worker does itself: what a turn begins it also ends, whenever the device is done, and whoever
//! waits is woken. The silent failure is a completion between the worker's last look and its sleep, which nobody takes.

mod support;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings};
use moneta_server::{ByPolicy, ServerConfig};
use moneta_store::model::ModelStore;
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write as SetRequest};
use moneta_store::{
    Clock, Cursor, Deleted, Driver, Item, ItemRef, Key, KeyHash, Lookup, Number, Observer, Step, Store, StoreStats,
    Visit, Walked, Walking, Written,
};
use support::{TestServer, config, eventually, hit, set};

/// A request on its way through the device.
type Ticket = Arc<Mutex<Progress>>;

#[derive(Default)]
struct Progress {
    done: bool,
    waker: Option<Waker>,
}

thread_local! {
    /// What requests of this thread asked for since the last turn; there only where a driver is.
    static ASKED: RefCell<Option<Vec<Ticket>>> = const { RefCell::new(None) };
}

/// The model behind a device: every read waits for it. Only the driver of the thread that asked brings reads there and back.
#[derive(Clone)]
struct DeviceStore {
    inner: ModelStore,
    drivers: Arc<AtomicUsize>,
}

struct DeviceDriver {
    /// To the device's thread.
    begin: Sender<Ticket>,
    /// From the device's thread; `news` becomes readable with it.
    ended: Arc<Mutex<Vec<Ticket>>>,
    news: UnixStream,
    drivers: Arc<AtomicUsize>,
}

impl Driver for DeviceDriver {
    fn descriptor(&self) -> RawFd {
        self.news.as_raw_fd()
    }

    fn turn(&mut self) {
        let asked = ASKED.with_borrow_mut(|asked| std::mem::take(asked.as_mut().unwrap()));
        asked.into_iter().for_each(|ticket| self.begin.send(ticket).unwrap());
        while self.news.read(&mut [0; 64]).is_ok_and(|count| count == 64) {}
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

impl Drop for DeviceDriver {
    fn drop(&mut self) {
        ASKED.set(None);
        self.drivers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends reads one by one, some at once, some after a while, so that they end at every point of the worker's loop.
fn run_device(begun: std::sync::mpsc::Receiver<Ticket>, ended: Arc<Mutex<Vec<Ticket>>>, mut tell: UnixStream) {
    for (number, ticket) in begun.into_iter().enumerate() {
        match number % 7 {
            0 => std::thread::sleep(std::time::Duration::from_micros(300)),
            1..4 => std::thread::yield_now(),
            _ => {}
        }
        ended.lock().unwrap().push(ticket);
        // A full pipe is readable already; a closed one has nobody waiting.
        let _ = tell.write(&[1]);
    }
}

impl DeviceStore {
    fn ask(&self) -> Ticket {
        let ticket = Ticket::default();
        ASKED.with_borrow_mut(|asked| asked.as_mut().expect("a driver on this thread").push(Arc::clone(&ticket)));
        ticket
    }
}

impl Store for DeviceStore {
    fn driver(&self) -> Option<Box<dyn Driver>> {
        ASKED.set(Some(Vec::new()));
        let (begin, begun) = channel();
        let (news, tell) = UnixStream::pair().unwrap();
        news.set_nonblocking(true).unwrap();
        tell.set_nonblocking(true).unwrap();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let to_end = Arc::clone(&ended);
        // It ends when the driver is dropped.
        std::thread::spawn(move || run_device(begun, to_end, tell));
        self.drivers.fetch_add(1, Ordering::SeqCst);
        Some(Box::new(DeviceDriver { begin, ended, news, drivers: Arc::clone(&self.drivers) }))
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, _: &mut impl Visit) -> Step<Lookup> {
        let (store, key, request, ticket) = (self.clone(), key.bytes.to_vec(), *request, self.ask());
        Step::Wait(Box::pin(async move {
            poll_fn(|context| {
                let mut progress = ticket.lock().unwrap();
                progress.waker = Some(context.waker().clone());
                if progress.done { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            let mut found = None;
            let mut keep = |item: &ItemRef<'_>| found = Some(Item { meta: item.meta, value: item.value.to_vec() });
            let lookup = store.inner.get(&Key::new(&key, store.seed()), &request, &mut keep).now()?;
            Ok(found.map_or(lookup, Lookup::Found))
        }))
    }

    fn seed(&self) -> KeyHash {
        self.inner.seed()
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &SetRequest) -> Step<Written> {
        self.inner.set(key, value, request)
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        self.inner.delete(key, request)
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        self.inner.arithmetic(key, request)
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        self.inner.peek(key, visitor)
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.inner.flush(delay)
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.inner.walk(cursor, show)
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn resize(&self, limit: u64) -> bool {
        self.inner.resize(limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.inner.observe(observer);
    }
}

fn start(workers: usize) -> (TestServer, Arc<AtomicUsize>) {
    let clock = Arc::new(Clock::system());
    let drivers = Arc::new(AtomicUsize::new(0));
    let inner = ModelStore::new(Arc::clone(&clock), 1024 * 1024);
    let store = DeviceStore { inner, drivers: Arc::clone(&drivers) };
    let node = Arc::new(Node::new(NodeSettings::default(), clock, Authenticator::off()));
    let config = ServerConfig { workers, ..config() };
    let running =
        moneta_server::Server::start(&config, ByPolicy::same(store), Arc::clone(&node), Box::new(|| ())).unwrap();
    (TestServer { running, admin: None, node, gate: Default::default() }, drivers)
}

#[test]
fn one_read_after_the_other_ends() {
    let (server, _) = start(1);
    let mut client = server.connect();
    client.ask(set("key", b"value"), "STORED\r\n");
    for _ in 0..2_000 {
        client.ask("get key\r\n", hit("key", b"value"));
    }
}

#[test]
fn many_reads_of_many_connections_end_in_order() {
    let (server, drivers) = start(2);
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
    assert_eq!(drivers.load(Ordering::SeqCst), 2, "one for each worker");
}

#[test]
fn a_client_may_leave_while_the_device_works_and_a_stop_drops_the_drivers() {
    let (server, drivers) = start(2);
    for _ in 0..50 {
        server.connect().send(b"get key\r\n".repeat(20));
    }
    eventually("all are gone", || server.node.registry.totals().curr_connections == 0);
    let mut left = server.connect();
    left.send(b"get key\r\n".repeat(20));
    drop(server);
    assert_eq!(drivers.load(Ordering::SeqCst), 0);
}
