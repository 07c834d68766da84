//! Which nodes hold which copies of an app's data.

mod check;
mod error;
mod evcache;
mod replicas;
mod text;

pub(crate) use check::check_nodes;
pub use check::{MAX_NODES, is_zone};
pub use error::TopologyError;
pub use replicas::{Node, Replica, RingKind, Topology};
