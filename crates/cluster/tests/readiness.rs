//! A proxy is ready while keys have copies that are asked, however many zones lack a node. Else one node away in each zone, as
//! where all zones are restarted side by side, takes all proxies out of service, and the app with them.

mod common;

use std::sync::Arc;

use common::{away, cluster, set, topology};
use moneta_cluster::ClusterConfig;
use moneta_store::{Clock, component};

#[test]
fn a_node_away_in_each_zone_leaves_it_ready_as_long_as_other_copies_have_the_keys() {
    let clock = Arc::new(Clock::manual(1_790_000_000));
    let topology = topology(2);
    let (nodes, stores) = away(&topology, &clock);
    let config = ClusterConfig { eject_after: 1, eject_share: 100, ..ClusterConfig::new("app") };
    let cluster = cluster(config, &topology, &nodes, 9, &clock);
    let health = |away: &[usize]| {
        away.iter().for_each(|&node| stores[node].goes(true));
        for key in 0..20 {
            let _ = set(&cluster, &format!("key{key}"), 0);
        }
        component::health(&cluster)
    };
    let healthy = health(&[]);
    assert!(!healthy.unready && healthy.notes.is_empty(), "{healthy:?}");
    // Slot 0 in zones a and c, slot 1 in b.
    let some = health(&[0, 3, 4]);
    assert!(!some.unready, "each key has a copy: {some:?}");
    assert!(some.notes[0].contains("a/0, b/1, c/0"), "{some:?}");
    let none = health(&[2]);
    assert!(none.unready, "no copy of slot 0 is left: {none:?}");
}
