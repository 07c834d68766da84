//! Where topologies come from, with files and a name server that are there: what is read, what is believed, and what is kept for
//! a bad day. A source that is believed too fast empties a cluster by a slip in a file; one that is believed too late is never
//! followed.

mod dns;
mod files;
mod guard;
mod server;

use std::time::{Duration, Instant};

use moneta_cluster::Topology;
use moneta_cluster::sources::{SourceError, TopologySource};

/// A bound against tests that hang.
const LONG: Duration = Duration::from_secs(60);

/// What the source says when it is read once more.
fn read(source: &mut impl TopologySource) -> Result<Option<Topology>, SourceError> {
    source.next(LONG)
}

/// Reads until the source says something that is a change.
fn changed(source: &mut impl TopologySource) -> Topology {
    let from = Instant::now();
    while from.elapsed() < LONG {
        if let Ok(Some(topology)) = read(source) {
            return topology;
        }
    }
    panic!("{} says nothing", source.name());
}

/// The text of a topology: replicas and their slots.
fn text(replicas: &[(&str, &[&str])]) -> String {
    let mut text = String::new();
    for (number, (zone, slots)) in replicas.iter().enumerate() {
        let nodes: Vec<String> =
            slots.iter().map(|slot| format!("\"{slot}=10.0.{number}.1:{}\"", port(slot))).collect();
        text += &format!("[[replica]]\nzone = \"{zone}\"\nnodes = [{}]\n", nodes.join(", "));
    }
    text
}

/// A port that follows from the slot, so that a slot keeps its address.
fn port(slot: &str) -> u32 {
    slot.bytes().fold(1, |port, byte| (port * 31 + u32::from(byte)) % 60_000) + 1
}

fn slots(topology: &Topology) -> Vec<&str> {
    topology.nodes().map(|node| node.slot.as_str()).collect()
}

fn addresses(topology: &Topology) -> Vec<String> {
    topology.nodes().map(|node| node.address.to_string()).collect()
}
