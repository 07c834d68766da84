//! Lists of an app's keys: those of the near copy, each once; and an error, never a shorter list, where they cannot be had.

mod common;

use std::sync::Arc;

use common::{Nodes, away, cluster, memory, set, topology};
use moneta_cluster::{App, Apps, Cluster, ClusterConfig, Topology};
use moneta_store::component::Component;
use moneta_store::{Clock, Cursor, Cx, Door, Store, StoreError, Walking};

const KEYS: usize = 200;

/// All that a walk shows.
fn walked(store: &impl Store, cx: &Cx) -> Result<Vec<String>, StoreError> {
    let (mut keys, mut cursor) = (Vec::new(), Cursor::default());
    let parts = Component::parts(store);
    let walk = parts.walk.expect("it lists its keys");
    loop {
        let mut show = |item: &moneta_store::Walked<'_>| keys.push(String::from_utf8(item.key.to_vec()).expect("text"));
        match walk.walk(cx, &mut cursor, &mut show) {
            Walking::More => {}
            Walking::Wait(pending) => pollster::block_on(pending)?,
            Walking::End => {
                keys.sort();
                return Ok(keys);
            }
        }
    }
}

fn config(zone: &str) -> ClusterConfig {
    ClusterConfig { zone: Some(zone.into()), ..ClusterConfig::new("app") }
}

fn named(prefix: &str) -> Vec<String> {
    let mut keys: Vec<String> = (0..KEYS).map(|key| format!("{prefix}{key}")).collect();
    keys.sort();
    keys
}

fn plant(cluster: &Cluster, prefix: &str) {
    for key in named(prefix) {
        set(cluster, &key, 0).expect("stored");
    }
}

#[test]
fn each_key_of_the_near_copy_is_shown_once() {
    let clock = Arc::new(Clock::system());
    let topology = topology(2);
    let (nodes, stores) = away(&topology, &clock);
    let cluster = cluster(config("b"), &topology, &nodes, 1, &clock);
    plant(&cluster, "k");
    // Left by an earlier topology on a node that the ring does not name.
    let stray = (0..).map(|number| format!("stray{number}")).find(|key| {
        let ring = moneta_cluster::Ring::new(topology.ring, &topology.replicas[1].nodes).expect("a ring");
        ring.node(key.as_bytes()) == 0
    });
    let stray = stray.expect("there is one");
    stores[3].plant(&stray);
    assert_eq!(walked(&cluster, &Cx::outside()).expect("a list"), named("k"));
}

#[test]
fn a_topology_that_changes_ends_a_list_with_an_error() {
    let clock = Arc::new(Clock::system());
    let first = topology(2);
    let (nodes, _stores) = away(&first, &clock);
    let cluster = cluster(config("a"), &first, &nodes, 1, &clock);
    plant(&cluster, "k");
    let (mut cursor, cx) = (Cursor::default(), Cx::outside());
    let parts = cluster.parts();
    let walk = parts.walk.expect("it lists its keys");
    assert!(matches!(walk.walk(&cx, &mut cursor, &mut |_| ()), Walking::More));
    let second = Topology { epoch: 2, replicas: first.replicas[..2].to_vec(), ..first };
    cluster.change(&second).expect("taken");
    let Walking::Wait(pending) = walk.walk(&cx, &mut cursor, &mut |_| ()) else { panic!("it goes on") };
    let error = pollster::block_on(pending).expect_err("the list is over");
    assert!(error.to_string().contains("the topology changed"), "{error}");
}

#[test]
fn apps_list_what_can_be_read_through_a_door() {
    let clock = Arc::new(Clock::system());
    // Two apps share nodes under prefixes; a third has nodes of its own, gets keys without the prefix, and has a listener.
    let shared = Topology { replicas: topology(2).replicas[..1].to_vec(), ..topology(2) };
    let (nodes, _stores) = away(&shared, &clock);
    let own = Topology { replicas: topology(1).replicas[1..2].to_vec(), ..topology(1) };
    let own_nodes = Nodes::default();
    own_nodes.put(&own.replicas[0].nodes[0], Arc::new(memory(&clock, 9, 16 << 20, 1 << 20)));
    let one = |name: &str| ClusterConfig { app: name.into(), ..config("a") };
    let clusters = [
        cluster(one("x"), &shared, &nodes, 1, &clock),
        cluster(one("y"), &shared, &nodes, 2, &clock),
        cluster(one("z"), &own, &own_nodes, 3, &clock),
    ];
    plant(&clusters[0], "x:");
    plant(&clusters[1], "y:");
    plant(&clusters[2], "");
    let [x, y, z] = clusters;
    let app = |cluster, prefix: &str, strip_prefix, door| App {
        cluster,
        prefix: Some(prefix.as_bytes().to_vec()),
        strip_prefix,
        door,
    };
    let apps = Apps::new(vec![app(x, "x:", false, None), app(y, "y:", false, None), app(z, "z:", true, Some(Door(1)))]);
    let mut all = [named("x:"), named("y:"), named("z:")].concat();
    all.sort();
    assert_eq!(walked(&apps, &Cx::outside()).expect("a list"), all);
    assert_eq!(walked(&apps, &Cx::outside().through(Door(1))).expect("a list"), named(""));
}
