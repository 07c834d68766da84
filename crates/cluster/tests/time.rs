//! A proxy whose clock is wrong by an hour goes by the nodes' clocks.

mod common;

use std::error::Error;
use std::sync::Arc;

use common::{Nodes, SEED, memory, topology};
use moneta_cluster::{Cluster, ClusterConfig, Connect, Node, Opened, Writer};
use moneta_store::request::{Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock, ErrorKind, Key, Lookup, Origin, Step, Store, StoreError, Written};

const NOW: u32 = 1_790_000_000;
const HOUR: i64 = 3_600_000;

/// Nodes that tell what a clock says.
struct Timed(Nodes, Arc<Clock>);

impl Connect for Timed {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        self.0.open(node)
    }

    fn time(&self, _: &Node) -> Option<u64> {
        let told = self.1.millis();
        // So long that others ask meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(5));
        Some(told)
    }
}

fn wait<T>(step: Step<T>) -> Result<T, StoreError> {
    match step {
        Step::Done(ended) => ended,
        Step::Wait(pending) => pollster::block_on(pending),
    }
}

/// A cluster whose own clock is that far ahead of its nodes'.
fn cluster(ahead: i64) -> (Cluster, Arc<Clock>, Arc<Clock>) {
    let theirs = Arc::new(Clock::manual(NOW));
    let ours = Arc::new(Clock::manual(NOW));
    ours.set_millis(theirs.millis().saturating_add_signed(ahead));
    let (nodes, topology) = (Nodes::default(), topology(1));
    for (writer, node) in (1..).zip(topology.nodes()) {
        nodes.put(node, Arc::new(memory(&theirs, writer, 64 << 20, 1 << 20)));
    }
    // Nodes that have just started cannot tell what was deleted.
    for clock in [&theirs, &ours] {
        clock.advance_millis(2000);
    }
    let cluster = app("app", nodes, &theirs, &ours);
    (cluster, ours, theirs)
}

fn app(name: &str, nodes: Nodes, theirs: &Arc<Clock>, ours: &Arc<Clock>) -> Cluster {
    let connect = Timed(nodes, Arc::clone(theirs));
    let writer = Writer { origin: Origin::new(1, 9), salt: 9, seed: SEED };
    let config = ClusterConfig::new(name);
    let cluster = Cluster::new(config, &topology(1), Box::new(connect), writer, 1 << 20, Arc::clone(ours));
    cluster.expect("a cluster")
}

#[test]
fn apps_that_share_a_clock_move_it_once() {
    let theirs = Arc::new(Clock::manual(NOW));
    let ours = Arc::new(Clock::manual(NOW));
    ours.set_millis(theirs.millis() - 300);
    // Each asks before another one has moved it: that is what they did beside each other.
    let apps: Vec<Cluster> = (0..4)
        .map(|number| {
            let nodes = Nodes::default();
            for (writer, node) in (1..).zip(topology(1).nodes()) {
                nodes.put(node, Arc::new(memory(&theirs, writer, 64 << 20, 1 << 20)));
            }
            app(&format!("app{number}"), nodes, &theirs, &ours)
        })
        .collect();
    let at_once = std::sync::Barrier::new(apps.len());
    std::thread::scope(|scope| {
        for app in &apps {
            scope.spawn(|| {
                at_once.wait();
                app.ask_time();
            });
        }
    });
    assert_eq!(ours.millis(), theirs.millis());
    assert_eq!(ours.offset(), 300);
}

fn set(cluster: &Cluster, exptime: i64) -> Result<Written, StoreError> {
    let key = Key::new(b"key", cluster.seed());
    wait(cluster.set(&key, b"value", &Write { exptime: Exptime(exptime), ..Write::default() }))
}

#[test]
fn a_clock_that_is_an_hour_ahead_is_corrected() {
    let (cluster, ours, theirs) = cluster(HOUR);
    let refused = set(&cluster, 0).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::ClockAhead), "nodes refuse what is an hour ahead");
    cluster.ask_time();
    assert_eq!(ours.millis(), theirs.millis());
    assert!(matches!(set(&cluster, 0), Ok(Written::Stored { .. })));
}

#[test]
fn a_clock_that_is_an_hour_behind_keeps_lives_right() {
    let (cluster, ours, theirs) = cluster(-HOUR);
    cluster.ask_time();
    assert_eq!(ours.millis(), theirs.millis());
    assert!(matches!(set(&cluster, 60), Ok(Written::Stored { .. })));
    let key = Key::new(b"key", cluster.seed());
    let read = || wait(cluster.get(&key, &Retrieve::default(), &mut |_: &moneta_store::ItemRef<'_>| {}));
    assert!(matches!(read(), Ok(Lookup::Found(_) | Lookup::Visited)));
    for clock in [&ours, &theirs] {
        clock.advance(61);
    }
    assert!(matches!(read(), Ok(Lookup::Miss { .. })), "it lives for a minute");
}
