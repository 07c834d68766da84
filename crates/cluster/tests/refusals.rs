//! Nodes that refuse a write for what it is: what the client is told where they differ, and where no answer is waited for.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use common::{Nodes, SEED, cluster, memory, topology};
use moneta_cluster::{Ack, Cluster, ClusterConfig};
use moneta_memory::Memory;
use moneta_store::request::Write;
use moneta_store::{
    Calls, Clock, Cx, ErrorKind, ItemMeta, ItemRef, Key, Op, Outcome, Put, Step, Store, StoreError, Unseen, Value,
    Version, Visit, Written, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use pollster::block_on;

const TAKES: u8 = 0;
/// Its clock is behind.
const AHEAD: u8 = 1;
const TOO_LARGE: u8 = 2;

#[derive(Clone)]
struct Refuses(Arc<(Memory, AtomicU8)>);

impl Double for Refuses {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.0.0
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match (self.0.1.load(Relaxed), &op) {
            (AHEAD, Op::Put(..)) => Step::Done(Err(StoreError::clock_ahead())),
            (TOO_LARGE, Op::Put(..)) => Step::Done(Ok(Written::TooLarge.into())),
            _ => self.0.0.call(cx, key, op, out),
        }
    }
}

struct World {
    clock: Arc<Clock>,
    cluster: Cluster,
    nodes: Vec<Refuses>,
}

impl World {
    fn new(ack: Ack, refuse: [u8; 3]) -> Self {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let (nodes, mut stores) = (Nodes::default(), Vec::new());
        for ((number, node), refuses) in topology(1).nodes().enumerate().zip(refuse) {
            let store = Refuses(Arc::new((memory(&clock, number as u8, 16 << 20, 1 << 20), AtomicU8::new(refuses))));
            nodes.put(node, Arc::new(Layer(store.clone())));
            stores.push(store);
        }
        clock.advance(1);
        let config = ClusterConfig { ack, ..ClusterConfig::new("app") };
        Self { cluster: cluster(config, &topology(1), &nodes, 9, &clock), clock, nodes: stores }
    }

    fn call(&self, op: Op<'_>) -> Result<Outcome, StoreError> {
        block_on(steps::finish(self.cluster.call(&Cx::outside(), &Key::new(b"key", SEED), op, &mut Unseen)))
    }

    fn set(&self) -> Result<Outcome, StoreError> {
        self.call(Op::Write(b"value", &Write::default()))
    }

    fn refuse(&self, how: u8) {
        self.nodes.iter().for_each(|node| node.0.1.store(how, Relaxed));
    }

    fn holds(&self) -> usize {
        let holds = |node: &&Refuses| {
            let mut held = false;
            let _ = node.0.0.peek(&Key::new(b"key", SEED), &mut |_: &ItemRef<'_>| held = true).now();
            held
        };
        self.nodes.iter().filter(holds).count()
    }
}

fn is_ahead(ended: &Result<Outcome, StoreError>) -> bool {
    matches!(ended, Err(error) if error.kind() == ErrorKind::ClockAhead)
}

#[test]
fn what_one_node_refuses_does_not_outrank_what_most_say() {
    for node in 0..3 {
        let mut refuse = [AHEAD; 3];
        refuse[node] = TOO_LARGE;
        let ended = World::new(Ack::Quorum, refuse).set();
        assert!(is_ahead(&ended), "one of three finds it too large: {ended:?}");
        let mut refuse = [TOO_LARGE; 3];
        refuse[node] = AHEAD;
        let ended = World::new(Ack::Quorum, refuse).set();
        assert!(matches!(ended, Ok(Outcome::Written(Written::TooLarge))), "most do: {ended:?}");
        let mut refuse = [TAKES; 3];
        refuse[node] = TOO_LARGE;
        let ended = World::new(Ack::Quorum, refuse).set();
        assert!(matches!(ended, Ok(Outcome::Written(Written::Stored { .. }))), "most take it: {ended:?}");
    }
}

#[test]
fn where_no_answer_is_waited_for_refusals_are_told_from_the_next_write_on() {
    let world = World::new(Ack::None, [AHEAD; 3]);
    // Its refusals come after its answer.
    assert!(world.set().is_ok());
    for _ in 0..3 {
        let ended = world.set();
        assert!(is_ahead(&ended) && world.holds() == 0, "{ended:?}");
    }
    world.refuse(TAKES);
    assert!(matches!(world.set(), Ok(Outcome::Written(Written::Stored { .. }))));
    assert_eq!(world.holds(), 3);
}

#[test]
fn where_no_answer_is_waited_for_a_version_from_the_future_is_refused_at_once() {
    let world = World::new(Ack::None, [TAKES; 3]);
    let meta = ItemMeta { cas: Version::at(world.clock.millis() + 365 * 86_400_000).0, ..ItemMeta::default() };
    let item = ItemRef { meta, value: Value::whole(b"value") };
    let put = Op::Put(&item, Put::Newer { as_of: world.clock.millis(), base: None });
    assert!(is_ahead(&world.call(put)) && is_ahead(&world.call(Op::Bury(item.meta.version()))));
    assert_eq!(world.holds(), 0);
    assert!(world.set().is_ok());
    assert_eq!(world.holds(), 3, "and stops nothing");
}
