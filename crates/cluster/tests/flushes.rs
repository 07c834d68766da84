//! A flush takes what was answered before it began, through whichever proxy: it is stamped above what the nodes hold. Else items
//! outlive it for as long as clocks differ, and a little where they do not.

mod common;

use std::sync::Arc;

use common::{Away, Nodes, away, cluster, memory, set, topology};
use moneta_cluster::{App, Apps, Cluster, ClusterConfig, Topology};
use moneta_store::request::Exptime;
use moneta_store::{Clock, Cx, Door, Policy, Reactors, StoreError, component, steps};
use pollster::block_on;

const KEYS: usize = 300;

fn proxy(topology: &Topology, nodes: &Nodes, writer: u8, clock: &Arc<Clock>) -> Cluster {
    cluster(ClusterConfig { allow_flush: true, ..ClusterConfig::new("app") }, topology, nodes, writer, clock)
}

fn flush(cluster: &Cluster) -> Result<(), StoreError> {
    block_on(steps::finish(component::flush(cluster, &Cx::outside(), Exptime::NEVER)))
}

fn left(nodes: &[Away]) -> usize {
    (0..KEYS).filter(|number| nodes.iter().any(|node| node.holds(&format!("key{number}")))).count()
}

#[test]
fn what_was_stored_through_another_proxy_in_the_same_millisecond_goes() {
    let clock = Arc::new(Clock::manual(1_790_000_000));
    let topology = topology(1);
    let (nodes, stores) = away(&topology, &clock);
    clock.advance(1);
    // Counters of versions begin at other numbers in each.
    let proxies: Vec<Cluster> = (0..6).map(|writer| proxy(&topology, &nodes, writer, &clock)).collect();
    for round in 0..20 {
        for number in 0..KEYS {
            assert!(set(&proxies[number % proxies.len()], &format!("key{number}"), 0).is_ok());
        }
        flush(&proxies[round % proxies.len()]).expect("it is taken");
        assert_eq!(left(&stores), 0, "round {round}");
        clock.advance(1);
    }
}

#[test]
fn what_was_stored_through_a_proxy_whose_clock_is_ahead_goes() {
    let clocks = [0, 300].map(|ahead| {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        clock.advance_millis(1000 + ahead);
        clock
    });
    let topology = topology(1);
    let (nodes, stores) = away(&topology, &clocks[0]);
    clocks[0].advance(1);
    clocks[1].advance(1);
    let [late, ahead] = [0, 1].map(|number| proxy(&topology, &nodes, number as u8, &clocks[number]));
    (0..KEYS).for_each(|number| assert!(set(&ahead, &format!("key{number}"), 0).is_ok()));
    // A copy that does not answer does not keep the others from it.
    stores[1].goes(true);
    flush(&late).expect("two copies take it");
    stores[1].goes(false);
    clocks.iter().for_each(|clock| clock.advance(5));
    block_on(late.maintain());
    assert_eq!(left(&stores), 0);
}

/// A node's flush takes all that the node has.
#[test]
fn an_app_that_shares_nodes_is_not_flushed_alone() {
    let clock = Arc::new(Clock::manual(1_790_000_000));
    let one = topology(1);
    let other = Topology { replicas: one.replicas.iter().rev().cloned().collect(), ..one.clone() };
    let mut apart = one.clone();
    for (zone, replica) in apart.replicas.iter_mut().enumerate() {
        replica.nodes[0].address = format!("apart{zone}:11211").parse().expect("an address");
    }
    let (nodes, stores) = away(&one, &clock);
    for node in apart.nodes() {
        nodes.put(node, Arc::new(memory(&clock, 9, 16 << 20, 1 << 20)));
    }
    clock.advance(1);
    let app = |name: &str, topology: &Topology, door: u16| {
        let config = ClusterConfig { allow_flush: true, ..ClusterConfig::new(name) };
        let cluster = cluster(config, topology, &nodes, door as u8, &clock);
        App { cluster, prefix: Some(format!("{name}:").into_bytes()), strip_prefix: false, door: Some(Door(door)) }
    };
    let apps = Apps::new(vec![app("one", &one, 1), app("other", &other, 2), app("apart", &apart, 3)]);
    let through = |door: Door| {
        let cx = Cx::of_worker(Policy::Online, &std::rc::Rc::new(Reactors::default())).through(door);
        block_on(steps::finish(component::flush(&apps, &cx, Exptime::NEVER)))
    };
    assert!(set(&apps.all()[1].cluster, "key0", 0).is_ok());
    let refused = through(Door(1)).expect_err("it would take the other's items").to_string();
    assert_eq!(refused, "the app one has nodes in common with other, which a flush would empty too");
    assert!(stores[0].holds("key0"));
    through(Door(3)).expect("it has nodes of its own");
    assert!(stores[0].holds("key0"));
    through(Door::COMMON).expect("of all apps");
    assert!(!stores[0].holds("key0"));
}
