//! Many proxies that have hints for one node, all at once: what they give it at a time is bounded, so that it goes on to answer
//! others.

mod common;

use std::collections::VecDeque;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use common::{Nodes, SEED, memory, topology};
use futures_util::future::join_all;
use moneta_cluster::{Cluster, ClusterConfig, Connect, Node, Opened, Writer};
use moneta_store::component::{Health, Report};
use moneta_store::request::{Retrieve, Write};
use moneta_store::steps::{finish, read_owned, start_operation};
use moneta_store::{
    Clock, Component, Cx, ErrorKind, Key, KeyHash, Lookup, Op, Origin, Outcome, OwnedKey, OwnedOp, Parts, Reactors,
    ReadSeveral, Step, Store, StoreError, Unseen, Visit,
};
use parking_lot::Mutex;

const PROXIES: usize = 100;
/// Keys that each proxy writes while the node is away.
const KEYS: usize = 150;
/// Requests that the node answers at a time.
const SPEED: usize = 200;
/// Hints in a second; a tenth of that in a round.
const RATE: u32 = 500;
/// Hints that a proxy has under way, at most.
const AT_ONCE: usize = 32;

/// Whether a request has had its turn, and what waits for that.
type Turn = Mutex<(bool, Option<Waker>)>;

/// The node that was away: it answers so many requests at a time, in the order in which they came.
struct Busy {
    store: Arc<dyn Store>,
    is_away: AtomicBool,
    queue: Mutex<VecDeque<Arc<Turn>>>,
    longest: AtomicU64,
    writes: AtomicU64,
}

impl Busy {
    fn answer_some(&self) {
        let mut queue = self.queue.lock();
        let some = queue.len().min(SPEED);
        for turn in queue.drain(..some) {
            let mut turn = turn.lock();
            turn.0 = true;
            turn.1.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// The same for all proxies.
struct ClusterShared(Arc<Busy>);

impl Store for ClusterShared {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        let busy = &self.0;
        if busy.is_away.load(Ordering::Relaxed) {
            return Step::Done(Err(StoreError::new(ErrorKind::Unreachable, "away")));
        }
        busy.writes.fetch_add(u64::from(matches!(op, Op::Put(..))), Ordering::Relaxed);
        let turn = Arc::<Turn>::default();
        let length = {
            let mut queue = busy.queue.lock();
            queue.push_back(Arc::clone(&turn));
            queue.len() as u64
        };
        busy.longest.fetch_max(length, Ordering::Relaxed);
        let (store, cx, key, op) = (Arc::clone(&busy.store), cx.clone(), OwnedKey::of(key), OwnedOp::of(op));
        start_operation(async move {
            poll_fn(|context| {
                let mut turn = turn.lock();
                turn.1 = Some(context.waker().clone());
                if turn.0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            finish(op.with(|op| read_owned(&*store, &cx, &key.key(), op))).await
        })
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.0.store.seed()
    }
}

impl Component for ClusterShared {
    fn parts(&self) -> Parts<'_> {
        self.0.store.parts()
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, cx: &Cx, below: Vec<Report>) -> Report {
        self.0.store.report(cx, below)
    }

    fn health(&self, below: Vec<Health>) -> Health {
        self.0.store.health(below)
    }

    fn close(&self) {}
}

#[derive(Clone)]
struct Fleet(Nodes, Arc<Busy>);

impl Connect for Fleet {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        match node.address.to_string().as_str() {
            "c0:11211" => Ok(Opened::from(Arc::new(ClusterShared(Arc::clone(&self.1))) as Arc<dyn Store>)),
            _ => self.0.open(node),
        }
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }
}

/// Whether something is to be polled again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Turns `all` to its end, with the node at work whenever there is nothing else to do.
fn run<T>(busy: &Busy, all: impl Future<Output = T>) -> T {
    let mut all = pin!(all);
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    for _ in 0..1_000_000 {
        if !woken.0.swap(false, Ordering::Relaxed) {
            busy.answer_some();
            continue;
        }
        if let Poll::Ready(ended) = all.as_mut().poll(&mut Context::from_waker(&waker)) {
            return ended;
        }
    }
    panic!("it never ends");
}

async fn set(proxy: &Cluster, key: &str) -> Result<Outcome, StoreError> {
    let key = Key::new(key.as_bytes(), SEED);
    finish(proxy.call(&Cx::outside(), &key, Op::Write(b"value", &Write::default()), &mut Unseen)).await
}

#[test]
fn a_hundred_proxies_that_deliver_at_once_do_not_sink_the_node() {
    let clock = Arc::new(Clock::manual(1_790_000_000));
    let (nodes, topology) = (Nodes::default(), topology(1));
    let store = |zone: u8| Arc::new(memory(&clock, zone, 64 << 20, 1 << 20));
    for (zone, replica) in (0..).zip(&topology.replicas) {
        nodes.put(&replica.nodes[0], store(zone));
    }
    let (is_away, queue) = (AtomicBool::new(false), Mutex::default());
    let (longest, writes) = (AtomicU64::new(0), AtomicU64::new(0));
    let busy = Arc::new(Busy { store: store(3), is_away, queue, longest, writes });
    let fleet = Fleet(nodes, Arc::clone(&busy));
    let proxies: Vec<Cluster> = (0..=PROXIES)
        .map(|number| {
            let writer = Writer { origin: Origin::new(1, number as u8), salt: number as u64, seed: SEED };
            let zone = Some("c".to_owned());
            let config = ClusterConfig { hint_rate: RATE, zone, ..ClusterConfig::new("app") };
            Cluster::new(config, &topology, Box::new(fleet.clone()), writer, 1 << 20, Arc::clone(&clock)).unwrap()
        })
        .collect();
    let (reader, proxies) = proxies.split_last().expect("more than one");
    run(&busy, set(reader, "known")).expect("it is stored");
    busy.is_away.store(true, Ordering::Relaxed);
    for (number, proxy) in proxies.iter().enumerate() {
        for key in 0..KEYS {
            run(&busy, set(proxy, &format!("{number}:{key}"))).expect("two copies take it");
        }
    }
    let hints = || proxies.iter().map(|proxy| proxy.status().nodes[2].hints).sum::<u64>();
    assert_eq!(hints(), (PROXIES * KEYS) as u64);

    busy.is_away.store(false, Ordering::Relaxed);
    let mut rounds = 0;
    while hints() > 0 {
        clock.advance_millis(2_000);
        let before = busy.writes.load(Ordering::Relaxed);
        let round = join_all(proxies.iter().map(|proxy| proxy.maintain()));
        // A client of another proxy reads from the node meanwhile.
        let read = async {
            let key = Key::new(b"known", SEED);
            let request = Retrieve::default();
            finish(read_owned(reader, &Cx::outside(), &key, Op::Read(&request))).await
        };
        let read = run(&busy, async { futures_util::future::join(round, read).await.1 });
        assert!(matches!(read, Ok(Outcome::Read(Lookup::Found(_)))), "{read:?}");
        let given = busy.writes.load(Ordering::Relaxed) - before;
        assert!(given <= u64::from(RATE / 10) * PROXIES as u64, "{given} hints in a tenth of a second");
        rounds += 1;
        assert!(rounds < 1_000, "{} hints are left", hints());
    }
    // Beside the one that reads.
    let longest = busy.longest.load(Ordering::Relaxed);
    assert!(longest <= (PROXIES * AT_ONCE + 1) as u64, "{longest} requests waited at once");
    assert!(longest > (PROXIES * AT_ONCE / 2) as u64, "they did not deliver at once: {longest}");
    assert_eq!(busy.writes.load(Ordering::Relaxed), (PROXIES * KEYS) as u64 + 1, "each hint once");
}
