//! Clusters of stores in RAM, in this process.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use moneta_cluster::{Cluster, ClusterConfig, Connect, Node, Opened, Replica, RingKind, Topology, Writer};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::versions::Versioning;
use moneta_store::{Clock, KeyHash, Origin, Store};
use parking_lot::Mutex;

pub const SEED: KeyHash = KeyHash::seeded(7);

/// Nodes by address.
#[derive(Clone, Default)]
pub struct Nodes(Arc<Mutex<HashMap<String, Arc<dyn Store>>>>);

impl Nodes {
    pub fn put(&self, node: &Node, store: Arc<dyn Store>) {
        self.0.lock().insert(node.address.to_string(), store);
    }
}

impl Connect for Nodes {
    fn open(&self, node: &Node) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        let store = self.0.lock().get(&node.address.to_string()).cloned();
        store.map(Opened::from).ok_or_else(|| "no such node".into())
    }

    fn time(&self, _: &Node) -> Option<u64> {
        None
    }
}

/// Three zones, one replica each, of `nodes` nodes.
pub fn topology(nodes: usize) -> Topology {
    let replica = |zone: &str| {
        let node = |number: usize| Node {
            slot: format!("{number}"),
            address: format!("{zone}{number}:11211").parse().expect("an address"),
            admin: None,
            weight: 1,
        };
        let nodes = (0..nodes).map(node).collect();
        Replica { name: zone.into(), zone: zone.into(), write_only: false, nodes }
    };
    Topology { epoch: 1, ring: RingKind::Slots, replicas: ["a", "b", "c"].map(replica).into() }
}

pub fn memory(clock: &Arc<Clock>, writer: u8, limit: u64, item_max: usize) -> Memory {
    let versioning = Versioning { origin: Origin::new(0, writer), cluster: true, ..Versioning::default() };
    let config = MemoryConfig { limit, item_max, evict: true, threads: 1, shards: None, seed: SEED, versioning };
    Memory::new(&config, Arc::clone(clock)).expect("memory")
}

pub fn cluster(config: ClusterConfig, topology: &Topology, nodes: &Nodes, writer: u8, clock: &Arc<Clock>) -> Cluster {
    let writer = Writer { origin: Origin::new(1, writer), salt: u64::from(writer), seed: SEED };
    Cluster::new(config, topology, Box::new(nodes.clone()), writer, 1 << 20, Arc::clone(clock)).expect("a cluster")
}
