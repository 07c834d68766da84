//! An app's data in several full copies, one or more in each zone, as one store: written to all, read close by.
//!
//! The way of a request: where a proxy has several apps, [`apps`] picks one; [`cluster`] picks the rule of its kind ([`reads`],
//! [`writes`], or [`decide`] for what depends on what a key holds), a [`call`] begins operations on nodes, and a [`reactor`]
//! turns this worker's connections to them. Beside requests, [`maintenance`] sees which nodes are there ([`presence`]), probes
//! those that fail or are [`slow`] and gives them the writes that they missed ([`hints`]). [`catchup`] is the other side: a node
//! that has come back learns from other copies what it has missed.

pub mod catchup;
pub mod ring;
mod rules;
pub mod sources;
pub mod topology;

mod agreement;
mod apart;
mod apps;
mod at_home;
mod board;
mod budget;
mod buried;
mod call;
mod carry;
mod cluster;
mod compared;
mod config;
mod counters;
mod cut;
mod decide;
mod durations;
mod error;
mod fate;
mod flight;
mod flush;
mod health;
mod hints;
mod layout;
mod listening;
mod living;
mod maintenance;
mod mend;
mod mending;
mod metrics;
mod node;
mod notice;
mod overlap;
mod own;
mod pace;
mod pass;
mod post_names;
mod presence;
mod reactor;
mod reads;
mod remote_nodes;
mod settling;
mod several;
mod shared;
mod slow;
mod spread;
mod stamp;
mod status;
mod sweep;
mod time;
mod told;
mod told_keys;
mod topologies;
mod turns;
mod unknown;
mod unversioned;
mod walk;
mod writes;

pub use apps::{App, Apps};
pub use cluster::{Cluster, Writer};
pub use config::{Ack, ClusterConfig, Fallback};
pub use error::ClusterError;
pub use node::{Connect, Heard, Opened};
pub use pace::{Answered, Answers};
pub use remote_nodes::{Configure, RemoteNodes};
pub use ring::Ring;
pub use rules::Rules;
pub use status::{NodeStatus, Routed, Status, Traffic};
pub use topologies::Agreement;
pub use topology::{Node, Replica, RingKind, Topology, TopologyError};

/// For fuzzing.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::hints::testing::{hint_record, read_hints};
}

/// The declarations of the metrics of clusters and of several apps.
pub fn metrics() -> impl Iterator<Item = moneta_store::metric::Metric> {
    metrics::metrics().chain(apps::metrics())
}
