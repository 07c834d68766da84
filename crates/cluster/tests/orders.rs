//! Writes of one key through several proxies: what has taken effect is not made again above what came after it, and no proxy
//! drives the clocks of others.

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use common::{SEED, memory, topology};
use moneta_cluster::{Ack, Cluster, ClusterConfig, Connect, Node, Opened, Writer};
use moneta_memory::Memory;
use moneta_store::request::{Arithmetic, Create, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{
    Calls, Clock, Cx, Deleted, ErrorKind, ItemRef, Key, Lookup, Number, Op, Origin, Outcome, OwnedKey, OwnedOp,
    Pending, Put, Step, Store, StoreError, Unseen, Version, Visit, Written, steps,
};
use moneta_testkit::doubles::{Double, Layer};

const NOW: u32 = 1_790_000_000;

/// The way from one proxy to one node. What is sent while it is held arrives when it is let go; while it is cut, never. While it
/// is late, that arrives, and the answers come when it is late no more.
#[derive(Clone)]
struct Link(Arc<Way>);

struct Way {
    node: Arc<Memory>,
    is_held: AtomicBool,
    is_cut: AtomicBool,
    is_late: AtomicBool,
}

impl Double for Link {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.0.node
    }

    fn call(&self, _: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        if self.0.is_cut.load(Relaxed) {
            return Step::Done(Err(StoreError::new(ErrorKind::Timeout, "cut")));
        }
        if self.0.is_late.load(Relaxed) {
            let (link, step) = (self.clone(), steps::read_owned(&*self.0.node, &Cx::outside(), key, op));
            let mut ended = Some(step.now());
            return Step::Wait(Box::pin(std::future::poll_fn(move |_| match link.0.is_late.load(Relaxed) {
                true => Poll::Pending,
                false => Poll::Ready(ended.take().expect("it is polled until it ends")),
            })));
        }
        let (link, key, op) = (self.clone(), OwnedKey::of(key), OwnedOp::of(op));
        Step::Wait(Box::pin(std::future::poll_fn(move |_| match link.0.is_held.load(Relaxed) {
            true => Poll::Pending,
            false => {
                let step = op.with(|op| steps::read_owned(&*link.0.node, &Cx::outside(), &key.key(), op));
                Poll::Ready(step.now())
            }
        })))
    }
}

impl Link {
    fn hold(&self, is_held: bool) {
        self.0.is_held.store(is_held, Relaxed);
    }
}

struct Links(HashMap<String, Link>);

impl Connect for Links {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        let store: Arc<dyn Store> = Arc::new(Layer(self.0[&node.address.to_string()].clone()));
        Ok(store.into())
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }
}

/// A proxy, with the ways to each of the three nodes.
struct Proxy {
    cluster: Cluster,
    links: Vec<Link>,
}

/// Three copies of one node each.
struct Copies {
    clock: Arc<Clock>,
    nodes: Vec<Arc<Memory>>,
}

impl Copies {
    fn new() -> Self {
        let clock = Arc::new(Clock::manual(NOW));
        let nodes = (0..3).map(|writer| Arc::new(memory(&clock, writer, 64 << 20, 1 << 20))).collect();
        // Nodes that have just started cannot tell what was deleted.
        clock.advance(2);
        Self { clock, nodes }
    }

    /// One more proxy, of this writer id, whose clock is so many milliseconds ahead.
    fn proxy(&self, number: u64, writer: u8) -> Proxy {
        self.proxy_of(ClusterConfig::new("app"), number, writer)
    }

    fn proxy_of(&self, config: ClusterConfig, number: u64, writer: u8) -> Proxy {
        let topology = topology(1);
        let way = |node| Way {
            node: Arc::clone(node),
            is_held: AtomicBool::default(),
            is_cut: AtomicBool::default(),
            is_late: AtomicBool::default(),
        };
        let links: Vec<Link> = self.nodes.iter().map(|node| Link(Arc::new(way(node)))).collect();
        let by_name = topology.nodes().zip(&links).map(|(node, link)| (node.address.to_string(), link.clone()));
        let connect = Links(by_name.collect());
        let writer = Writer { origin: Origin::new(0, writer), salt: number.wrapping_mul(0x9e37_79b9), seed: SEED };
        let cluster = Cluster::new(config, &topology, Box::new(connect), writer, 1 << 20, Arc::clone(&self.clock));
        Proxy { cluster: cluster.expect("a cluster"), links }
    }

    fn held(&self, key: &Key<'_>) -> Vec<Option<(String, Version)>> {
        let held = |node: &Arc<Memory>| {
            let mut seen = None;
            let mut see = |item: &ItemRef<'_>| {
                seen = Some((String::from_utf8_lossy(&item.value.to_vec()).into_owned(), item.meta.version()));
            };
            let _ = node.peek(key, &mut see).now();
            seen
        };
        self.nodes.iter().map(held).collect()
    }
}

impl Proxy {
    fn begin(&self, key: &Key<'_>, op: Op<'_>) -> Pending {
        steps::into_pending(self.cluster.call(&Cx::outside(), key, op, &mut Unseen))
    }

    fn call(&self, key: &Key<'_>, op: Op<'_>) -> Outcome {
        pollster::block_on(self.begin(key, op)).expect("an answer")
    }

    fn set(&self, key: &Key<'_>, value: &[u8]) -> Outcome {
        self.call(key, Op::Write(value, &Write::default()))
    }

    fn add(&self, key: &Key<'_>) -> bool {
        let request = Write { mode: WriteMode::Add, ..Write::default() };
        matches!(self.call(key, Op::Write(b"lock", &request)), Outcome::Written(Written::Stored { .. }))
    }

    fn delete(&self, key: &Key<'_>) -> Deleted {
        self.call(key, Op::Delete(&Delete::default())).deleted()
    }

    fn increment(&self, key: &Key<'_>) -> u64 {
        match self.call(key, Op::Arithmetic(&increment())) {
            Outcome::Number(Number::Value { number, .. }) => number,
            other => panic!("an increment ended as {other:?}"),
        }
    }

    fn get(&self, key: &Key<'_>) -> Option<String> {
        match self.call(key, Op::Read(&Retrieve::default())) {
            Outcome::Read(Lookup::Found(item)) => Some(String::from_utf8_lossy(&item.value).into_owned()),
            _ => None,
        }
    }
}

fn increment() -> Arithmetic {
    let create = Some(Create { initial: 1, exptime: Exptime::NEVER });
    Arithmetic { delta: 1, create, ..Arithmetic::default() }
}

/// Goes on with what can go on.
fn poll<T>(pending: &mut Pin<Box<dyn Future<Output = T>>>) -> Poll<T> {
    pending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn what_enough_copies_have_taken_is_not_made_again_above_what_came_after() {
    let (mut locks, mut numbers) = (Vec::new(), Vec::new());
    for number in 0..60 {
        let copies = Copies::new();
        let (one, other) = (copies.proxy(1, 1), copies.proxy(2, 2));
        let slow = number % 3;
        let name = format!("key{number}");
        let key = Key::new(name.as_bytes(), SEED);
        // Two copies have lost the lock before another client takes it; the third hears of the delete after that.
        one.set(&key, b"lock");
        copies.clock.advance_millis(1);
        one.links[slow].hold(true);
        let mut delete = one.begin(&key, Op::Delete(&Delete::default()));
        assert!(poll(&mut delete).is_pending());
        copies.clock.advance_millis(1);
        if other.add(&key) {
            one.links[slow].hold(false);
            assert!(matches!(poll(&mut delete), Poll::Ready(Ok(Outcome::Deleted(Deleted::Deleted)))));
            locks.push(other.get(&key).is_some());
        }
        // The same with a number that is set, and another client's increment.
        let name = format!("number{number}");
        let key = Key::new(name.as_bytes(), SEED);
        one.links[slow].hold(true);
        let mut set = one.begin(&key, Op::Write(b"10", &Write::default()));
        let is_answered = poll(&mut set).is_ready();
        copies.clock.advance_millis(1);
        let counted = other.increment(&key);
        one.links[slow].hold(false);
        if !is_answered {
            pollster::block_on(set).expect("an answer");
        }
        if counted == 11 {
            numbers.push(other.get(&key).as_deref() == Some("11"));
        }
    }
    let lost = |all: &[bool]| (all.iter().filter(|kept| !**kept).count(), all.len());
    let (locks, numbers) = (lost(&locks), lost(&numbers));
    assert!(locks.1 > 20 && numbers.1 > 20, "{locks:?} {numbers:?}");
    assert_eq!((locks.0, numbers.0), (0, 0), "locks and increments that were lost, of {} and {}", locks.1, numbers.1);
}

#[test]
fn proxies_do_not_drive_each_others_clocks() {
    let copies = Copies::new();
    let proxies: Vec<Proxy> = (0..3).map(|number| copies.proxy(number, number as u8)).collect();
    let keys = [Key::new(b"a", SEED), Key::new(b"b", SEED), Key::new(b"c", SEED)];
    let mut ahead = 0;
    for round in 0..3000usize {
        let (proxy, key) = (&proxies[round * 7 % 3], &keys[round % 2]);
        if round % 4 < 2 {
            proxy.set(key, b"value");
        } else {
            proxy.delete(key);
        }
        // About as fast as they were attacked.
        copies.clock.advance_millis(u64::from(round % 4 == 0));
        let of = |held: Option<(String, Version)>| held.map_or(0, |(_, version)| version.millis());
        let newest = copies.held(key).into_iter().map(of).max().unwrap_or_default();
        ahead = ahead.max(newest.saturating_sub(copies.clock.millis()));
    }
    proxies[0].set(&keys[2], b"value");
    let other = copies.held(&keys[2])[0].as_ref().expect("stored").1.millis();
    assert!(ahead <= 2 && other <= copies.clock.millis(), "{ahead} ms ahead; another key {other}");
}

/// What a copy has taken may have been the base of what came after it before the answer is there.
#[test]
fn a_write_that_most_copies_took_and_answer_late_is_not_made_again_above_a_change_of_it() {
    for number in 0..12 {
        let copies = Copies::new();
        let (one, other) = (copies.proxy(1, 1), copies.proxy(2, 2));
        let name = format!("key{number}");
        let key = Key::new(name.as_bytes(), SEED);
        let slow = number % 3;
        one.links.iter().for_each(|link| link.0.is_late.store(true, Relaxed));
        one.links[slow].0.is_late.store(false, Relaxed);
        one.links[slow].hold(true);
        let mut set = one.begin(&key, Op::Write(b"10", &Write::default()));
        assert!(poll(&mut set).is_pending());
        copies.clock.advance_millis(1);
        assert_eq!(other.increment(&key), 11);
        one.links[slow].hold(false);
        let is_answered = poll(&mut set).is_ready();
        assert_eq!(other.get(&key).as_deref(), Some("11"), "{name}");
        one.links.iter().for_each(|link| link.0.is_late.store(false, Relaxed));
        if !is_answered {
            pollster::block_on(set).expect("an answer");
        }
        assert_eq!(other.get(&key).as_deref(), Some("11"), "{name}");
    }
}

#[test]
fn increments_through_proxies_of_one_writer_id_are_all_counted() {
    let copies = Copies::new();
    let proxies: Vec<Proxy> = (0..3).map(|number| copies.proxy(number, 0)).collect();
    let key = Key::new(b"counter", SEED);
    let mut counted = 0u64;
    for _ in 0..700 {
        // One step of each in turn, so that all three decide on the same.
        let mut begun: Vec<_> =
            proxies.iter().map(|proxy| Some(proxy.begin(&key, Op::Arithmetic(&increment())))).collect();
        for _ in 0..10_000 {
            for slot in &mut begun {
                if let Some(pending) = slot
                    && let Poll::Ready(ended) = poll(pending)
                {
                    counted += u64::from(ended.is_ok());
                    *slot = None;
                }
            }
        }
        assert!(begun.iter().all(Option::is_none), "each ends");
        copies.clock.advance_millis(1);
    }
    assert!(counted > 2000, "{counted}");
    assert_eq!(proxies[0].get(&key), Some(counted.to_string()));
}

/// Their random steps are the same, too: both make the same item of the same, under the same version.
#[test]
fn one_of_two_increments_that_are_equal_is_made_again() {
    let copies = Copies::new();
    let key = Key::new(b"counter", SEED);
    let mut begun = [copies.proxy(1, 0), copies.proxy(1, 0)].map(|proxy| {
        proxy.links.iter().for_each(|link| link.0.is_late.store(true, Relaxed));
        let mut begun = proxy.begin(&key, Op::Arithmetic(&increment()));
        assert!(poll(&mut begun).is_pending(), "it has asked what there is");
        proxy.links.iter().for_each(|link| link.0.is_late.store(false, Relaxed));
        (proxy, begun)
    });
    let numbers = begun.each_mut().map(|(_, begun)| match pollster::block_on(begun) {
        Ok(Outcome::Number(Number::Value { number, .. })) => number,
        other => panic!("{other:?}"),
    });
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn a_delete_that_a_later_stamp_ended_tells_what_the_first_one_found() {
    let copies = Copies::new();
    let proxy = copies.proxy(1, 1);
    let key = Key::new(b"key", SEED);
    proxy.set(&key, b"value");
    copies.clock.advance_millis(1);
    // Two copies know of a delete under a version just ahead, which the third has not heard of.
    let ahead = Version::at(copies.clock.millis() + 3);
    copies.nodes[1..].iter().for_each(|node| assert!(node.bury(&key, ahead).now().is_ok()));
    assert_eq!(proxy.delete(&key), Deleted::Deleted);
    assert!(copies.held(&key).iter().all(Option::is_none));
}

#[test]
fn a_change_does_not_bring_back_what_most_copies_know_to_be_deleted() {
    for number in 0..30 {
        let copies = Copies::new();
        let (one, other) = (copies.proxy(1, 1), copies.proxy(2, 2));
        let name = format!("key{number}");
        let key = Key::new(name.as_bytes(), SEED);
        one.set(&key, b"deleted");
        copies.clock.advance_millis(1);
        // One copy, the home for some keys, has not heard of the delete.
        one.links[number % 3].hold(true);
        let mut delete = one.begin(&key, Op::Delete(&Delete::default()));
        assert!(poll(&mut delete).is_pending());
        copies.clock.advance_millis(1);
        let request = Write { mode: WriteMode::Append, ..Write::default() };
        let appended = pollster::block_on(other.begin(&key, Op::Write(b"+", &request)));
        assert!(matches!(appended, Ok(Outcome::Written(Written::NotStored))), "{name}: {appended:?}");
        one.links[number % 3].hold(false);
        pollster::block_on(delete).expect("an answer");
        assert_eq!(copies.held(&key), [None, None, None], "{name}");
    }
}

#[test]
fn versions_from_the_future_are_neither_taken_nor_learned() {
    let copies = Copies::new();
    let proxy = copies.proxy(1, 1);
    let (key, other) = (Key::new(b"key", SEED), Key::new(b"other", SEED));
    let year = Version::at(copies.clock.millis() + 365 * 86_400_000);
    let meta = moneta_store::ItemMeta { cas: year.0, ..Default::default() };
    let item = ItemRef { meta, value: moneta_store::Value::whole(&[7; 2 << 20]) };
    let put = Put::Newer { as_of: copies.clock.millis(), base: None };
    let refused = |ended: Result<Outcome, StoreError>| ended.is_err_and(|error| error.kind() == ErrorKind::ClockAhead);
    assert!(refused(pollster::block_on(proxy.begin(&key, Op::Put(&item, put)))));
    assert!(refused(pollster::block_on(proxy.begin(&key, Op::Bury(year)))));
    assert!(matches!(proxy.set(&key, b"value"), Outcome::Written(Written::Stored { .. })));
    assert!(matches!(proxy.set(&other, b"value"), Outcome::Written(Written::Stored { .. })));
    assert_eq!(proxy.get(&key).as_deref(), Some("value"));
}

/// As of a node whose clock has gone a day ahead, and that was written to by a client of its own.
#[test]
fn what_a_node_shows_from_the_future_is_not_read() {
    let mut copies = Copies::new();
    let ahead = Arc::new(Clock::manual(NOW));
    copies.nodes[1] = Arc::new(memory(&ahead, 1, 64 << 20, 1 << 20));
    ahead.advance(2);
    let proxy = copies.proxy(1, 1);
    let names: Vec<String> = (0..20).map(|number| format!("key{number}")).collect();
    let keys = || names.iter().map(|name| Key::new(name.as_bytes(), SEED));
    keys().for_each(|key| drop(proxy.set(&key, b"value")));
    ahead.advance(86_400);
    for key in keys() {
        copies.nodes[1].set(&key, b"of the future", &Write::default()).now().expect("it is stored");
    }
    assert!(keys().all(|key| proxy.get(&key).as_deref() == Some("value")));
}

/// Answered before any copy has taken it, and lost on the way to one, while the others may still take it.
#[test]
fn no_copy_is_believed_while_a_write_that_was_answered_may_be_under_way() {
    let copies = Copies::new();
    let proxy = copies.proxy_of(ClusterConfig { ack: Ack::None, ..ClusterConfig::new("app") }, 1, 1);
    let key = Key::new(b"key", SEED);
    let lacking = || proxy.cluster.route(key.bytes).iter().map(|copy| copy.lacks_write).collect::<Vec<_>>();
    proxy.set(&key, b"before");
    assert_eq!(lacking(), [false; 3]);
    copies.clock.advance_millis(1);
    proxy.links[0].0.is_cut.store(true, Relaxed);
    proxy.links[1..].iter().for_each(|link| link.hold(true));
    let mut set = proxy.begin(&key, Op::Write(b"after", &Write::default()));
    assert!(poll(&mut set).is_pending());
    assert_eq!(lacking(), [true; 3]);
    proxy.links[1..].iter().for_each(|link| link.hold(false));
    assert!(poll(&mut set).is_ready());
    assert_eq!(lacking(), [true, false, false]);
}
