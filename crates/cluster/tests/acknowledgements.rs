//! How many copies take a write before it is answered, by rule; and copies that take writes only.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::{Nodes, SEED, cluster, memory};
use moneta_cluster::{Ack, Cluster, ClusterConfig, Node, Replica, RingKind, Topology};
use moneta_memory::Memory;
use moneta_store::request::{Arithmetic, Create, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{
    Calls, Clock, Cx, Deleted, ErrorKind, Key, Lookup, Number, Op, Outcome, Policy, Reactors, Step, StoreError, Unseen,
    Visit, Written, component, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use pollster::block_on;

const COPIES: usize = 5;

/// A node that may be away, and counts reads that clients see.
struct Copy {
    store: Memory,
    is_away: AtomicBool,
    reads: AtomicU64,
}

/// The same for the cluster and the test.
#[derive(Clone)]
struct ClusterShared(Arc<Copy>);

impl Double for ClusterShared {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.0.store
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        if self.0.is_away.load(Relaxed) {
            return Step::Done(Err(StoreError::new(ErrorKind::Unreachable, "away")));
        }
        self.0.reads.fetch_add(u64::from(matches!(op, Op::Read(_))), Relaxed);
        moneta_store::Store::call(&self.0.store, cx, key, op, out)
    }
}

struct World {
    cluster: Cluster,
    copies: Vec<ClusterShared>,
}

impl World {
    /// The last `write_only` of the copies take writes only. The near one is the first.
    fn new(ack: Ack, write_only: usize) -> Self {
        Self::of(COPIES, ack, write_only)
    }

    fn of(copies_all: usize, ack: Ack, write_only: usize) -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let (nodes, mut copies) = (Nodes::default(), Vec::new());
        let replica = |number: usize| {
            let address = format!("{number}:11211").parse().expect("an address");
            let node = Node { slot: "0".into(), address, admin: None, weight: 1 };
            let store = memory(&clock, number as u8, 16 << 20, 1 << 20);
            let copy =
                ClusterShared(Arc::new(Copy { store, is_away: AtomicBool::default(), reads: AtomicU64::default() }));
            nodes.put(&node, Arc::new(Layer(copy.clone())));
            copies.push(copy);
            let name = format!("zone{number}");
            Replica { name: name.clone(), zone: name, write_only: number >= copies_all - write_only, nodes: vec![node] }
        };
        let topology = Topology { epoch: 1, ring: RingKind::Slots, replicas: (0..copies_all).map(replica).collect() };
        // So that each node can tell what was deleted.
        clock.advance(1);
        let config = ClusterConfig { ack, zone: Some("zone0".into()), ..ClusterConfig::new("app") };
        Self { cluster: cluster(config, &topology, &nodes, 9, &clock), copies }
    }

    fn with_away(self, away: usize) -> Self {
        self.copies.iter().rev().take(away).for_each(|copy| copy.0.is_away.store(true, Relaxed));
        self
    }

    /// As one request of a worker, which goes on until everything after its answer has ended, too.
    fn call(&self, op: Op<'_>) -> Result<Outcome, StoreError> {
        let mut reactors = Reactors::default();
        component::attach(&self.cluster, &mut reactors);
        let reactors = std::rc::Rc::new(reactors);
        let cx = Cx::of_worker(Policy::Online, &reactors);
        let ended = block_on(steps::finish(moneta_store::Store::call(&self.cluster, &cx, &key(), op, &mut Unseen)));
        reactors.turn();
        ended
    }

    fn set(&self, value: &str) -> Result<Outcome, StoreError> {
        self.call(Op::Write(value.as_bytes(), &Write::default()))
    }

    /// What the copies hold, also those that are away.
    fn held(&self) -> Vec<Option<String>> {
        let held = |copy: &ClusterShared| {
            let mut seen = None;
            let mut see = |item: &moneta_store::ItemRef<'_>| {
                seen = Some(String::from_utf8_lossy(&item.value.to_vec()).into_owned());
            };
            let _ = copy.0.store.peek(&key(), &mut see).now();
            seen
        };
        self.copies.iter().map(held).collect()
    }
}

fn key() -> Key<'static> {
    Key::new(b"key", SEED)
}

#[test]
fn a_write_is_answered_once_as_many_copies_took_it_as_the_rule_wants() {
    let rules = [(Ack::None, 0), (Ack::One, 1), (Ack::Quorum, 3), (Ack::AllButOne, 4), (Ack::All, 5)];
    for (ack, wanted) in rules {
        for away in 0..=COPIES {
            let world = World::new(ack, 0).with_away(away);
            let ended = world.set("1");
            let took = COPIES - away;
            let is_stored = matches!(&ended, Ok(Outcome::Written(Written::Stored { .. })));
            assert_eq!(is_stored, took >= wanted, "{ack:?} with {away} away: {ended:?}");
            assert!(is_stored || ended.is_err(), "{ended:?}");
            // What failed for the client may have been written all the same: docs/cluster.md says so.
            let held = world.held();
            assert!(held[..took].iter().all(|held| held.as_deref() == Some("1")), "{ack:?}, {away}: {held:?}");
            assert!(held[took..].iter().all(Option::is_none), "{ack:?}, {away}: {held:?}");
            let hints: Vec<u64> = world.cluster.status().nodes.iter().map(|node| node.hints).collect();
            let expected: Vec<u64> = (0..COPIES).map(|copy| u64::from(copy >= took)).collect();
            assert_eq!(hints, expected, "{ack:?} with {away} away: what was missed is told later");
        }
    }
}

#[test]
fn a_delete_goes_by_the_same_rule_and_changes_need_more_than_half() {
    let rules = [(Ack::One, 1), (Ack::Quorum, 3), (Ack::AllButOne, 4), (Ack::All, 5)];
    for (ack, wanted) in rules {
        for away in 0..=COPIES {
            let world = World::new(ack, 0);
            assert!(world.set("1").is_ok());
            let world = world.with_away(away);
            let took = COPIES - away;
            let create = Some(Create { initial: 1, exptime: Exptime::NEVER });
            let request = Arithmetic { delta: 1, create, ..Arithmetic::default() };
            let counted = world.call(Op::Arithmetic(&request));
            let is_counted = matches!(&counted, Ok(Outcome::Number(Number::Value { number: 2, .. })));
            assert_eq!(is_counted, took > COPIES / 2, "{ack:?} with {away} away: {counted:?}");
            let deleted = world.call(Op::Delete(&Delete::default()));
            let is_deleted = matches!(&deleted, Ok(Outcome::Deleted(Deleted::Deleted)));
            assert_eq!(is_deleted, took >= wanted, "{ack:?} with {away} away: {deleted:?}");
        }
    }
}

#[test]
fn a_copy_that_takes_writes_only_has_every_write_and_is_neither_read_nor_counted() {
    let world = World::new(Ack::All, 1);
    let same = |value: &str| vec![Some(value.to_owned()); COPIES];
    assert!(world.set("1").is_ok());
    assert_eq!(world.held(), same("1"));
    let request = Arithmetic { delta: 4, ..Arithmetic::default() };
    assert!(matches!(world.call(Op::Arithmetic(&request)), Ok(Outcome::Number(Number::Value { number: 5, .. }))));
    assert_eq!(world.held(), same("5"));
    let append = Write { mode: WriteMode::Append, ..Write::default() };
    assert!(matches!(world.call(Op::Write(b"0", &append)), Ok(Outcome::Written(Written::Stored { .. }))));
    assert_eq!(world.held(), same("50"));
    // Alone with the key it is not asked, and a write needs no answer of it.
    let last = &world.copies[COPIES - 1].0;
    world.copies[..COPIES - 1].iter().for_each(|copy| copy.0.store.forget(&key()));
    let read = world.call(Op::Read(&Retrieve::default()));
    assert!(matches!(read, Ok(Outcome::Read(Lookup::Miss { .. }))), "{read:?}");
    assert_eq!(last.reads.load(Relaxed), 0);
    last.is_away.store(true, Relaxed);
    assert!(world.set("2").is_ok());
    let deleted = world.call(Op::Delete(&Delete::default()));
    assert!(matches!(deleted, Ok(Outcome::Deleted(Deleted::Deleted))), "{deleted:?}");
}

/// By the default, two copies do what three do: the loss of one stops nothing. Whichever it is, near or far, home of the key or
/// not.
#[test]
fn of_two_copies_the_one_that_answers_takes_writes_and_decides_changes() {
    for lost in 0..2 {
        let world = World::of(2, Ack::default(), 0);
        assert!(world.set("1").is_ok());
        world.copies[lost].0.is_away.store(true, Relaxed);
        let request = Arithmetic { delta: 1, ..Arithmetic::default() };
        let number = |ended: &Result<Outcome, StoreError>| match ended {
            Ok(Outcome::Number(Number::Value { number, .. })) => Some(*number),
            _ => None,
        };
        // Until it is known that the home is away, a change on it fails: its outcome there cannot be known.
        let counted: Vec<_> = (0..10).map(|_| world.call(Op::Arithmetic(&request))).collect();
        let numbers: Vec<u64> = counted.iter().filter_map(number).collect();
        assert!(numbers.len() >= 5 && counted[5..].iter().all(Result::is_ok), "{lost}: {counted:?}");
        assert_eq!(numbers, (2..2 + numbers.len() as u64).collect::<Vec<_>>(), "{lost}");
        let add = Write { mode: WriteMode::Add, ..Write::default() };
        let added = world.call(Op::Write(b"x", &add));
        assert!(matches!(added, Ok(Outcome::Written(Written::NotStored))), "{added:?}");
        assert!(matches!(world.call(Op::Delete(&Delete::default())), Ok(Outcome::Deleted(Deleted::Deleted))));
        assert!(matches!(world.set("7"), Ok(Outcome::Written(Written::Stored { .. }))));
        assert_eq!(world.held()[1 - lost].as_deref(), Some("7"));
        // What it missed is told to it later.
        assert_eq!(world.cluster.status().nodes[lost].hints, 1);
        // Both away: nothing is taken.
        world.copies[1 - lost].0.is_away.store(true, Relaxed);
        assert!(world.set("8").is_err());
    }
    // Who wants both says so.
    let world = World::of(2, Ack::All, 0);
    assert!(world.set("1").is_ok());
    let world = world.with_away(1);
    assert!(world.set("2").is_err() && world.call(Op::Arithmetic(&Arithmetic::default())).is_err());
}
