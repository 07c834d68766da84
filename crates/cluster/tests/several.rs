//! Reads of several keys at once end as reads of each by itself do, whatever nodes fail or lack.

mod common;

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use common::{Nodes, SEED, cluster, memory, topology};
use moneta_cluster::{ClusterConfig, Fallback};
use moneta_memory::Memory;
use moneta_store::component::{self, Component, Health, Parts, Report};
use moneta_store::request::{Retrieve, Write};
use moneta_store::{
    Calls, Clock, Cx, ErrorKind, Item, ItemRef, Key, KeyHash, Lookup, Op, Outcome, Pending, PendingReads, Policy,
    Reactors, ReadSeveral, Reads, Step, Store, StoreError, Visit, steps,
};

/// A node that reads several keys together and answers reads late, until it fails.
struct Late {
    inner: Memory,
    fails: AtomicBool,
    together: AtomicUsize,
}

/// Ends when it is polled the second time.
struct Second<T>(Option<T>, bool);

impl<T: Unpin> std::future::Future for Second<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if std::mem::replace(&mut self.1, true) {
            return Poll::Ready(self.0.take().expect("it is polled to its end only"));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Late {
    fn look(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Result<Outcome, StoreError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(StoreError::new(ErrorKind::Unreachable, "it fails"));
        }
        steps::read_owned(&self.inner, cx, key, op).now()
    }
}

/// The reads of a [`Late`] one after the other. It shows every other item, and copies the rest.
struct InTurn(std::collections::VecDeque<Pending>);

impl Reads for InTurn {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>> {
        let Some(first) = self.0.front_mut() else { return Poll::Ready(None) };
        let ended = std::task::ready!(first.as_mut().poll(context));
        self.0.pop_front();
        Poll::Ready(Some(ended.map(Outcome::lookup).map(|lookup| match lookup {
            Lookup::Found(item) if self.0.len().is_multiple_of(2) => {
                out.item(&item.as_ref());
                Lookup::Visited
            }
            lookup => lookup,
        })))
    }
}

impl Store for Late {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        Step::Wait(Box::pin(Second(Some(self.look(cx, key, op)), false)))
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        Some(self)
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.inner.seed()
    }
}

impl ReadSeveral for Late {
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        self.together.fetch_add(keys.len(), Ordering::Relaxed);
        let read = |key| -> Pending { Box::pin(Second(Some(self.look(cx, key, Op::Read(request))), false)) };
        Some(Box::pin(InTurn(keys.iter().map(read).collect())))
    }
}

impl Component for Late {
    fn parts(&self) -> Parts<'_> {
        Parts { below: vec![&self.inner], walk: None, flush: None, resize: None, observe: None, feed: None }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, _: Vec<Report>) -> Report {
        Report::default()
    }

    fn health(&self, _: Vec<Health>) -> Health {
        Health::default()
    }

    fn close(&self) {}
}

/// How a read ended: the value, if there is one.
type Ended = Result<Option<Vec<u8>>, ErrorKind>;

fn value(ended: Result<Lookup, StoreError>) -> Ended {
    match ended {
        Ok(Lookup::Found(Item { value, .. })) => Ok(Some(value.into_vec())),
        Ok(_) => Ok(None),
        Err(error) => Err(error.kind()),
    }
}

/// Reads `keys` together and one by one, by a cluster whose near nodes fail as told. Some keys are in far copies alone.
fn compare(fallback: Fallback, failing: &[usize]) -> (usize, Vec<Ended>) {
    let (clock, nodes, topology) = (Arc::new(Clock::system()), Nodes::default(), topology(3));
    let places: Vec<_> = topology.replicas.iter().flat_map(|replica| &replica.nodes).collect();
    let stores: Vec<Arc<Late>> = (0..places.len())
        .map(|number| {
            let inner = memory(&clock, number as u8, 16 << 20, 1 << 20);
            Arc::new(Late { inner, fails: AtomicBool::new(false), together: AtomicUsize::new(0) })
        })
        .collect();
    for (place, store) in places.iter().zip(&stores) {
        nodes.put(place, Arc::clone(store) as Arc<dyn Store>);
    }
    // No node is ejected, so that the second reads meet what the first ones met.
    let app = ClusterConfig {
        zone: Some("a".into()),
        fallback,
        retry_budget: 100,
        eject_after: u32::MAX,
        ..ClusterConfig::new("app")
    };
    let cluster = cluster(app, &topology, &nodes, 1, &clock);
    let mut reactors = Reactors::default();
    component::attach(&cluster, &mut reactors);
    let cx = Cx::of_worker(Policy::Online, &Rc::new(reactors));
    let names: Vec<String> = (0..40).map(|number| format!("key{number}")).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(name.as_bytes(), SEED)).collect();
    for (number, key) in keys.iter().enumerate().filter(|(number, _)| number % 5 != 4) {
        let write = Write::default();
        pollster::block_on(steps::finish(cluster.call(
            &cx,
            key,
            Op::Write(b"value", &write),
            &mut moneta_store::Unseen,
        )))
        .expect("a write");
        for near in stores[..3].iter().filter(|_| number % 5 == 3) {
            let _ = near.inner.delete(key, &moneta_store::request::Delete::default()).now();
        }
    }
    failing.iter().for_each(|&node| stores[node].fails.store(true, Ordering::Relaxed));
    let mut reads =
        cluster.together().expect("it does").read_several(&cx, &keys, &Retrieve::default()).expect("they are plain");
    let mut together = Vec::new();
    while let Some(ended) = pollster::block_on(poll_fn(|context| steps::poll_owned(&mut reads, context))) {
        together.push(value(ended));
    }
    let begun = stores.iter().map(|store| store.together.load(Ordering::Relaxed)).sum();
    // The near copies were filled by these reads: take that back.
    for near in &stores[..3] {
        for key in keys.iter().enumerate().filter(|(number, _)| number % 5 == 3).map(|(_, key)| key) {
            let _ = near.inner.delete(key, &moneta_store::request::Delete::default()).now();
        }
    }
    let one = |key| {
        let step = cluster.call(&cx, key, Op::Read(&Retrieve::default()), &mut |_: &ItemRef<'_>| {});
        value(pollster::block_on(steps::finish(step)).map(Outcome::lookup))
    };
    let alone: Vec<_> = keys.iter().map(one).collect();
    assert_eq!(together, alone, "{fallback:?} without {failing:?}");
    (begun, together)
}

#[test]
fn several_keys_are_read_as_each_by_itself() {
    let expected = |number: usize, far: bool| match number % 5 {
        4 => None,
        3 if !far => None,
        _ => Some(b"value".to_vec()),
    };
    let all = |far| (0..40).map(|number| Ok(expected(number, far))).collect::<Vec<_>>();
    let (together, ended) = compare(Fallback::None, &[]);
    assert_eq!((together, ended), (40, all(false)));
    assert_eq!(compare(Fallback::Miss, &[]), (40, all(true)));
    assert_eq!(compare(Fallback::Miss, &[1]), (40, all(true)));
    let (_, ended) = compare(Fallback::Error, &[0, 1, 2]);
    assert_eq!(ended, all(true), "far copies answer for the near one, which fails");
    let (_, ended) = compare(Fallback::None, &[0]);
    assert!(ended.contains(&Err(ErrorKind::Unreachable)) && ended.contains(&Ok(Some(b"value".to_vec()))), "{ended:?}");
}
