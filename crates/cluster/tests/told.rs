//! What a cluster tells of its requests: how long they take, and how reads end.

mod common;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::{Nodes, SEED, cluster, memory, topology};
use moneta_cluster::{Cluster, ClusterConfig};
use moneta_memory::Memory;
use moneta_store::latency::SAMPLE;
use moneta_store::metric::{Sample, Value};
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::{
    Clock, Cx, ErrorKind, Key, Op, Outcome, Policy, Reactors, Step, Store, StoreError, Unseen, Visit, component, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use pollster::block_on;

/// A node that may be away.
#[derive(Clone)]
struct Node {
    store: Arc<Memory>,
    is_away: Arc<AtomicBool>,
}

impl Double for Node {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.store
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match self.is_away.load(Relaxed) {
            true => Step::Done(Err(StoreError::new(ErrorKind::Unreachable, "away"))),
            false => Store::call(&*self.store, cx, key, op, out),
        }
    }
}

struct World {
    cluster: Cluster,
    /// Two of each of three zones.
    nodes: Vec<Node>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let (known, topology) = (Nodes::default(), topology(2));
        let node = |(number, place)| {
            let store = Arc::new(memory(&clock, number, 16 << 20, 1 << 20));
            let node = Node { store, is_away: Arc::default() };
            known.put(place, Arc::new(Layer(node.clone())));
            node
        };
        let nodes = (0..).zip(topology.nodes()).map(node).collect();
        clock.advance(1);
        let config = ClusterConfig { eject_after: 1, eject_share: 100, ..ClusterConfig::new("app") };
        Self { cluster: cluster(config, &topology, &known, 9, &clock), nodes }
    }

    fn call(&self, key: &str, op: Op<'_>) -> Result<Outcome, StoreError> {
        let key = Key::new(key.as_bytes(), SEED);
        block_on(steps::finish(Store::call(&self.cluster, &Cx::outside(), &key, op, &mut Unseen)))
    }

    /// Takes nodes away, and writes keys of all nodes, so that the cluster finds out. How many writes succeed.
    fn lose(&self, nodes: &[usize]) -> usize {
        nodes.iter().for_each(|&node| self.nodes[node].is_away.store(true, Relaxed));
        let write = |key: usize| self.call(&format!("key{key}"), Op::Write(b"1", &Write::default()));
        (0..40).filter(|&key| write(key).is_ok()).count()
    }

    /// How many keys were read that were there, that were not, and that could not be read.
    fn reads(&self) -> [u64; 3] {
        let told = component::report(&self.cluster, &Cx::outside()).metrics;
        ["hit", "miss", "failed"].map(|result| {
            let is_of =
                |sample: &&Sample| sample.metric.name == "cluster_reads_total" && sample.labels == ["app", result];
            told.iter().find(is_of).map_or(0, |sample| sample.value.number() as u64)
        })
    }

    /// Of a kind of command: how many requests were counted, and how long they took in all.
    fn durations(&self, command: &str) -> (u64, f64) {
        let told = component::report(&self.cluster, &Cx::outside()).metrics;
        let of = told.iter().find(|sample| {
            sample.metric.name == "cluster_request_duration_seconds" && sample.labels == ["app", command]
        });
        match &of.expect("it is told").value {
            Value::Histogram(histogram) => (histogram.count(), histogram.sum),
            other => panic!("{other:?}"),
        }
    }
}

/// One key in 61 is timed: each request counts once in the long run, whatever its kind and however many keys it has.
#[test]
fn times_of_requests_are_told_by_kind() {
    let world = World::new();
    let each = |op: Op<'_>| (0..2 * SAMPLE).for_each(|key| drop(world.call(&format!("key{key}"), op)));
    each(Op::Write(b"1", &Write::default()));
    each(Op::Read(&Retrieve::default()));
    each(Op::Arithmetic(&Arithmetic { delta: 1, ..Arithmetic::default() }));
    each(Op::Delete(&Delete::default()));
    for command in ["set", "get", "arithmetic", "delete"] {
        assert_eq!(world.durations(command).0, 2 * SAMPLE, "{command}");
    }
    assert_eq!((world.durations("touch").0, world.durations("other").0), (0, 0));
    // What only asks what is known at once is no request.
    each(Op::Holds);
    let keys: Vec<Key<'_>> = ["a", "b", "c"].iter().map(|key| Key::new(key.as_bytes(), SEED)).collect();
    for _ in 0..SAMPLE {
        let mut reads = world
            .cluster
            .together()
            .expect("it does")
            .read_several(&Cx::outside(), &keys, &Retrieve::default())
            .expect("together");
        while block_on(std::future::poll_fn(|context| steps::poll_owned(&mut reads, context))).is_some() {}
    }
    assert_eq!(world.durations("get").0, (2 + keys.len() as u64) * SAMPLE);
    assert!(world.durations("get").1 > 0.0);
}

/// Each key that is read counts once, whatever nodes it took, alone or with others.
#[test]
fn reads_are_counted_by_how_they_ended() {
    let world = World::new();
    world.lose(&[]);
    let (request, none) = (Retrieve::default(), [0; 3]);
    assert_eq!(world.reads(), none, "writes are no reads");
    assert!(world.call("key1", Op::Read(&request)).is_ok());
    assert!(world.call("none", Op::Read(&request)).is_ok());
    assert_eq!(world.reads(), [1, 1, 0]);
    // By a worker, whose reads of several keys go to nodes together.
    let mut reactors = Reactors::default();
    component::attach(&world.cluster, &mut reactors);
    let reactors = Rc::new(reactors);
    let cx = Cx::of_worker(Policy::Online, &reactors);
    let several = |names: &[&str]| {
        let keys: Vec<Key<'_>> = names.iter().map(|key| Key::new(key.as_bytes(), SEED)).collect();
        let mut reads =
            world.cluster.together().expect("it does").read_several(&cx, &keys, &request).expect("it reads together");
        let next = || block_on(std::future::poll_fn(|context| steps::poll_owned(&mut reads, context)));
        std::iter::from_fn(next).count()
    };
    assert_eq!(several(&["key1", "none", "key2", "key3", "none"]), 5);
    assert_eq!(world.reads(), [4, 3, 0]);
    // The near copy is any of them: one that is away is a second try, not a second read.
    world.nodes[0].is_away.store(true, Relaxed);
    assert_eq!(several(&["key1", "key2", "key3", "key4"]), 4);
    assert_eq!(world.reads(), [8, 3, 0]);
    world.nodes.iter().for_each(|node| node.is_away.store(true, Relaxed));
    assert_eq!(several(&["key1", "key2"]), 2);
    assert_eq!(world.reads(), [8, 3, 2]);
}
