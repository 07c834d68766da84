//! What a cluster store tells of its nodes, for people and tools.

use crate::layout::Replica;
use crate::node::Node;

/// The nodes of an app and how they are.
#[derive(Clone, Debug)]
pub struct Status {
    /// The app.
    pub app: String,
    /// The topology's epoch.
    pub epoch: u64,
    /// In the topology's order.
    pub nodes: Vec<NodeStatus>,
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// The replica.
    pub replica: String,
    /// Its zone.
    pub zone: String,
    /// The slot in the replica's ring.
    pub slot: String,
    /// Where it serves.
    pub address: String,
    /// It answers no reads.
    pub write_only: bool,
    /// It is asked; else it has failed, and is probed.
    pub up: bool,
    /// It catches up with other copies: it takes writes, and answers no reads.
    pub behind: bool,
    /// Failures since its last answer.
    pub failures: u32,
    /// Writes that it lacks and will be given.
    pub hints: u64,
    /// Everything it holds is to be dropped before: it lacks more than could be kept, or a flush.
    pub flush_pending: bool,
}

impl NodeStatus {
    /// At `now`, in milliseconds since the Unix epoch.
    pub(crate) fn of(replica: &Replica, node: &Node, now: u64) -> Self {
        Self {
            replica: replica.name.clone(),
            zone: replica.zone.clone(),
            slot: node.place.slot.clone(),
            address: node.place.address.to_string(),
            write_only: replica.write_only,
            up: !node.health.is_ejected(),
            behind: node.health.is_behind(now),
            failures: node.health.failures(),
            hints: node.hints.counts().0,
            flush_pending: node.hints.floor().is_some(),
        }
    }
}
