//! An app's data in several full copies, one or more in each zone, as one store: written to all, read close by.

pub mod ring;
pub mod topology;

pub use ring::Ring;
pub use topology::{Node, Replica, RingKind, Topology, TopologyError};
