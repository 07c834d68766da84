//! What a node that has just started is given. It has lost what it was told before, so it must not create what was read elsewhere
//! before that, and a write that it does not create must not be forgotten: else it shows what is old for as long as that lives.

mod common;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use common::{Nodes, SEED, cluster, memory, topology};
use moneta_cluster::{Ack, Cluster, ClusterConfig};
use moneta_memory::Memory;
use moneta_store::request::{Retrieve, Write, WriteMode};
use moneta_store::{
    Calls, Clock, Cx, ErrorKind, Item, Key, Lookup, Op, Outcome, Step, Store, StoreError, Unseen, Visit, Written, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use parking_lot::Mutex;
use pollster::block_on;

/// By how much a proxy's clock is ahead of the nodes', or behind them, in milliseconds.
const APART: u64 = 100;

type Event = Box<dyn FnOnce() + Send>;

/// A node in RAM that can be started anew. Clones are the same.
#[derive(Clone)]
struct Process(Arc<ProcessState>);

struct ProcessState {
    /// Tells what such a node can do.
    like: Memory,
    running: Mutex<Arc<Memory>>,
    clock: Arc<Clock>,
    is_away: AtomicBool,
    /// It answers after all others.
    is_late: AtomicBool,
    /// What happens once it has answered a read, before that answer is there.
    behind_read: Mutex<Option<Event>>,
}

impl Double for Process {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.0.like
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        if self.0.is_away.load(Ordering::Relaxed) {
            return Step::Done(Err(StoreError::new(ErrorKind::Unreachable, "away")));
        }
        if self.0.is_late.load(Ordering::Relaxed) {
            let step = steps::read_owned(&*self.running(), cx, key, op);
            return Step::Wait(Box::pin(async {
                yield_now().await;
                steps::finish(step).await
            }));
        }
        let is_read = matches!(op, Op::Peek | Op::Read(_));
        let answer = self.running().call(cx, key, op, out);
        let event = if is_read { self.0.behind_read.lock().take() } else { None };
        event.into_iter().for_each(|event| event());
        answer
    }
}

impl Process {
    fn new(clock: &Arc<Clock>) -> Self {
        let start = || memory(clock, 1, 16 << 20, 1 << 20);
        Self(Arc::new(ProcessState {
            like: start(),
            running: Mutex::new(Arc::new(start())),
            clock: Arc::clone(clock),
            is_away: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            behind_read: Mutex::default(),
        }))
    }

    fn running(&self) -> Arc<Memory> {
        Arc::clone(&self.0.running.lock())
    }

    /// Its process ends, and an empty one is there at once.
    fn starts(&self) {
        *self.0.running.lock() = Arc::new(memory(&self.0.clock, 1, 16 << 20, 1 << 20));
    }

    fn goes(&self, is_away: bool) {
        self.0.is_away.store(is_away, Ordering::Relaxed);
    }

    fn once_it_has_read(&self, event: impl FnOnce() + Send + 'static) {
        *self.0.behind_read.lock() = Some(Box::new(event));
    }

    fn item(&self) -> Option<Item> {
        match block_on(steps::finish(steps::read_owned(&*self.running(), &Cx::outside(), &key(), Op::Peek))) {
            Ok(Outcome::Read(Lookup::Found(item))) => Some(item),
            _ => None,
        }
    }

    fn value(&self) -> Option<String> {
        self.item().map(|item| String::from_utf8_lossy(&item.value).into_owned())
    }
}

fn key() -> Key<'static> {
    Key::new(b"key", SEED)
}

/// Three copies of a node each, and proxies with clocks of their own.
struct World {
    nodes: Nodes,
    stores: [Process; 3],
    clocks: Vec<Arc<Clock>>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let (nodes, stores) = (Nodes::default(), [(); 3].map(|()| Process::new(&clock)));
        for (node, store) in topology(1).nodes().zip(&stores) {
            nodes.put(node, Arc::new(Layer(store.clone())));
        }
        Self { nodes, stores, clocks: vec![clock] }
    }

    /// A proxy in zone c, with a clock that is so far ahead of the nodes'.
    fn proxy(&mut self, ack: Ack, ahead: i64) -> Arc<Cluster> {
        let clock = Arc::new(Clock::manual(0));
        clock.set_millis(self.clocks[0].millis().saturating_add_signed(ahead));
        self.clocks.push(Arc::clone(&clock));
        let config = ClusterConfig { ack, zone: Some("c".into()), retry_budget: 100, ..ClusterConfig::new("app") };
        Arc::new(cluster(config, &topology(1), &self.nodes, self.clocks.len() as u8, &clock))
    }

    fn pass(&self, millis: u64) {
        self.clocks.iter().for_each(|clock| clock.advance_millis(millis));
    }

    /// Everything comes to rest.
    fn rest(&self, proxy: &Cluster) {
        for _ in 0..30 {
            self.pass(100);
            block_on(proxy.maintain());
        }
    }
}

fn set(proxy: &Cluster, value: &[u8]) {
    let write = Write::default();
    let step = proxy.call(&Cx::outside(), &key(), Op::Write(value, &write), &mut Unseen);
    block_on(steps::finish(step)).expect("enough copies take it");
}

/// Appends to the value. False: the home is away.
fn append(proxy: &Cluster, appended: &[u8]) -> bool {
    let write = Write { mode: WriteMode::Append, ..Write::default() };
    let step = proxy.call(&Cx::outside(), &key(), Op::Write(appended, &write), &mut Unseen);
    matches!(block_on(steps::finish(step)), Ok(Outcome::Written(Written::Stored { .. })))
}

/// Ends when it is polled again.
async fn yield_now() {
    let mut is_later = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_later, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn hints(proxy: &Cluster) -> Vec<u64> {
    proxy.status().nodes.iter().map(|node| node.hints).collect()
}

#[test]
fn a_hint_is_not_delivered_with_what_was_read_before_the_node_started() {
    let mut world = World::new();
    let (ahead, other) = (world.proxy(Ack::Quorum, APART.cast_signed()), world.proxy(Ack::All, 0));
    world.pass(2000);
    let [_, source, node] = world.stores.clone();
    node.goes(true);
    set(&ahead, b"old");
    node.goes(false);
    world.pass(1000);
    let starting = node.clone();
    source.once_it_has_read(move || {
        set(&other, b"new");
        starting.starts();
    });
    block_on(ahead.maintain());
    assert_eq!(node.value(), None);
    world.rest(&ahead);
    assert_eq!((node.value().as_deref(), hints(&ahead)), (Some("new"), vec![0; 3]));
}

#[test]
fn a_read_does_not_fill_a_node_with_what_was_read_before_it_started() {
    let mut world = World::new();
    let (ahead, other) = (world.proxy(Ack::Quorum, APART.cast_signed()), world.proxy(Ack::Quorum, 0));
    world.pass(2000);
    let [source, witness, node] = world.stores.clone();
    set(&ahead, b"old");
    world.pass(1000);
    node.running().forget(&key());
    witness.goes(true);
    let starting = node.clone();
    source.once_it_has_read(move || {
        set(&other, b"new");
        starting.starts();
    });
    let read = ahead.call(&Cx::outside(), &key(), Op::Read(&Retrieve::default()), &mut Unseen);
    block_on(steps::finish(read)).expect("a copy answers");
    assert_eq!((source.value().as_deref(), node.value()), (Some("new"), None));
}

#[test]
fn a_write_that_a_node_does_not_create_is_delivered_later() {
    for ack in [Ack::Quorum, Ack::None] {
        let mut world = World::new();
        let (behind, other) = (world.proxy(ack, -APART.cast_signed()), world.proxy(Ack::All, 0));
        world.pass(2000);
        let [source, _, node] = world.stores.clone();
        set(&other, b"old");
        world.pass(1000);
        let old = source.item().expect("it was set");
        node.starts();
        set(&behind, b"new");
        assert_eq!((source.value().as_deref(), node.value()), (Some("new"), None), "its clock is behind");
        // Another proxy has read this before, by a clock that is ahead.
        let filled = node.running().put_newer(&key(), &old.as_ref(), world.clocks[0].millis() + APART);
        assert!(filled.now().is_ok());
        assert_eq!((node.value().as_deref(), hints(&behind)), (Some("old"), vec![0, 0, 1]));
        world.rest(&behind);
        assert_eq!((node.value().as_deref(), hints(&behind)), (Some("new"), vec![0; 3]));
    }
}

#[test]
fn a_change_is_not_made_from_less_than_what_its_proxy_has_had_answered() {
    let mut tried = 0;
    for (started, lacks) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let mut world = World::new();
        let proxy = world.proxy(Ack::Quorum, 0);
        world.pass(2000);
        set(&proxy, b"a");
        world.stores[lacks].goes(true);
        // Only what is not the home may lack a change.
        if !append(&proxy, b"b") {
            continue;
        }
        tried += 1;
        world.stores[lacks].goes(false);
        world.stores[started].starts();
        let last = &world.stores[3 - started - lacks];
        last.0.is_late.store(true, Ordering::Relaxed);
        assert!(append(&proxy, b"c"));
        assert_eq!(last.value().as_deref(), Some("abc"), "{started} started anew, {lacks} lacks the first change");
    }
    assert_eq!(tried, 4);
}
