//! What a cluster store tells of its nodes, for people and tools.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moneta_store::component;

use crate::layout::Replica;
use crate::node::Node;
use crate::topologies::Agreement;

/// The nodes of an app and how they are.
#[derive(Clone, Debug)]
pub struct Status {
    /// The app.
    pub app: String,
    /// The topology's epoch.
    pub epoch: u64,
    /// How the topology stands to those of other processes of the app.
    pub agreement: Agreement,
    /// Why the topology's source cannot be read, if it cannot: the topology is that of before.
    pub source_failure: Option<Arc<str>>,
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
    /// It is not asked since it was far slower than others.
    pub slow: bool,
    /// How long it took to answer, on average, when that was looked at last.
    pub answer_time: Option<Duration>,
    /// It catches up with other copies: it takes writes, and answers no reads.
    pub behind: bool,
    /// The topology's source says that it leaves: reads ask it last.
    pub leaving: bool,
    /// Why no connection to it comes up, if none does.
    pub trouble: Option<String>,
    /// Since when it is not asked, in milliseconds since the Unix epoch.
    pub ejected_since: Option<u64>,
    /// Times that it was not asked any more.
    pub ejections: u64,
    /// Answers with a version from the future, which were not believed.
    pub future: u64,
    /// Failures since its last answer.
    pub failures: u32,
    /// Writes that it lacks and will be given.
    pub hints: u64,
    /// Memory of these, in bytes.
    pub hint_bytes: u64,
    /// What goes over its connections; none where that was not asked for.
    pub traffic: Traffic,
    /// The share of its keys that is in doubt: it lacks more writes of them than hints could be kept for.
    pub in_doubt: f64,
    /// Why these cannot be compared with other copies, if they cannot: until they are, they stay in doubt.
    pub doubt_failure: Option<Arc<str>>,
    /// It lacks a flush.
    pub flush_pending: bool,
}

/// What goes over the connections to a node, as far as its store counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that are open.
    pub connections: u64,
    /// Requests begun.
    pub requests: u64,
    /// Of these, those that failed.
    pub errors: u64,
    /// Requests that wait for a reply.
    pub in_flight: u64,
}

impl Traffic {
    /// What a remote store counts. Another kind of store counts nothing of this.
    pub(crate) fn of(node: &Node) -> Self {
        let samples = component::report(&*node.store, &moneta_store::Cx::outside()).metrics;
        let sum = |name: &str| {
            let of_name = samples.iter().filter(|sample| sample.metric.name == name);
            of_name.map(|sample| sample.value.number() as u64).sum()
        };
        Self {
            connections: sum("remote_connections"),
            requests: sum("remote_requests_total"),
            errors: sum("remote_errors_total"),
            in_flight: sum("remote_in_flight"),
        }
    }
}

/// A copy of one key.
#[derive(Clone, Debug)]
pub struct Routed {
    /// The node that has it.
    pub node: NodeStatus,
    /// The node is known to lack a write of the key, or has not said yet that it took it: what it shows may be old.
    pub lacks_write: bool,
}

impl NodeStatus {
    /// At `now`, in milliseconds since the Unix epoch.
    pub(crate) fn of(replica: &Replica, node: &Node, now: u64) -> Self {
        let (hints, hint_bytes, _) = node.hints.counts();
        Self {
            replica: replica.name.clone(),
            zone: replica.zone.clone(),
            slot: node.place.slot.clone(),
            address: node.place.address.to_string(),
            write_only: replica.write_only,
            up: !node.health.is_ejected(),
            slow: node.health.slow_limit().is_some(),
            answer_time: node.pace.mean(),
            behind: node.health.is_behind(now),
            leaving: node.health.is_leaving(now),
            trouble: component::health(&*node.store).notes.into_iter().next(),
            ejected_since: node.health.ejected_since(),
            ejections: node.health.ejections.load(Ordering::Relaxed),
            future: node.future.load(Ordering::Relaxed),
            failures: node.health.failures(),
            hints,
            hint_bytes,
            traffic: Traffic::default(),
            in_doubt: node.hints.doubt_share(),
            doubt_failure: node.doubt_failure(),
            flush_pending: !node.hints.floors().is_empty(),
        }
    }
}
