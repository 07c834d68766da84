//! A topology that cannot be taken at first, since a node of it cannot be had, is taken as soon as that can be.

mod common;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{Nodes, SEED, memory, topology};
use moneta_cluster::sources::{GuardConfig, Guarded, SourceError, TopologySource};
use moneta_cluster::{Cluster, ClusterConfig, Connect, Node, Opened, Topology, Writer};
use moneta_store::{Clock, Origin};
use parking_lot::Mutex;

/// A bound against tests that hang.
const LONG: Duration = Duration::from_secs(60);

/// A source that says what the test has it say.
struct Said(Arc<Mutex<Topology>>);

impl TopologySource for Said {
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        std::thread::sleep(timeout.min(Duration::from_millis(1)));
        Ok(Some(self.0.lock().clone()))
    }

    fn name(&self) -> String {
        "the test".to_owned()
    }
}

/// Counts how often a node could not be had.
#[derive(Clone, Default)]
struct Counted(Nodes, Arc<AtomicUsize>);

impl Connect for Counted {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        self.0.open(node).inspect_err(|_| {
            self.1.fetch_add(1, Relaxed);
        })
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let from = Instant::now();
    while !holds() {
        assert!(from.elapsed() < LONG, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_could_not_be_taken_is_tried_again() {
    let clock = Arc::new(Clock::manual(1_790_000_000));
    let (nodes, small, large) = (Counted::default(), topology(1), Topology { epoch: 2, ..topology(2) });
    let put = |node: &Node| nodes.0.put(node, Arc::new(memory(&clock, 0, 16 << 20, 1 << 20)));
    small.nodes().for_each(put);
    let writer = Writer { origin: Origin::new(1, 0), salt: 0, seed: SEED };
    let connect = Box::new(nodes.clone());
    let cluster = Cluster::new(ClusterConfig::new("app"), &small, connect, writer, 1 << 20, Arc::clone(&clock))
        .expect("a cluster");
    let said = Arc::new(Mutex::new(small));
    let mut source = Guarded::new(Said(Arc::clone(&said)), GuardConfig::default());
    source.first(LONG).expect("it says one");
    cluster.follow(source).expect("a thread");

    *said.lock() = large.clone();
    wait_until("it is tried", || nodes.1.load(Relaxed) > 0);
    assert_eq!((cluster.status().epoch, cluster.status().nodes.len()), (1, 3), "the one of before stays");
    large.nodes().for_each(put);
    wait_until("it is taken", || cluster.status().epoch == 2);
    assert_eq!(cluster.status().nodes.len(), 6);
}

#[test]
fn what_could_not_be_taken_is_forgotten_for_what_is_said_later() {
    let clock = Arc::new(Clock::manual(1_790_000_000));
    let (nodes, small, large) = (Counted::default(), topology(1), Topology { epoch: 2, ..topology(2) });
    small.nodes().for_each(|node| nodes.0.put(node, Arc::new(memory(&clock, 0, 16 << 20, 1 << 20))));
    let writer = Writer { origin: Origin::new(1, 0), salt: 0, seed: SEED };
    let connect = Box::new(nodes.clone());
    let cluster = Cluster::new(ClusterConfig::new("app"), &small, connect, writer, 1 << 20, Arc::clone(&clock))
        .expect("a cluster");
    let said = Arc::new(Mutex::new(small.clone()));
    let mut source = Guarded::new(Said(Arc::clone(&said)), GuardConfig::default());
    source.first(LONG).expect("it says one");
    cluster.follow(source).expect("a thread");

    *said.lock() = large;
    wait_until("it is tried", || nodes.1.load(Relaxed) > 0);
    // Half of the nodes go, which is believed at once.
    *said.lock() = Topology { epoch: 3, ..small };
    wait_until("it is taken", || cluster.status().epoch == 3);
    let tried = nodes.1.load(Relaxed);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((cluster.status().epoch, nodes.1.load(Relaxed)), (3, tried));
}
