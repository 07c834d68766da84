//! A node that answers far slower than others is not asked until it answers faster; none of the guards against doing so rashly
//! may be missing.

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Nodes, SEED, memory, topology};
use moneta_cluster::{Ack, Answered, Cluster, ClusterConfig, Connect, Heard, Node, NodeStatus, Opened, Writer};
use moneta_memory::Memory;
use moneta_store::{Clock, Cx, Key, Op, Origin, Step, Store, Visit};
use moneta_testkit::doubles::{Double, Layer};
use parking_lot::Mutex;

/// A node that takes so many milliseconds to answer.
struct Late(Memory, Arc<AtomicU64>);

impl Double for Late {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.0
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        std::thread::sleep(Duration::from_millis(self.1.load(Ordering::Relaxed)));
        Store::call(&self.0, cx, key, op, out)
    }
}

/// Nodes whose answers are counted by the test, with boards or without.
#[derive(Clone, Default)]
struct Counted {
    nodes: Nodes,
    answered: Arc<Mutex<HashMap<String, Answered>>>,
    has_boards: bool,
}

impl Connect for Counted {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        let Opened { store, .. } = self.nodes.open(node)?;
        let (counted, name) = (Arc::clone(&self.answered), node.address.to_string());
        let answers = move || counted.lock().get(&name).copied().unwrap_or_default();
        Ok(Opened { store, answers: Some(Box::new(answers)) })
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }

    fn exchange(&self, _: &Node, _: u64, post: Option<(u64, &[u8])>) -> Option<Heard> {
        self.has_boards.then(|| Heard { is_posted: post.is_some(), ..Heard::default() })
    }
}

struct World {
    cluster: Cluster,
    clock: Arc<Clock>,
    nodes: Counted,
    /// Milliseconds that each node takes to answer what it is really asked.
    lateness: Arc<AtomicU64>,
}

impl World {
    /// Three zones of two nodes each.
    fn new(config: ClusterConfig) -> Self {
        Self::with(config, false)
    }

    fn with(config: ClusterConfig, has_boards: bool) -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let nodes = Counted { has_boards, ..Counted::default() };
        let (topology, lateness) = (topology(2), Arc::<AtomicU64>::default());
        for node in topology.replicas.iter().flat_map(|replica| &replica.nodes) {
            let store = Late(memory(&clock, 0, 64 << 20, 1 << 20), Arc::clone(&lateness));
            nodes.nodes.put(node, Arc::new(Layer(store)));
        }
        let writer = Writer { origin: Origin::new(1, 0), salt: 0, seed: SEED };
        let cluster = Cluster::new(config, &topology, Box::new(nodes.clone()), writer, 1 << 20, Arc::clone(&clock));
        Self { cluster: cluster.expect("a cluster"), clock, nodes, lateness }
    }

    /// A second in which these nodes answered so many requests each, in so many milliseconds each.
    fn second(&self, answers: &[(&str, u64, u64)]) {
        for (name, requests, millis) in answers {
            let mut counted = self.nodes.answered.lock();
            let counted = counted.entry(format!("{name}:11211")).or_default();
            counted.requests += requests;
            counted.time += Duration::from_millis(requests * millis);
        }
        self.clock.advance_millis(1_000);
        self.cluster.exchange(1);
        pollster::block_on(self.cluster.maintain());
    }

    fn node(&self, name: &str) -> NodeStatus {
        let nodes = self.cluster.status().nodes;
        nodes.into_iter().find(|node| node.address == format!("{name}:11211")).expect("a node of this name")
    }

    /// The nodes that are not asked, all of them since they are slow.
    fn slow(&self) -> Vec<String> {
        let nodes = self.cluster.status().nodes;
        assert!(nodes.iter().all(|node| node.up != node.slow));
        nodes.iter().filter(|node| node.slow).map(|node| node.address.replace(":11211", "")).collect()
    }
}

const ALL: [(&str, u64, u64); 6] =
    [("a0", 100, 1), ("a1", 100, 1), ("b0", 100, 2), ("b1", 100, 2), ("c0", 100, 2), ("c1", 100, 2)];

/// All nodes, these otherwise than usual.
fn but(others: &[(&'static str, u64, u64)]) -> Vec<(&'static str, u64, u64)> {
    let usual = |node: &(&'static str, u64, u64)| others.iter().all(|other| other.0 != node.0);
    ALL.into_iter().filter(usual).chain(others.iter().copied()).collect()
}

#[test]
fn a_slow_node_is_ejected_and_comes_back_by_a_fast_probe() {
    let world = World::new(ClusterConfig::new("app"));
    world.second(&ALL);
    world.second(&but(&[("b1", 10, 1000)]));
    assert_eq!(world.slow(), ["b1"]);
    let node = world.node("b1");
    assert_eq!((node.ejections, node.answer_time), (1, Some(Duration::from_secs(1))));
    // The store of the test answers at once.
    world.second(&ALL);
    assert!(world.slow().is_empty());
    world.second(&but(&[("b1", 10, 1000)]));
    assert_eq!(world.slow(), ["b1"], "its probes are fast, its requests are not");
    world.second(&ALL);
    assert_eq!(world.slow(), ["b1"], "so the next probe comes later");
    world.second(&ALL);
    assert!(world.slow().is_empty());
}

#[test]
fn without_answers_of_others_they_are_asked() {
    let world = World::new(ClusterConfig::new("app"));
    for _ in 0..2 {
        world.second(&[("a0", 10, 1000)]);
    }
    assert_eq!(world.slow(), ["a0"]);
}

/// Where the machine is loaded, all are slower than they were. Large values may be on the ways to others, which then have no means
/// of now.
#[test]
fn a_node_is_compared_with_what_others_take_now() {
    let world = World::new(ClusterConfig { eject_slow: Duration::from_millis(10), ..ClusterConfig::new("app") });
    (0..2).for_each(|_| world.second(&ALL));
    (0..5).for_each(|_| world.second(&[]));
    world.lateness.store(30, Ordering::Relaxed);
    for _ in 0..2 {
        world.second(&[("b1", 100, 100)]);
    }
    assert!(world.slow().is_empty(), "others take 30 ms and more");
    world.lateness.store(0, Ordering::Relaxed);
    world.second(&[("b1", 100, 100)]);
    assert_eq!(world.slow(), ["b1"]);
}

#[test]
fn what_is_usual_for_all_or_too_rare_or_below_the_floor_ejects_none() {
    let world = World::new(ClusterConfig::new("app"));
    let all_slow = ALL.map(|(name, requests, _)| (name, requests, 500));
    for _ in 0..3 {
        world.second(&all_slow);
    }
    assert!(world.slow().is_empty(), "all are slow: it is the way there, or this process");
    for _ in 0..3 {
        world.second(&but(&[("b1", 100, 99)]));
    }
    assert!(world.slow().is_empty(), "below the floor");
    for _ in 0..3 {
        world.second(&but(&[("b1", 3, 1000)]));
    }
    assert!(world.slow().is_empty(), "too few requests");
    world.second(&but(&[("b1", 1, 1000)]));
    assert_eq!(world.slow(), ["b1"], "enough by now");
    let off = World::new(ClusterConfig { eject_slow: Duration::ZERO, ..ClusterConfig::new("app") });
    for _ in 0..3 {
        off.second(&but(&[("b1", 100, 1000)]));
    }
    assert!(off.slow().is_empty(), "it is turned off");
}

#[test]
fn no_more_are_ejected_than_a_zone_and_the_rule_of_writes_can_spare() {
    let both = [("b0", 100, 1000), ("b1", 100, 1000)];
    let world = World::new(ClusterConfig::new("app"));
    for _ in 0..2 {
        world.second(&but(&both));
    }
    assert_eq!(world.slow(), ["b0"], "half of a zone, by the rule that is set here");
    let world = World::new(ClusterConfig { eject_share: 100, ..ClusterConfig::new("app") });
    for _ in 0..2 {
        world.second(&but(&both));
    }
    assert_eq!(world.slow(), ["b0", "b1"]);
    let world = World::new(ClusterConfig { ack: Ack::All, ..ClusterConfig::new("app") });
    for _ in 0..3 {
        world.second(&but(&both));
    }
    assert!(world.slow().is_empty(), "writes need all copies");
    let world = World::new(ClusterConfig::new("app"));
    for _ in 0..2 {
        world.second(&but(&[("b0", 100, 1000), ("c0", 100, 1000)]));
    }
    assert_eq!(world.slow().len(), 1, "two of three copies are left: {:?}", world.slow());
}

/// Both were found to be slow in one round, and others were asked whether that is the way to them.
#[test]
fn of_two_slow_nodes_that_writes_cannot_both_spare_one_is_ejected() {
    let world = World::with(ClusterConfig::new("app"), true);
    for _ in 0..2 {
        world.second(&but(&[("b0", 100, 1000), ("c0", 100, 1000)]));
    }
    assert!(world.slow().is_empty(), "others are asked");
    for _ in 0..3 {
        world.second(&but(&[("b0", 100, 1000), ("c0", 100, 1000)]));
        assert!(world.slow().len() <= 1, "{:?}", world.slow());
    }
}

/// By its probes, which take as long as its requests.
#[test]
fn a_slow_node_is_asked_again_once_writes_cannot_spare_it() {
    let world = World::new(ClusterConfig::new("app"));
    world.second(&ALL);
    world.second(&but(&[("b1", 10, 1000)]));
    world.lateness.store(150, Ordering::Relaxed);
    world.second(&ALL);
    assert_eq!(world.slow(), ["b1"]);
    world.cluster.rules().set_ack(Ack::All);
    world.second(&ALL);
    assert!(world.slow().is_empty());
}
