//! Which nodes hold the keys of this node in other copies.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use moneta_net::Address;
use moneta_store::feed::COPY_READER;

use crate::ring::Ring;
use crate::topology::{Node, Replica, Topology, TopologyError};

/// Most bytes of a reader's name.
const NAME_MAX: usize = 64;

/// This node's place in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnPlace {
    replica: usize,
    node: usize,
}

/// The keys that this node holds.
pub(super) struct Keys {
    ring: Ring,
    node: usize,
}

impl Keys {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.ring.node(key) == self.node
    }

    /// Whether some of them are not among `others`.
    pub(super) fn exceeds(&self, others: &Self) -> bool {
        let is_more = |hash| self.ring.node_of_hash(hash) == self.node && others.ring.node_of_hash(hash) != others.node;
        self.ring.kind() != others.ring.kind() || self.ring.edges().chain(others.ring.edges()).any(is_more)
    }
}

/// The nodes of another copy that hold keys of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) replica: String,
    pub(super) nodes: Vec<Address>,
}

/// Where this node stands: under `own`, or else at an address of this machine with one of `ports`.
pub(super) fn place(topology: &Topology, own: Option<&Address>, ports: &[u16]) -> Option<OwnPlace> {
    let is_own = |node: &Node| match own {
        Some(own) => node.address.place() == own.place(),
        None => node.address.resolve().unwrap_or_default().iter().any(|address| is_here(address, ports)),
    };
    let places = topology.replicas.iter().enumerate();
    places
        .flat_map(|(replica, of)| of.nodes.iter().enumerate().map(move |(number, node)| (replica, number, node)))
        .find(|(_, _, node)| is_own(node))
        .map(|(replica, node, _)| OwnPlace { replica, node })
}

fn is_here(address: &SocketAddr, ports: &[u16]) -> bool {
    ports.contains(&address.port()) && is_of_this_machine(address.ip())
}

/// Only an address of this machine can be bound.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The keys of a place.
pub(super) fn keys(topology: &Topology, place: OwnPlace) -> Result<Arc<Keys>, TopologyError> {
    let ring = Ring::new(topology.ring, &topology.replicas[place.replica].nodes)?;
    Ok(Arc::new(Keys { ring, node: place.node }))
}

/// The name of a place as a reader of feeds: nodes keep places for such names.
pub(super) fn reader_name(topology: &Topology, place: OwnPlace) -> String {
    let address = topology.replicas[place.replica].nodes[place.node].address.place().to_string();
    let is_plain = address.len() < NAME_MAX - COPY_READER.len() && address.bytes().all(|byte| byte.is_ascii_graphic());
    // Under the name alone nodes of earlier builds read.
    if is_plain { format!("{COPY_READER}:{address}") } else { COPY_READER.to_owned() }
}

/// The copies to learn from, in the order in which they are asked: those of nodes in one replica begin with different ones.
pub(super) fn sources(topology: &Topology, place: OwnPlace) -> Vec<Source> {
    let own = &topology.replicas[place.replica];
    let mut sources: Vec<Source> = topology
        .replicas
        .iter()
        .enumerate()
        .filter(|(number, replica)| *number != place.replica && !replica.write_only)
        .map(|(_, replica)| Source { replica: replica.name.clone(), nodes: holders(own, place, replica) })
        .collect();
    if !sources.is_empty() {
        let first = place.node % sources.len();
        sources.rotate_left(first);
    }
    sources
}

/// The nodes of `other` that hold keys of a place. Replicas with the same slots divide the keys alike.
fn holders(own: &Replica, place: OwnPlace, other: &Replica) -> Vec<Address> {
    let slots = |replica: &Replica| {
        let mut slots: Vec<(String, u32)> = replica.nodes.iter().map(|node| (node.slot.clone(), node.weight)).collect();
        slots.sort_unstable();
        slots
    };
    let slot = &own.nodes[place.node].slot;
    let is_alike = slots(own) == slots(other);
    let nodes = other.nodes.iter().filter(|node| !is_alike || node.slot == *slot);
    nodes.map(|node| node.address.clone()).collect()
}

/// Copies that count for acknowledgements.
pub(super) fn copies(topology: &Topology) -> usize {
    topology.replicas.iter().filter(|replica| !replica.write_only).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        epoch = 1
        [[replica]]
        zone = "a"
        nodes = ["0=127.0.0.1:21100", "1=127.0.0.1:21101"]
        [[replica]]
        zone = "b"
        nodes = ["1=127.0.0.1:21201", "0=127.0.0.1:21200"]
        [[replica]]
        zone = "c"
        nodes = ["0=127.0.0.1:21300", "1=127.0.0.1:21301", "2=127.0.0.1:21302"]
        [[replica]]
        zone = "d"
        write_only = true
        nodes = ["0=127.0.0.1:21400"]
    "#;

    fn addresses(source: &Source) -> Vec<String> {
        source.nodes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_finds_its_place_by_its_port_or_its_name() {
        let topology = Topology::from_toml(TEXT).expect("it makes sense");
        let at = |replica, node| Some(OwnPlace { replica, node });
        assert_eq!(place(&topology, None, &[9, 21201]), at(1, 0));
        assert_eq!(place(&topology, None, &[9]), None);
        let own: Address = "127.0.0.1:21302".parse().expect("an address");
        assert_eq!(place(&topology, Some(&own), &[21100]), at(2, 2));
        assert!(!is_of_this_machine(IpAddr::from([192, 0, 2, 1])), "an address for documentation");
    }

    #[test]
    fn only_nodes_that_share_keys_are_read() {
        let topology = Topology::from_toml(TEXT).expect("it makes sense");
        let sources = sources(&topology, OwnPlace { replica: 0, node: 1 });
        let names: Vec<&str> = sources.iter().map(|source| source.replica.as_str()).collect();
        assert_eq!(names.len(), 2, "neither this replica nor one that is being filled: {names:?}");
        let by_zone = |first: &str| sources.iter().find(|source| addresses(source)[0].starts_with(first));
        let alike = by_zone("127.0.0.1:212").expect("zone b");
        assert_eq!(addresses(alike), ["127.0.0.1:21201"]);
        let other = by_zone("127.0.0.1:213").expect("zone c");
        assert_eq!(other.nodes.len(), 3, "another division of the keys");
        let keys = keys(&topology, OwnPlace { replica: 0, node: 1 }).expect("a ring");
        let own = (0..1000).filter(|key| keys.contains(format!("key{key}").as_bytes())).count();
        assert!((300..700).contains(&own), "{own} of 1000 keys of one of two nodes");
    }
}
