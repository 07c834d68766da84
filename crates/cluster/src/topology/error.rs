//! Why a topology, or a ring, cannot be had.

use thiserror::Error;

/// What is wrong with a topology. All of it is for the one who wrote it to mend: to read the same text again does not help.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The text does not parse, or has what a topology has not.
    #[error("{0}")]
    Text(String),
    /// There are no replicas.
    #[error("the topology has no replicas")]
    NoReplicas,
    /// All replicas are write-only.
    #[error("the topology has no replica that answers reads: all are write-only")]
    NoReaders,
    /// Two replicas have one name.
    #[error("two replicas have the name \"{0}\"")]
    SameReplica(String),
    /// A replica, or a ring, has no nodes.
    #[error("a replica has no nodes")]
    NoNodes,
    /// A replica, or a ring, has more nodes than a ring can number ([`MAX_NODES`](crate::topology::MAX_NODES)).
    #[error("a replica has {0} nodes: at most 65535 fit a ring")]
    TooManyNodes(usize),
    /// Two nodes of a replica have one slot.
    #[error("two nodes of a replica have the slot \"{0}\"")]
    SameSlot(String),
    /// A node's slot has no name.
    #[error("a node has an empty slot name")]
    EmptySlot,
    /// Two nodes have one address.
    #[error("two nodes have the address {0}")]
    SameAddress(String),
    /// A weight is zero, or is not 1 in a ring that has no weights.
    #[error("node \"{slot}\" has weight {weight}: {why}")]
    Weight {
        /// The node's slot.
        slot: String,
        /// Its weight.
        weight: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A replica's zone has no name, or one with control characters.
    #[error("replica \"{replica}\": the zone {zone:?} must be a text without control characters")]
    Zone {
        /// The replica's name.
        replica: String,
        /// What stands for the zone's.
        zone: String,
    },
    /// What is wrong with one replica.
    #[error("replica \"{replica}\": {error}")]
    Replica {
        /// Its name.
        replica: String,
        /// What is wrong.
        error: Box<TopologyError>,
    },
}
