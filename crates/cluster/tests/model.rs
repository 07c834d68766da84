//! A cluster whose nodes are all well does exactly what one store does.

mod common;

use std::sync::Arc;

use common::{Nodes, cluster, memory, topology};
use moneta_cluster::{Ack, ClusterConfig};
use moneta_store::Clock;
use moneta_store::request::Exptime;
use moneta_testkit::suite::{self, Operation, Options, SuiteConfig};

/// CAS values are versions here: clients cannot choose them, and what changes an item makes another.
fn asks(operation: &Operation) -> bool {
    match operation {
        Operation::Get { request, .. } => {
            // A longer life reaches the other copies with the mark that it was fetched, by which other regions are told of it.
            let is_marked = request.touch.is_none() || request.bump;
            let never = request.touch.is_none_or(|touch| touch == Exptime::NEVER);
            request.new_cas.is_none() && !request.claim && never && is_marked
        }
        Operation::Set { request, .. } => request.new_cas.is_none(),
        Operation::Delete { request, .. } => request.new_cas.is_none() && !request.drop_value,
        Operation::Arithmetic { request, .. } => request.new_cas.is_none(),
        Operation::Resize { .. } | Operation::WalkOn | Operation::WalkAll => false,
        _ => true,
    }
}

fn make(ack: Ack) -> impl Fn(SuiteConfig, Arc<Clock>) -> moneta_cluster::Cluster {
    move |config, clock| {
        let (nodes, topology) = (Nodes::default(), topology(2));
        for (number, node) in topology.replicas.iter().flat_map(|replica| &replica.nodes).enumerate() {
            nodes.put(node, Arc::new(memory(&clock, number as u8, config.memory, config.value_max)));
        }
        // So that every node can tell what was deleted.
        clock.advance(1);
        let app = ClusterConfig { ack, allow_flush: true, zone: Some("b".into()), ..ClusterConfig::new("app") };
        cluster(app, &topology, &nodes, 1, &clock)
    }
}

#[test]
fn three_copies_of_two_nodes_equal_the_model() {
    let options = || Options::exact().asks(asks).rounds(6).last_access_slack(u32::MAX).fetched_slack();
    suite::run(make(Ack::Quorum), options());
    suite::run(make(Ack::All), options());
    suite::run(make(Ack::One), options().rounds(2));
}
