//! A side of a repair: the nodes that are compared, and where what is missing is written.

use std::sync::Arc;

use moneta_net::Endpoint;
use moneta_store::Store;

/// Which of a side's nodes has a key, by its place.
pub type NodeOf = Arc<dyn Fn(&[u8]) -> usize + Send + Sync>;

/// A node that is compared.
#[derive(Clone)]
pub struct SideNode {
    /// Its name in messages.
    pub name: String,
    /// Its admin side, which tells digests.
    pub admin: Endpoint,
    /// Its items.
    pub store: Arc<dyn Store>,
}

/// A side.
#[derive(Clone)]
pub struct Side {
    /// Its name in messages.
    pub name: String,
    /// Its nodes, which together hold each key once.
    pub nodes: Vec<SideNode>,
    /// Which of them has a key.
    pub node_of: NodeOf,
    /// Where it is written to: the node or copy itself, or all copies of its cluster; `None`: to the nodes that are compared.
    pub cluster: Option<Arc<dyn Store>>,
}

impl Side {
    /// The node that has a key.
    pub(crate) fn node(&self, key: &[u8]) -> &SideNode {
        &self.nodes[(self.node_of)(key)]
    }

    /// What takes writes of a key.
    pub(crate) fn target(&self, key: &[u8]) -> &Arc<dyn Store> {
        self.cluster.as_ref().unwrap_or(&self.node(key).store)
    }
}
