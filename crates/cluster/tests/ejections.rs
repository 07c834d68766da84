//! What ejects a node, and what does not: a client's requests never do it alone. Silent failures: a node that refuses odd
//! requests is left out for all clients, and nodes that are busy with one client's requests are left out until no copy is left.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use common::{Nodes, SEED, cluster, memory, topology};
use moneta_cluster::{Cluster, ClusterConfig};
use moneta_memory::Memory;
use moneta_store::request::{Retrieve, Write};
use moneta_store::{
    Calls, Clock, Cx, ErrorKind, Key, Lookup, Op, Outcome, Step, Store, StoreError, Unseen, Visit, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use pollster::block_on;

/// How a node fails.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
enum Way {
    Not,
    /// It answers with an error of its own.
    Refuses,
    /// It leaves requests of clients without an answer, and answers those of the process itself.
    HangsForClients,
    Hangs,
    /// The same for clients, and what the process itself asks finds no room on the way.
    HangsAndIsFull,
    /// The connection breaks under all requests that wait on it.
    Breaks,
    Away,
}

#[derive(Clone)]
struct Node(Arc<(Memory, AtomicU8)>);

impl Double for Node {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.0.0
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let is = |way: Way| self.0.1.load(Relaxed) == way as u8;
        let fails = |kind| StoreError::new(kind, "it fails");
        let failure = if is(Way::Refuses) {
            fails(ErrorKind::Refused)
        } else if is(Way::Hangs) || (is(Way::HangsForClients) && !key.bytes.starts_with(b"moneta:")) {
            fails(ErrorKind::Timeout)
        } else if is(Way::HangsAndIsFull) {
            let is_own = key.bytes.starts_with(b"moneta:");
            if is_own { fails(ErrorKind::Busy).not_sent() } else { fails(ErrorKind::Timeout) }
        } else if is(Way::Breaks) {
            fails(ErrorKind::Lost).repeated()
        } else if is(Way::Away) {
            fails(ErrorKind::Unreachable)
        } else {
            return Store::call(&self.0.0, cx, key, op, out);
        };
        Step::Done(Err(failure))
    }
}

struct World {
    cluster: Cluster,
    clock: Arc<Clock>,
    /// Two of each of three zones.
    nodes: Vec<Node>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let (known, topology) = (Nodes::default(), topology(2));
        let node = |(number, place)| {
            let node = Node(Arc::new((memory(&clock, number, 16 << 20, 1 << 20), AtomicU8::new(0))));
            known.put(place, Arc::new(Layer(node.clone())));
            node
        };
        let nodes = (0..).zip(topology.nodes()).map(node).collect();
        let config = ClusterConfig { zone: Some("a".into()), eject_after: 3, ..ClusterConfig::new("app") };
        Self { cluster: cluster(config, &topology, &known, 9, &clock), clock, nodes }
    }

    fn fail(&self, nodes: &[usize], way: Way) {
        nodes.iter().for_each(|&node| self.nodes[node].0.1.store(way as u8, Relaxed));
    }

    fn call(&self, key: &str, op: Op<'_>) -> Result<Outcome, StoreError> {
        let key = Key::new(key.as_bytes(), SEED);
        block_on(steps::finish(Store::call(&self.cluster, &Cx::outside(), &key, op, &mut Unseen)))
    }

    /// Clients read and delete, and the process goes on for so many rounds.
    fn go_on(&self, rounds: usize) {
        for round in 0..rounds {
            for key in 0..40 {
                let _ = self.call(&format!("key{key}"), Op::Read(&Retrieve::default()));
                let _ = self.call(&format!("key{key}"), Op::Delete(&moneta_store::request::Delete::default()));
            }
            self.clock.advance_millis(if round == 0 { 1 } else { 100 });
            block_on(self.cluster.maintain());
        }
    }

    /// The nodes that are not asked.
    fn ejected(&self) -> Vec<String> {
        let nodes = self.cluster.status().nodes;
        nodes.iter().filter(|node| !node.up).map(|node| node.address.replace(":11211", "")).collect()
    }
}

#[test]
fn a_node_that_answers_with_errors_is_asked() {
    let world = World::new();
    world.fail(&[0, 1, 2, 3, 4, 5], Way::Refuses);
    world.go_on(3);
    assert!(world.ejected().is_empty(), "{:?}", world.ejected());
}

#[test]
fn a_node_that_answers_probes_is_asked_whatever_becomes_of_requests() {
    let world = World::new();
    world.fail(&[0, 1, 2, 3, 4, 5], Way::HangsForClients);
    world.go_on(3);
    assert!(world.ejected().is_empty(), "{:?}", world.ejected());
    // One connection that breaks under many requests is one failure.
    let world = World::new();
    world.fail(&[0, 1, 2, 3, 4, 5], Way::Breaks);
    world.go_on(3);
    assert!(world.ejected().is_empty(), "{:?}", world.ejected());
}

#[test]
fn nodes_that_hang_are_ejected_one_of_a_zone_and_never_the_last_copy_of_a_key() {
    let world = World::new();
    world.fail(&[0], Way::Hangs);
    world.go_on(2);
    assert_eq!(world.ejected(), ["a0"]);
    world.fail(&[1], Way::Hangs);
    world.go_on(2);
    assert_eq!(world.ejected(), ["a0"], "one of a zone");
    world.fail(&[2, 4], Way::Hangs);
    world.go_on(2);
    assert_eq!(world.ejected(), ["a0", "b0"], "c0 has the last copy that is asked");
    world.fail(&[0, 1, 2, 4], Way::Not);
    world.clock.advance(60);
    world.go_on(2);
    assert!(world.ejected().is_empty(), "{:?}", world.ejected());
}

#[test]
fn nodes_that_take_no_connection_are_ejected_however_many_they_are() {
    let world = World::new();
    world.fail(&[0, 1, 2, 3], Way::Away);
    world.go_on(1);
    assert_eq!(world.ejected(), ["a0", "a1", "b0", "b1"]);
}

#[test]
fn a_node_is_ejected_after_as_many_failures_as_the_rule_says_whoever_asked() {
    let world = World::new();
    world.fail(&[0, 1], Way::Hangs);
    // It lacks a write then, and is asked so that it can be given it.
    assert!(world.call("key", Op::Write(b"value", &Write::default())).is_ok());
    block_on(world.cluster.maintain());
    assert!(world.ejected().is_empty(), "the second failure of three: {:?}", world.ejected());
    block_on(world.cluster.maintain());
    assert_eq!(world.ejected().len(), 1);
}

#[test]
fn a_question_that_found_no_room_on_the_way_is_asked_again() {
    let world = World::new();
    world.fail(&[0], Way::HangsAndIsFull);
    // Reads alone: what it lacked would be given to it, too.
    (0..40).for_each(|key| drop(world.call(&format!("key{key}"), Op::Read(&Retrieve::default()))));
    block_on(world.cluster.maintain());
    assert!(world.ejected().is_empty(), "{:?}", world.ejected());
    world.fail(&[0], Way::Hangs);
    block_on(world.cluster.maintain());
    assert_eq!(world.ejected(), ["a0"], "without a further request of a client");
}

/// They lack what others wrote meanwhile, and these give it to them only after their next probe.
#[test]
fn near_copies_are_read_last_for_a_while_behind_a_cut() {
    let world = World::new();
    let read = || match world.call("key", Op::Read(&Retrieve::default())) {
        Ok(Outcome::Read(Lookup::Found(item))) => item.value.to_vec(),
        other => panic!("{other:?}"),
    };
    assert!(world.call("key", Op::Write(b"old", &Write::default())).is_ok());
    world.fail(&[2, 3, 4, 5], Way::Away);
    world.go_on(2);
    world.clock.advance(10);
    let key = Key::new(b"key", SEED);
    for node in &world.nodes[2..] {
        node.0.0.set(&key, b"new", &Write::default()).now().expect("it is stored");
    }
    assert_eq!(read(), b"old", "there is no other");
    world.fail(&[2, 3, 4, 5], Way::Not);
    world.clock.advance(10);
    (0..2).for_each(|_| block_on(world.cluster.maintain()));
    assert!(world.ejected().is_empty(), "{:?}", world.ejected());
    assert_eq!(read(), b"new");
}

/// A load that mostly misses spends what there is, and a node may die in the middle of it.
#[test]
fn reads_that_miss_leave_second_tries_to_reads_that_fail() {
    let world = World::new();
    let keys: Vec<String> = (0..20).map(|number| format!("key{number}")).collect();
    for key in &keys {
        world.call(key, Op::Write(b"value", &Write::default())).expect("it is stored");
    }
    for number in 0..1_000 {
        world.call(&format!("none{number}"), Op::Read(&Retrieve::default())).expect("a miss");
    }
    world.fail(&[0, 1], Way::Hangs);
    for key in &keys {
        let read = world.call(key, Op::Read(&Retrieve::default()));
        assert!(matches!(read, Ok(Outcome::Read(Lookup::Found(_)))), "{key}: {read:?}");
    }
}
