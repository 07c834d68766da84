//! Clusters of stores in RAM, in this process.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use moneta_cluster::{Cluster, ClusterConfig, Connect, Node, Opened, Replica, RingKind, Topology, Writer};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::{Delete, Exptime, Write};
use moneta_store::versions::Versioning;
use moneta_store::{
    Calls, Clock, Cx, ErrorKind, ItemMeta, ItemRef, Key, KeyHash, Op, Origin, Outcome, Put, Step, Store, StoreError,
    Unseen, Value, Visit, Written, steps,
};
use moneta_testkit::doubles::{Double, Layer};
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

/// A node in RAM that may be away. Clones are the same.
#[derive(Clone)]
pub struct Away(Arc<(Memory, AtomicU8)>);

/// It answers; no connection to it comes up; what is sent to it gets lost, or all of that but reads.
const THERE: u8 = 0;
const AWAY: u8 = 1;
const SILENT: u8 = 2;
const READING: u8 = 3;

impl Double for Away {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.0.0
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match self.0.1.load(Relaxed) {
            AWAY => Step::Done(Err(StoreError::new(ErrorKind::Unreachable, "away").not_sent())),
            SILENT => Step::Done(Err(StoreError::new(ErrorKind::Timeout, "silent"))),
            READING if !matches!(op, Op::Read(_) | Op::Peek) => {
                Step::Done(Err(StoreError::new(ErrorKind::Timeout, "silent")))
            }
            _ => self.0.0.call(cx, key, op, out),
        }
    }
}

impl Away {
    pub fn goes(&self, is_away: bool) {
        self.0.1.store(if is_away { AWAY } else { THERE }, Relaxed);
    }

    /// From now on what is sent to it gets lost: whether it took that is not known.
    pub fn is_silent(&self) {
        self.0.1.store(SILENT, Relaxed);
    }

    /// From now on it answers reads, and all else that is sent to it gets lost.
    pub fn answers_reads(&self) {
        self.0.1.store(READING, Relaxed);
    }

    /// The version that it holds of a key.
    pub fn version(&self, key: &str) -> Option<u64> {
        let mut version = None;
        let key = Key::new(key.as_bytes(), SEED);
        let _ = self.0.0.peek(&key, &mut |item: &ItemRef<'_>| version = Some(item.meta.cas)).now();
        version
    }

    /// Stores an item under a version, whatever other nodes have.
    pub fn put_back(&self, key: &str, version: u64) -> bool {
        let meta = ItemMeta { cas: version, ..ItemMeta::default() };
        let item = ItemRef { meta, value: Value::whole(b"old") };
        let put = Op::Put(&item, Put::Newer { as_of: u64::MAX / 2, base: None });
        let key = Key::new(key.as_bytes(), SEED);
        matches!(
            self.0.0.call(&Cx::outside(), &key, put, &mut Unseen).now(),
            Ok(Outcome::Written(Written::Stored { .. }))
        )
    }

    pub fn forget(&self, key: &str) {
        self.0.0.forget(&Key::new(key.as_bytes(), SEED));
    }

    /// Sets a key on this node alone.
    pub fn plant(&self, key: &str) {
        self.0.0.set(&Key::new(key.as_bytes(), SEED), b"value", &Write::default()).now().expect("it stores");
    }

    /// Deletes a key on this node alone.
    pub fn delete(&self, key: &str) {
        self.0.0.delete(&Key::new(key.as_bytes(), SEED), &Delete::default()).now().expect("it deletes");
    }

    pub fn holds(&self, key: &str) -> bool {
        let mut held = false;
        let _ = self.0.0.peek(&Key::new(key.as_bytes(), SEED), &mut |_: &ItemRef<'_>| held = true).now();
        held
    }
}

/// A node that may be away for each of a topology, in its order.
pub fn away(topology: &Topology, clock: &Arc<Clock>) -> (Nodes, Vec<Away>) {
    let nodes = Nodes::default();
    let put = |(number, node): (usize, &Node)| {
        let store = Away(Arc::new((memory(clock, number as u8, 16 << 20, 1 << 20), AtomicU8::new(THERE))));
        nodes.put(node, Arc::new(Layer(store.clone())));
        store
    };
    let stores = topology.nodes().enumerate().map(put).collect();
    (nodes, stores)
}

/// Sets a key to live for so many seconds, 0 for ever.
pub fn set(cluster: &Cluster, key: &str, seconds: i64) -> Result<Outcome, StoreError> {
    let (key, write) = (Key::new(key.as_bytes(), SEED), Write { exptime: Exptime(seconds), ..Write::default() });
    let step = cluster.call(&Cx::outside(), &key, Op::Write(b"value", &write), &mut Unseen);
    pollster::block_on(steps::finish(step))
}
