//! What holds of each topology.

use std::collections::HashSet;
use std::hash::Hash;

use super::error::TopologyError;
use super::replicas::{Node, RingKind, Topology};

/// The nodes a replica has at most: its ring names them by 16 bits.
pub const MAX_NODES: usize = u16::MAX as usize;

/// Whether this can be the name of a zone, in a topology as in what a proxy is told of its own: some text, without control
/// characters.
pub fn is_zone(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

impl Topology {
    /// Whether it can be used. The constructors have checked what they return; this is for those made field by field.
    ///
    /// # Errors
    /// No replica, or none that answers reads; one whose zone [has no name](is_zone); one without nodes; two of one name; two
    /// nodes of a replica in one slot; two nodes at one address, even in two replicas; a weight that the ring cannot have.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.replicas.is_empty() {
            return Err(TopologyError::NoReplicas);
        }
        if let Some(name) = twice(self.replicas.iter().map(|replica| &replica.name)) {
            return Err(TopologyError::SameReplica(name.clone()));
        }
        for replica in &self.replicas {
            if !is_zone(&replica.zone) {
                return Err(TopologyError::Zone { replica: replica.name.clone(), zone: replica.zone.clone() });
            }
            check_nodes(self.ring, &replica.nodes)
                .map_err(|error| TopologyError::Replica { replica: replica.name.clone(), error: Box::new(error) })?;
        }
        if let Some(address) = twice(self.nodes().map(|node| node.address.place()).filter(|place| !place.is_unheld())) {
            return Err(TopologyError::SameAddress(address.to_string()));
        }
        if self.replicas.iter().all(|replica| replica.write_only) {
            return Err(TopologyError::NoReaders);
        }
        Ok(())
    }
}

/// Whether `nodes` can be those of a replica whose ring is of the kind `ring`.
pub(crate) fn check_nodes(ring: RingKind, nodes: &[Node]) -> Result<(), TopologyError> {
    if nodes.is_empty() {
        return Err(TopologyError::NoNodes);
    }
    if nodes.len() > MAX_NODES {
        return Err(TopologyError::TooManyNodes(nodes.len()));
    }
    if nodes.iter().any(|node| node.slot.is_empty()) {
        return Err(TopologyError::EmptySlot);
    }
    if let Some(slot) = twice(nodes.iter().map(|node| &node.slot)) {
        return Err(TopologyError::SameSlot(slot.clone()));
    }
    for node in nodes {
        let why = match node.weight {
            0 => "the least is 1",
            1 => continue,
            _ if ring == RingKind::Evcache => "the ring \"evcache\" has no weights",
            _ => continue,
        };
        return Err(TopologyError::Weight { slot: node.slot.clone(), weight: node.weight, why });
    }
    Ok(())
}

/// The first that has been there before.
fn twice<T: Eq + Hash>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let mut seen = HashSet::new();
    all.find_map(|one| seen.replace(one))
}
