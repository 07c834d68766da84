//! What stands on one side of a comparison: a server, or the nodes of a copy, each of which has a part of the keys.

use std::fmt;
use std::sync::Arc;

use moneta_net::Address;

/// Tells the node that has a key, as a place among the nodes of a copy.
type NodeOf = Arc<dyn Fn(&[u8]) -> usize + Send + Sync>;

/// One side of a comparison.
#[derive(Clone)]
pub struct ComparedPlace {
    name: String,
    nodes: Vec<Address>,
    node_of: NodeOf,
    is_copy: bool,
}

impl ComparedPlace {
    /// A copy by its name. `node_of` tells which of `nodes` has a key.
    ///
    /// # Panics
    /// If there are no nodes.
    pub fn copy(
        name: impl Into<String>,
        nodes: Vec<Address>,
        node_of: impl Fn(&[u8]) -> usize + Send + Sync + 'static,
    ) -> Self {
        assert!(!nodes.is_empty(), "a copy has nodes");
        Self { name: name.into(), nodes, node_of: Arc::new(node_of), is_copy: true }
    }

    /// Whether it is a copy of a cluster, however few nodes that has.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy
    }

    pub(crate) fn nodes(&self) -> &[Address] {
        &self.nodes
    }

    pub(crate) fn node_of(&self, key: &[u8]) -> usize {
        (self.node_of)(key)
    }
}

impl From<Address> for ComparedPlace {
    fn from(server: Address) -> Self {
        Self { name: server.to_string(), nodes: vec![server], node_of: Arc::new(|_| 0), is_copy: false }
    }
}

/// A server's address, or a copy's name.
impl fmt::Display for ComparedPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl fmt::Debug for ComparedPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ComparedPlace")
            .field("name", &self.name)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
