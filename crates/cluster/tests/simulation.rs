//! Proxies, nodes and clients, simulated: the shipped cluster code over links that delay, lose and cut off, on clocks that differ.
//! A seed repeats a run (`MONETA_SEED`), and taking out a guard makes some seed fail.

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use common::{SEED, memory, topology};
use fastrand::Rng;
use moneta_cluster::{Ack, Cluster, ClusterConfig, Connect, Node, Opened, Topology, Writer};
use moneta_memory::Memory;
use moneta_store::component::{self, Component, Flush, Health, Parts, Report};
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Calls, Clock, Cx, Deleted, ErrorKind, ItemRef, Key, KeyHash, Lookup, Number, Op, Origin, Outcome, OwnedKey,
    OwnedOp, Pending, Policy, Put, Reactors, Step, Store, StoreError, Unseen, Version, Visit, Written, steps,
};
use parking_lot::Mutex;

const START: u64 = 1_790_000_000_000;
const PROXIES: usize = 2;
const CLIENTS: usize = 6;
const NODES: usize = 2;
const STEPS: u64 = 3000;
/// How long nodes keep what was written, in milliseconds: longer than a message travels or a hint waits.
const KEPT: u64 = 1200;
/// How long a node that was killed is away, in steps.
const AWAY: u64 = 200;
/// How far clocks differ at most, in milliseconds, which are steps.
const SKEW: u64 = 200;

/// What the simulated links leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    /// Nothing: all guards are there.
    None,
    /// Writes arrive without the version that they were made from.
    Base,
    /// Writes that a node has missed are not delivered.
    Hints,
    /// Deletes arrive without leaving a tombstone: as of an ordinary memcached.
    Tombstones,
    /// Flushes arrive without staying a floor: what was written before and arrives later lives.
    Floors,
}

/// The links between all proxies and nodes.
struct Net {
    rng: Rng,
    step: u64,
    /// Futures that go on at a step.
    timers: Vec<(u64, Waker)>,
    /// Until which step a link is cut, by proxy and node.
    cut: HashMap<(usize, String), u64>,
    /// In a thousand messages, how many are lost on the way there, and how many answers.
    loss: u32,
    delay: u64,
    guard: Guard,
}

/// A node's process: a restart puts an empty one in its place.
type Process = Arc<Mutex<Arc<Memory>>>;

struct Link {
    net: Arc<Mutex<Net>>,
    proxy: usize,
    name: String,
    node: Process,
}

fn lost() -> StoreError {
    StoreError::new(ErrorKind::Timeout, "no answer in time")
}

/// Ends at a later step.
async fn travel(net: &Arc<Mutex<Net>>) {
    let due = {
        let mut net = net.lock();
        let delay = 1 + net.delay;
        let delay = if net.rng.u8(0..50) == 0 { delay * 20 } else { delay };
        net.step + net.rng.u64(0..delay)
    };
    poll_fn(|context| {
        let mut net = net.lock();
        if net.step >= due {
            return Poll::Ready(());
        }
        net.timers.push((due, context.waker().clone()));
        Poll::Pending
    })
    .await;
}

impl Link {
    /// Whether a message gets through now.
    fn passes(net: &Arc<Mutex<Net>>, proxy: usize, name: &str) -> bool {
        let mut net = net.lock();
        let (step, loss) = (net.step, net.loss);
        net.cut.get(&(proxy, name.to_owned())).is_none_or(|until| *until <= step) && net.rng.u32(0..1000) >= loss
    }

    fn exchange<T: 'static>(&self, act: impl FnOnce(&Memory) -> Result<T, StoreError> + 'static) -> Pending<T> {
        let (net, proxy, name, node) = (Arc::clone(&self.net), self.proxy, self.name.clone(), Arc::clone(&self.node));
        let process = Arc::clone(&node.lock());
        Box::pin(async move {
            travel(&net).await;
            if !Self::passes(&net, proxy, &name) {
                travel(&net).await;
                return Err(lost());
            }
            // A connection ends with the process that it was made to.
            if !Arc::ptr_eq(&process, &node.lock()) {
                return Err(lost());
            }
            let outcome = act(&process);
            travel(&net).await;
            if Self::passes(&net, proxy, &name) { outcome } else { Err(lost()) }
        })
    }
}

impl Store for Link {
    fn call(&self, _: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        let guard = self.net.lock().guard;
        let (key, mut op) = (OwnedKey::of(key), OwnedOp::of(op));
        match (&mut op, guard) {
            (OwnedOp::Put(_, Put::Newer { base, .. }), Guard::Base) => *base = None,
            (OwnedOp::Bury(_), Guard::Tombstones) => op = OwnedOp::Drop,
            _ => {}
        }
        let buries = matches!(op, OwnedOp::Drop);
        Step::Wait(self.exchange(move |node| {
            let ended = op.with(|op| steps::read_owned(node, &Cx::outside(), &key.key(), op)).now();
            if buries { ended.map(|_| Outcome::Deleted(Deleted::Deleted)) } else { ended }
        }))
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        SEED
    }
}

impl Component for Link {
    fn parts(&self) -> Parts<'_> {
        Parts { below: Vec::new(), walk: None, flush: Some(self), resize: None, observe: None, feed: None }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, _: Vec<Report>) -> Report {
        Report::default()
    }

    fn health(&self, _: Vec<Health>) -> Health {
        Health::default()
    }

    fn close(&self) {}
}

impl Flush for Link {
    fn flush(&self, _: &Cx, delay: Exptime) -> Step<()> {
        Step::Wait(self.exchange(move |node| component::flush(node, &Cx::outside(), delay).now()))
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, _: &Cx, floor: Floor) -> Step<()> {
        let keeps = self.net.lock().guard != Guard::Floors;
        Step::Wait(self.exchange(move |node| match keeps {
            true => component::floor(node, &Cx::outside(), floor).now(),
            false => {
                let keys = (0..CLIENTS).map(key_of).chain([COUNTER.to_owned()]);
                keys.for_each(|key| node.forget(&Key::new(key.as_bytes(), SEED)));
                Ok(())
            }
        }))
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn lag(&self) -> u32 {
        0
    }
}

struct Links {
    net: Arc<Mutex<Net>>,
    proxy: usize,
    nodes: HashMap<String, Process>,
}

impl Connect for Links {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        let name = node.address.to_string();
        let node = Arc::clone(self.nodes.get(&name).ok_or("no such node")?);
        let link: Arc<dyn Store> = Arc::new(Link { net: Arc::clone(&self.net), proxy: self.proxy, name, node });
        Ok(link.into())
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }
}

struct Proxy {
    cluster: Cluster,
    clock: Arc<Clock>,
    reactors: Rc<Reactors>,
}

/// What is known of a client's own key: each of these may be what it holds.
type Possible = Vec<Option<String>>;

/// What clients know.
#[derive(Default)]
struct Books {
    own: HashMap<usize, Possible>,
    /// Increments answered, and those whose outcome is unknown.
    counted: u64,
    unknown: u64,
    failures: Vec<String>,
    operations: u64,
    errors: u64,
    /// Clients end after what they have begun.
    over: bool,
    /// By client: the step at which the last change of its key began, and whether that has ended.
    changed: HashMap<usize, (u64, bool)>,
    /// The steps at which flushes began, and those at which they ended.
    flushes: Vec<(u64, Option<u64>)>,
}

impl Books {
    /// Whether a flush may have taken what was written by an operation that began at this step and has just ended.
    fn may_be_flushed(&self, began: u64) -> bool {
        self.flushes.iter().any(|(_, ended)| ended.is_none_or(|ended| began < ended + SKEW))
    }
}

struct World {
    net: Arc<Mutex<Net>>,
    nodes: Vec<(String, Process, Arc<Clock>)>,
    proxies: Vec<Rc<Proxy>>,
    /// Whether links are cut: then proxies may disagree about a key's home for a while.
    cuts: bool,
    /// Whether nodes evict items.
    evicts: bool,
    /// The zone whose nodes are killed and come back empty.
    restarts: Option<usize>,
    /// Whether proxies flush all nodes now and then.
    flushes: bool,
    books: Rc<std::cell::RefCell<Books>>,
}

fn key_of(client: usize) -> String {
    format!("own{client}")
}

const COUNTER: &str = "counter";

impl World {
    fn new(seed: u64, guard: Guard) -> Self {
        let mut rng = Rng::with_seed(seed);
        let topology: Topology = topology(NODES);
        let (loss, delay) = (if rng.bool() { 0 } else { rng.u32(0..40) }, rng.u64(0..12));
        let net = Net { rng: rng.fork(), step: 0, timers: Vec::new(), cut: HashMap::new(), loss, delay, guard };
        let net = Arc::new(Mutex::new(net));
        let skew = |rng: &mut Rng| START + rng.u64(0..SKEW);
        let clock = |rng: &mut Rng| {
            let clock = Arc::new(Clock::manual(0));
            clock.set_millis(skew(rng));
            clock
        };
        let mut nodes = Vec::new();
        for node in topology.replicas.iter().flat_map(|replica| &replica.nodes) {
            let clock = clock(&mut rng);
            let store = Arc::new(Mutex::new(Arc::new(memory(&clock, nodes.len() as u8, 64 << 20, 1 << 20))));
            // So that each can tell what was deleted.
            clock.advance_millis(1000);
            nodes.push((node.address.to_string(), store, clock));
        }
        let proxy = |number: usize, rng: &mut Rng| {
            let clock = clock(rng);
            clock.advance_millis(1000);
            let nodes = nodes.iter().map(|(name, store, _)| (name.clone(), Arc::clone(store))).collect();
            let links = Links { net: Arc::clone(&net), proxy: number, nodes };
            let config = ClusterConfig {
                ack: [Ack::Quorum, Ack::All][rng.usize(0..2)],
                zone: Some(["a", "b", "c"][number].into()),
                probe_min: std::time::Duration::from_millis(50),
                retry_budget: 100,
                allow_flush: true,
                ..ClusterConfig::new("app")
            };
            let writer = Writer { origin: Origin::new(1, number as u8), salt: seed ^ number as u64, seed: SEED };
            let cluster = Cluster::new(config, &topology, Box::new(links), writer, 1 << 20, Arc::clone(&clock))
                .expect("a cluster");
            let mut reactors = Reactors::default();
            component::attach(&cluster, &mut reactors);
            Rc::new(Proxy { cluster, clock, reactors: Rc::new(reactors) })
        };
        let proxies = (0..PROXIES).map(|number| proxy(number, &mut rng)).collect();
        let (cuts, evicts) = (rng.bool(), rng.u8(0..3) == 0);
        let restarts = (rng.u8(0..3) == 0).then(|| rng.usize(0..3));
        // Apart from the other choices, so that a seed stays the run that it was.
        let flushes = Rng::with_seed(seed ^ 0xf1).u8(0..4) == 0 && !MENDED.contains(&seed);
        Self { net, nodes, proxies, cuts, evicts, restarts, flushes, books: Rc::default() }
    }
}

/// One client, of nodes that may lose items: it changes and reads a key that no other client changes, and adds to a counter that all do.
async fn client(
    number: usize,
    loses: bool,
    proxy: Rc<Proxy>,
    mut rng: Rng,
    net: Arc<Mutex<Net>>,
    books: Rc<std::cell::RefCell<Books>>,
) {
    let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
    let (own, counter) = (key_of(number), Key::new(COUNTER.as_bytes(), SEED));
    let own = Key::new(own.as_bytes(), SEED);
    let store = &proxy.cluster;
    for round in 0.. {
        if books.borrow().over {
            return;
        }
        // What fails at once takes time, too.
        travel(&net).await;
        books.borrow_mut().operations += 1;
        let possible = books.borrow().own.get(&number).cloned().unwrap_or_else(|| vec![None]);
        let began = net.lock().step;
        let note = |mut now: Possible| {
            let mut books = books.borrow_mut();
            if books.may_be_flushed(began) {
                now.push(None);
            }
            now.sort();
            now.dedup();
            books.own.insert(number, now);
            books.changed.insert(number, (began, true));
        };
        // What a flush has taken meanwhile is missing.
        let may_be_missing =
            |possible: &Possible| loses || possible.contains(&None) || books.borrow().may_be_flushed(began);
        let choice = rng.u8(0..13);
        if choice < 5 {
            books.borrow_mut().changed.insert(number, (began, false));
        }
        match choice {
            0..3 => {
                let value = format!("{number}.{round}");
                let request = Write::default();
                let op = Op::Write(value.as_bytes(), &request);
                match steps::finish(store.call(&cx, &own, op, &mut Unseen)).await {
                    Ok(Outcome::Written(Written::Stored { .. })) => note(vec![Some(value)]),
                    Ok(other) => panic!("a set ended as {other:?}"),
                    Err(_) => note([possible, vec![Some(value)]].concat()),
                }
            }
            3 if possible.len() < 20 => {
                let request = Write { mode: moneta_store::request::WriteMode::Append, ..Write::default() };
                let op = Op::Write(b"+", &request);
                let appended = possible.iter().flatten().map(|value| Some(format!("{value}+"))).collect::<Vec<_>>();
                match steps::finish(store.call(&cx, &own, op, &mut Unseen)).await {
                    Ok(Outcome::Written(Written::Stored { .. })) => note(appended),
                    // A set of unknown outcome may still take effect.
                    Ok(_) if may_be_missing(&possible) => {
                        books.borrow_mut().changed.insert(number, (began, true)).map_or((), |_| ())
                    }
                    Ok(other) => panic!("an append to one of {possible:?} ended as {other:?}"),
                    Err(_) => note([possible, appended].concat()),
                }
            }
            4 => match steps::finish(store.call(&cx, &own, Op::Delete(&Delete::default()), &mut Unseen)).await {
                Ok(_) => note(vec![None]),
                Err(_) => note([possible, vec![None]].concat()),
            },
            5..9 => {
                let request = Retrieve::default();
                match steps::finish(store.call(&cx, &own, Op::Read(&request), &mut Unseen)).await {
                    Ok(Outcome::Read(Lookup::Found(item))) => {
                        let value = Some(String::from_utf8_lossy(&item.value).into_owned());
                        if !possible.contains(&value) {
                            let text = format!("own{number} shows {value:?} and may be one of {possible:?}");
                            books.borrow_mut().failures.push(text);
                        }
                    }
                    Ok(_) if !may_be_missing(&possible) => {
                        let text = format!("own{number} is missing and may be one of {possible:?}");
                        books.borrow_mut().failures.push(text);
                    }
                    Ok(_) => {}
                    Err(_) => books.borrow_mut().errors += 1,
                }
            }
            9 => {
                // What a proxy reads that did not write it: that fills its near copies, too.
                let other = key_of(rng.usize(0..CLIENTS));
                let other = Key::new(other.as_bytes(), SEED);
                let _ = steps::finish(store.call(&cx, &other, Op::Read(&Retrieve::default()), &mut Unseen)).await;
            }
            _ => {
                let create = Some(moneta_store::request::Create { initial: 1, exptime: Exptime::NEVER });
                let request = Arithmetic { delta: 1, create, ..Arithmetic::default() };
                match steps::finish(store.call(&cx, &counter, Op::Arithmetic(&request), &mut Unseen)).await {
                    Ok(Outcome::Number(Number::Value { .. })) => books.borrow_mut().counted += 1,
                    Ok(other) => panic!("an increment ended as {other:?}"),
                    Err(_) => books.borrow_mut().unknown += 1,
                }
            }
        }
    }
}

/// Flushes all nodes through one proxy or another now and then. What was written long enough before is gone then.
async fn flusher(proxies: Vec<Rc<Proxy>>, mut rng: Rng, net: Arc<Mutex<Net>>, books: Rc<std::cell::RefCell<Books>>) {
    loop {
        for _ in 0..rng.u32(50..200) {
            travel(&net).await;
        }
        if books.borrow().over {
            return;
        }
        let proxy = &proxies[rng.usize(0..proxies.len())];
        let cx = Cx::of_worker(Policy::Online, &proxy.reactors);
        let began = net.lock().step;
        let flush = {
            let mut books = books.borrow_mut();
            books.flushes.push((began, None));
            books
                .own
                .values_mut()
                .filter(|possible| !possible.contains(&None))
                .for_each(|possible| possible.push(None));
            books.flushes.len() - 1
        };
        let ended = steps::finish(component::flush(&proxy.cluster, &cx, Exptime::NEVER)).await;
        let books = &mut *books.borrow_mut();
        books.flushes[flush].1 = Some(net.lock().step);
        if ended.is_ok() {
            let is_before = |(at, ended): (u64, bool)| ended && at + SKEW < began;
            let gone = books.changed.iter().filter(|(_, changed)| is_before(**changed)).map(|(client, _)| *client);
            books.own.extend(gone.map(|client| (client, vec![None])));
        }
    }
}

/// Wakes by a flag.
struct Flag(std::sync::atomic::AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

type Running = (std::pin::Pin<Box<dyn Future<Output = ()>>>, Arc<Flag>);

fn running(future: impl Future<Output = ()> + 'static) -> Running {
    (Box::pin(future), Arc::new(Flag(true.into())))
}

impl World {
    /// Polls what was woken; true for each future that has ended.
    fn poll(running: &mut Running) -> bool {
        if !running.1.0.swap(false, std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&running.1));
        running.0.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn step(&self) {
        let woken: Vec<Waker> = {
            let mut net = self.net.lock();
            net.step += 1;
            let step = net.step;
            let (woken, later) = std::mem::take(&mut net.timers).into_iter().partition(|(due, _)| *due <= step);
            net.timers = later;
            let woken: Vec<(u64, Waker)> = woken;
            woken.into_iter().map(|(_, waker)| waker).collect()
        };
        woken.into_iter().for_each(Waker::wake);
        self.proxies.iter().for_each(|proxy| proxy.reactors.turn());
        self.nodes.iter().for_each(|(_, _, clock)| clock.advance_millis(1));
        self.proxies.iter().for_each(|proxy| proxy.clock.advance_millis(1));
    }

    fn maintenance(&self) -> Vec<Running> {
        let skips = self.net.lock().guard == Guard::Hints;
        let each = self.proxies.iter().filter(|_| !skips).map(|proxy| {
            let proxy = Rc::clone(proxy);
            running(async move { proxy.cluster.maintain().await })
        });
        each.collect()
    }

    /// Runs the clients through a bad time, then lets everything come to rest.
    fn run(&self, seed: u64) {
        let mut rng = Rng::with_seed(seed ^ 0x5eed);
        let mut clients: Vec<Running> = (0..CLIENTS)
            .map(|number| {
                let proxy = Rc::clone(&self.proxies[number % PROXIES]);
                running(client(number, self.loses(), proxy, rng.fork(), Arc::clone(&self.net), Rc::clone(&self.books)))
            })
            .collect();
        if self.flushes {
            let rng = Rng::with_seed(seed ^ 0xf1f1);
            let flusher = flusher(self.proxies.clone(), rng, Arc::clone(&self.net), Rc::clone(&self.books));
            clients.push(running(flusher));
        }
        let mut maintenance = self.maintenance();
        let (mut until, mut away) = (STEPS, None);
        let mut step = 0;
        while step < until {
            step += 1;
            self.step();
            if let Some((_, number)) = away.take_if(|(until, _)| *until <= step) {
                self.start_empty(number);
            }
            clients.retain_mut(|client| !Self::poll(client));
            if step < STEPS {
                if self.cuts && rng.u8(0..120) == 0 {
                    self.cut_some(&mut rng);
                }
                if self.evicts && rng.u8(0..40) == 0 {
                    self.evict_one(&mut rng);
                }
                if let Some(zone) = self.restarts
                    && away.is_none()
                    && rng.u32(0..600) == 0
                {
                    away = Some((step + AWAY, self.kill_one(zone, &mut rng)));
                }
            } else if step == STEPS {
                self.books.borrow_mut().over = true;
                let mut net = self.net.lock();
                (net.loss, net.cut) = (0, HashMap::new());
                drop(net);
                until += 5000;
            }
            maintenance.retain_mut(|round| !Self::poll(round));
            if maintenance.is_empty() && step % 20 == 0 {
                maintenance = self.maintenance();
            }
        }
    }

    /// Cuts a link, a node or a zone off for a while.
    fn cut_some(&self, rng: &mut Rng) {
        let net = &mut *self.net.lock();
        let until = net.step + rng.u64(10..400);
        let node = self.nodes[rng.usize(0..self.nodes.len())].0.clone();
        let proxies = if rng.bool() {
            0..PROXIES
        } else {
            let one = rng.usize(0..PROXIES);
            one..one + 1
        };
        for proxy in proxies {
            net.cut.insert((proxy, node.clone()), until);
        }
    }

    /// Whether nodes lose items that no client deleted.
    fn loses(&self) -> bool {
        self.evicts || self.restarts.is_some()
    }

    /// A node loses a client's key, for want of room. What was just written is not what goes.
    fn evict_one(&self, rng: &mut Rng) {
        let (_, process, clock) = &self.nodes[rng.usize(0..self.nodes.len())];
        let (node, key) = (Arc::clone(&process.lock()), key_of(rng.usize(0..CLIENTS)));
        let is_old = |version: u64| Version(version).millis() + KEPT < clock.millis();
        if self.held(&node, &key).is_some_and(|(version, _)| is_old(version)) {
            node.forget(&Key::new(key.as_bytes(), SEED));
        }
    }

    /// A node of the zone is killed. It comes back empty, and not at once.
    fn kill_one(&self, zone: usize, rng: &mut Rng) -> usize {
        let number = zone * NODES + rng.usize(0..NODES);
        let net = &mut *self.net.lock();
        for proxy in 0..PROXIES {
            net.cut.insert((proxy, self.nodes[number].0.clone()), net.step + AWAY);
        }
        number
    }

    fn start_empty(&self, number: usize) {
        let (_, process, clock) = &self.nodes[number];
        *process.lock() = Arc::new(memory(clock, number as u8, 64 << 20, 1 << 20));
    }

    /// What a node holds of a key.
    fn held(&self, node: &Memory, key: &str) -> Option<(u64, String)> {
        let (key, mut seen) = (Key::new(key.as_bytes(), SEED), None);
        let mut see = |item: &ItemRef<'_>| {
            seen = Some((item.meta.cas, String::from_utf8_lossy(&item.value.to_vec()).into_owned()));
        };
        let _ = node.peek(&key, &mut see).now();
        seen
    }

    /// All that is wrong once everything is at rest.
    fn check(&self) -> Vec<String> {
        // Cut off, a proxy that has given a node up may decide elsewhere than others: docs/cluster.md says what that costs.
        let mut wrong = if self.cuts { Vec::new() } else { self.books.borrow().failures.clone() };
        let books = self.books.borrow();
        let keys = (0..CLIENTS).map(key_of).chain([COUNTER.to_owned()]);
        for key in keys {
            let held: Vec<_> = self.nodes.iter().filter_map(|(_, node, _)| self.held(&node.lock(), &key)).collect();
            if held.iter().any(|one| *one != held[0]) {
                wrong.push(format!("{key} differs: {held:?}"));
            }
            // Where its last change was answered, it is known what a key holds, and all copies hold that.
            let client = key.strip_prefix("own").and_then(|number| number.parse::<usize>().ok());
            if let Some([possible]) = client.and_then(|client| books.own.get(&client)).map(Vec::as_slice) {
                let copies = if possible.is_some() { 3 } else { 0 };
                let lacks = held.len() < copies && !self.loses();
                if lacks || held.len() > copies || held.iter().any(|(_, value)| Some(value) != possible.as_ref()) {
                    wrong.push(format!("{key} is {possible:?}, and copies hold {held:?}"));
                }
            }
            let value = held.iter().max().map(|(_, value)| value.clone());
            if key == COUNTER {
                let number: u64 = value.map_or(0, |value| value.trim().parse().expect("a number"));
                let (counted, unknown) = (books.counted, books.unknown);
                if !self.cuts
                    && !self.flushes
                    && self.restarts.is_none()
                    && (number < counted || number > counted + unknown)
                {
                    wrong
                        .push(format!("the counter is {number} after {counted} increments and {unknown} unknown ones"));
                }
            }
        }
        wrong
    }
}

fn wrong_in(seed: u64, guard: Guard) -> Vec<String> {
    let world = World::new(seed, guard);
    world.run(seed);
    let wrong = world.check();
    let books = world.books.borrow();
    assert!(books.operations > 100, "{} operations", books.operations);
    wrong
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_123u64);
    first..first + count
}

/// Seeds that have shown a fault.
const MENDED: [u64; 4] = [
    // A delete that a copy missed was forgotten when it missed a set behind it, which no copy took: an append found what was deleted.
    2306,
    // A read filled an old item into a copy that had just come back empty, which then was a witness for it; the copy that knew better was asked last.
    4894, // A copy that had just come back empty took a late write that others had something newer for.
    1_002_619,
    // While other nodes came and went, early probes that failed made the pauses of one that was away longer and longer.
    2_011_549,
];

#[test]
fn copies_converge_and_clients_read_what_they_wrote() {
    for seed in MENDED.into_iter().chain(seeds(300)) {
        let wrong = wrong_in(seed, Guard::None);
        assert!(wrong.is_empty(), "MONETA_SEED={seed}: {wrong:#?}");
    }
}

#[test]
fn without_any_of_the_guards_some_seed_fails() {
    for guard in [Guard::Base, Guard::Hints, Guard::Tombstones, Guard::Floors] {
        assert!(seeds(300).any(|seed| !wrong_in(seed, guard).is_empty()), "nothing fails without {guard:?}");
    }
}
