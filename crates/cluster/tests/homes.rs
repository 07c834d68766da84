//! The home of a key dies in the middle of a change, and no process knows whether it stored the result. The key can be read by
//! the copies that are left, as soon as these are more than half, also by a process that starts anew with the hints of the one
//! before.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use common::{Nodes, SEED, cluster, memory, set, topology};
use moneta_cluster::{Cluster, ClusterConfig};
use moneta_memory::Memory;
use moneta_store::request::{Retrieve, Write, WriteMode};
use moneta_store::{
    Calls, Clock, Cx, ErrorKind, Key, Lookup, Op, Put, Step, Store, StoreError, Unseen, Visit, component, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use pollster::block_on;

const WELL: u8 = 0;
/// It stores the result of the next change, and answers nothing from then on.
const DIES: u8 = 1;
/// The same, and it does not store the result.
const DIES_BEFORE: u8 = 2;
const DEAD: u8 = 3;

#[derive(Clone)]
struct Mortal(Arc<(Memory, AtomicU8)>);

impl Double for Mortal {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.0.0
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let (memory, state) = &*self.0;
        match (state.load(Relaxed), op) {
            (DEAD, _) => Step::Done(Err(StoreError::new(ErrorKind::Unreachable, "dead").not_sent())),
            (how @ (DIES | DIES_BEFORE), Op::Put(_, Put::Newer { base: Some(_), .. })) => {
                if how == DIES {
                    memory.call(cx, key, op, out).now().expect("it stores");
                }
                state.store(DEAD, Relaxed);
                Step::Done(Err(StoreError::new(ErrorKind::Lost, "it died")))
            }
            _ => memory.call(cx, key, op, out),
        }
    }
}

struct World {
    clock: Arc<Clock>,
    nodes: Nodes,
    stores: Vec<Mortal>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let (nodes, mut stores) = (Nodes::default(), Vec::new());
        for (number, node) in topology(1).nodes().enumerate() {
            let store = Mortal(Arc::new((memory(&clock, number as u8, 16 << 20, 1 << 20), AtomicU8::new(WELL))));
            nodes.put(node, Arc::new(Layer(store.clone())));
            stores.push(store);
        }
        // So that each node can tell what was deleted.
        clock.advance(1);
        Self { clock, nodes, stores }
    }

    fn cluster(&self, hints: &Path) -> Cluster {
        let config = ClusterConfig { hint_dir: Some(hints.into()), eject_after: 1, ..ClusterConfig::new("app") };
        cluster(config, &topology(1), &self.nodes, 9, &self.clock)
    }

    /// What its threads do in some seconds.
    fn pass(&self, cluster: &Cluster) {
        for _ in 0..100 {
            self.clock.advance_millis(100);
            block_on(cluster.maintain());
            block_on(cluster.settle());
        }
    }

    /// Appends to a key of which this node is the home, while it dies. The key.
    fn die_in_the_middle(&self, cluster: &Cluster, node: usize, how: u8) -> String {
        for number in 0.. {
            let name = format!("key{number}");
            set(cluster, &name, 0).expect("stored");
            self.stores[node].0.1.store(how, Relaxed);
            let request = Write { mode: WriteMode::Append, ..Write::default() };
            let (key, op) = (Key::new(name.as_bytes(), SEED), Op::Write(b"+", &request));
            let ended = block_on(steps::finish(cluster.call(&Cx::outside(), &key, op, &mut Unseen)));
            if ended.is_err() {
                return name;
            }
            // Another one is its home.
            self.stores[node].0.1.store(WELL, Relaxed);
        }
        unreachable!("some key has its home there")
    }
}

fn read(cluster: &Cluster, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let op = Op::Read(&Retrieve::default());
    let step = cluster.call(&Cx::outside(), &Key::new(key.as_bytes(), SEED), op, &mut Unseen);
    Ok(match block_on(steps::finish(step))?.lookup() {
        Lookup::Found(item) => Some(item.value.to_vec()),
        _ => None,
    })
}

/// What the key holds while its home is away is what it held before the change, and stays so on all copies when the home is back.
fn holds_what_was_before(world: &World, cluster: &Cluster, node: usize, key: &str) {
    assert_eq!(read(cluster, key).expect("two copies answer").as_deref(), Some(&b"value"[..]), "{node}");
    world.stores[node].0.1.store(WELL, Relaxed);
    world.pass(cluster);
    for store in &world.stores {
        let mut held = Vec::new();
        let _ = store.0.0.peek(&Key::new(key.as_bytes(), SEED), &mut |item: &moneta_store::ItemRef<'_>| {
            held = item.value.to_vec();
        });
        assert_eq!(held, b"value", "{node}");
    }
}

#[test]
fn a_change_whose_home_died_is_settled_by_the_copies_that_are_left() {
    for (node, how) in (0..3).flat_map(|node| [(node, DIES), (node, DIES_BEFORE)]) {
        let (world, folder) = (World::new(), tempfile::tempdir().expect("a folder"));
        let cluster = world.cluster(folder.path());
        let key = world.die_in_the_middle(&cluster, node, how);
        world.pass(&cluster);
        holds_what_was_before(&world, &cluster, node, &key);
    }
}

#[test]
fn a_change_whose_home_died_is_settled_by_a_process_that_starts_anew() {
    for (node, how) in (0..3).flat_map(|node| [(node, DIES), (node, DIES_BEFORE)]) {
        let (world, folder) = (World::new(), tempfile::tempdir().expect("a folder"));
        let cluster = world.cluster(folder.path());
        let key = world.die_in_the_middle(&cluster, node, how);
        component::close(&cluster);
        drop(cluster);
        let cluster = world.cluster(folder.path());
        // Clients find that the home is away.
        for _ in 0..6 {
            let _ = read(&cluster, &key);
        }
        world.pass(&cluster);
        holds_what_was_before(&world, &cluster, node, &key);
    }
}
