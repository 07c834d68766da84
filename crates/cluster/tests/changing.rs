//! A request that began under one topology and goes on under the next ends: what it asks of further nodes is sent.

mod common;

use std::cell::RefCell;
use std::future::poll_fn;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use common::{Nodes, SEED, cluster, memory, topology};
use moneta_cluster::{ClusterConfig, Topology};
use moneta_memory::Memory;
use moneta_store::request::Retrieve;
use moneta_store::{
    Calls, Clock, Cx, Key, Lookup, Op, Outcome, OwnedKey, OwnedOp, Pending, Policy, Reactor, Reactors, Slot, Step,
    Store, Unseen, Visit, component, steps,
};
use moneta_testkit::doubles::{Double, Layer};
use rustix::event::{EventfdFlags, eventfd};

/// A node that answers what was begun before the last turn of its reactor.
struct Turned {
    store: Memory,
    slot: Slot,
}

/// Requests that were begun, and wait for a turn.
type Begun = Rc<RefCell<Vec<Rc<RefCell<Waiting>>>>>;

#[derive(Default)]
struct Waiting {
    is_sent: bool,
    waker: Option<Waker>,
}

struct TurnedReactor {
    begun: Begun,
    never: OwnedFd,
}

impl Reactor for TurnedReactor {
    fn descriptor(&self) -> RawFd {
        self.never.as_raw_fd()
    }

    fn turn(&self) {
        for waiting in std::mem::take(&mut *self.begun.borrow_mut()) {
            let mut waiting = waiting.borrow_mut();
            waiting.is_sent = true;
            waiting.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn is_eager(&self) -> bool {
        false
    }

    fn close(&self) {}
}

impl Double for Turned {
    type Inner = Memory;

    fn inner(&self) -> &Memory {
        &self.store
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        let reactor = cx.reactor::<TurnedReactor>(self.slot).expect("it is attached");
        let waiting = Rc::new(RefCell::new(Waiting::default()));
        reactor.begun.borrow_mut().push(Rc::clone(&waiting));
        let (key, op, store) = (OwnedKey::of(key), OwnedOp::of(op), self.store.clone());
        Step::Wait(Box::pin(async move {
            poll_fn(|context| {
                let mut waiting = waiting.borrow_mut();
                waiting.waker = Some(context.waker().clone());
                if waiting.is_sent { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            op.with(|op| steps::read_owned(&store, &Cx::outside(), &key.key(), op)).now()
        }))
    }

    fn attach(&self, worker: &mut Reactors) {
        let never = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        worker.add(self.slot, Rc::new(TurnedReactor { begun: Begun::default(), never }));
    }
}

fn poll(pending: &mut Pending) -> Poll<Result<Outcome, moneta_store::StoreError>> {
    pending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_read_goes_on_to_another_copy_though_the_topology_has_changed() {
    let clock = Arc::new(Clock::manual(1_790_000_000));
    let (nodes, before) = (Nodes::default(), topology(2));
    for node in before.nodes() {
        let store = memory(&clock, 0, 16 << 20, 1 << 20);
        let is_near = node.address.to_string().starts_with('a');
        let key = Key::new(if is_near { &b"near"[..] } else { b"far" }, SEED);
        store.set(&key, b"value", &Default::default()).now().expect("it is stored");
        nodes.put(node, Arc::new(Layer(Turned { store, slot: Slot::draw() })));
    }
    let config = ClusterConfig { zone: Some("a".into()), ..ClusterConfig::new("app") };
    let cluster = cluster(config, &before, &nodes, 1, &clock);
    let mut reactors = Reactors::default();
    component::attach(&cluster, &mut reactors);
    let reactors = Rc::new(reactors);
    let cx = Cx::of_worker(Policy::Online, &reactors);
    let read = |name: &'static [u8]| {
        let request = Retrieve::default();
        steps::into_pending(cluster.call(&cx, &Key::new(name, SEED), Op::Read(&request), &mut Unseen))
    };
    let mut first = read(b"far");
    assert!(poll(&mut first).is_pending());

    cluster.change(&Topology { epoch: 2, ..before }).expect("it is taken");
    let mut other = read(b"near");
    // The near copy has answered that it has no such item.
    assert!(poll(&mut first).is_pending(), "it goes on to a far one");
    for _ in 0..4 {
        reactors.submit();
        reactors.turn();
    }
    let is_hit = |ended| matches!(ended, Poll::Ready(Ok(Outcome::Read(Lookup::Found(_)))));
    assert!(is_hit(poll(&mut other)), "a read under the new topology");
    assert!(is_hit(poll(&mut first)), "what the read asked of a far copy was not sent");
}
