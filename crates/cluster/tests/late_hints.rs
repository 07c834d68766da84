//! Hints that cannot be delivered yet hold up none after them. Else a node that is back stays without all that it missed for as
//! long as a third one is away.

mod common;

use std::sync::Arc;

use common::{Away, away, cluster, set, topology};
use moneta_cluster::{Cluster, ClusterConfig};
use moneta_store::{Clock, Cx, component};
use pollster::block_on;

struct World {
    cluster: Cluster,
    clock: Arc<Clock>,
    nodes: Vec<Away>,
}

impl World {
    /// Three copies of a node each, and ten hints a round.
    fn new() -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let topology = topology(1);
        let (nodes, stores) = away(&topology, &clock);
        // So that each node can tell what was deleted.
        clock.advance(1);
        let config = ClusterConfig { hint_rate: 100, ..ClusterConfig::new("app") };
        Self { cluster: cluster(config, &topology, &nodes, 9, &clock), clock, nodes: stores }
    }

    fn rounds(&self, rounds: u32) {
        for _ in 0..rounds {
            self.clock.advance_millis(1_000);
            block_on(self.cluster.maintain());
        }
    }

    fn hints(&self) -> u64 {
        self.cluster.status().nodes[2].hints
    }

    fn delivered(&self) -> u64 {
        let samples = component::report(&self.cluster, &Cx::outside()).metrics;
        let delivered = samples.iter().find(|sample| sample.metric.name == "cluster_hints_delivered_total");
        delivered.expect("it is counted").value.number() as u64
    }
}

#[test]
fn hints_of_which_nothing_can_be_told_yet_let_others_by() {
    let world = World::new();
    let [_, gone, back] = &world.nodes[..] else { unreachable!("there are three") };
    back.goes(true);
    // When the node is back these are nowhere, and whether the copy that is gone has them is not known.
    (0..25).for_each(|number| assert!(set(&world.cluster, &format!("short{number}"), 5).is_ok()));
    assert!(set(&world.cluster, "long", 0).is_ok());
    assert_eq!(world.hints(), 26);
    gone.goes(true);
    world.clock.advance(10);
    back.goes(false);
    world.rounds(20);
    assert!(back.holds("long"), "it waits behind hints that cannot be delivered");
    assert_eq!((world.hints(), world.delivered()), (25, 1));

    gone.goes(false);
    world.rounds(20);
    assert_eq!((world.hints(), world.delivered()), (0, 26), "all copies say that they have none of them");
    assert!(back.holds("long"));
}
