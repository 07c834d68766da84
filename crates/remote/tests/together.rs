//! Reads that a worker begins together: each ends as it would by itself, whatever protocol, connection or fate the others have.

mod common;

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use common::{Memcached, SEED, config, remote, wait_until};
use moneta_client::wire::Protocol;
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Cx, Item, ItemRef, Key, Lookup, Op, Outcome, Pending, PendingReads, Policy, Reactors, Step, Store, Unseen,
    component, steps,
};

/// A thread with an event loop, turned by hand.
struct Worker {
    store: Remote,
    reactors: Rc<Reactors>,
    cx: Cx,
}

impl Worker {
    fn new(config: RemoteConfig) -> Self {
        let store = remote(config);
        let mut reactors = Reactors::default();
        component::attach(&store, &mut reactors);
        let reactors = Rc::new(reactors);
        let cx = Cx::of_worker(Policy::Online, &reactors);
        Self { store, reactors, cx }
    }

    /// Turns until it is ready.
    fn wait<T>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let mut ended = None;
        wait_until("it ends", || {
            self.reactors.turn();
            if let Poll::Ready(end) = poll(&mut Context::from_waker(Waker::noop())) {
                ended = Some(end);
            }
            ended.is_some()
        });
        ended.expect("it has ended")
    }

    fn call(&self, key: &str, op: Op<'_>) -> Outcome {
        let step = self.store.call(&self.cx, &Key::new(key.as_bytes(), SEED), op, &mut Unseen);
        let ended = match step {
            Step::Done(ended) => ended,
            Step::Wait(mut pending) => self.wait(|context| Pending::as_mut(&mut pending).poll(context)),
        };
        ended.expect("the server answers")
    }

    fn set(&self, key: &str, value: &[u8]) {
        let write = Write { flags: value.len() as u32, ..Write::default() };
        self.call(key, Op::Write(value, &write));
    }

    fn begin(&self, names: &[String]) -> PendingReads {
        let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(name.as_bytes(), SEED)).collect();
        self.store
            .together()
            .expect("it reads together")
            .read_several(&self.cx, &keys, &Retrieve::BRIEF)
            .expect("it reads together")
    }

    /// The next one's end.
    fn next(&self, reads: &mut PendingReads) -> Option<Lookup> {
        self.wait(|context| steps::poll_owned(reads, context)).map(|ended| ended.expect("the server answers"))
    }

    /// Reads an item so that it may win a recache, and whether it has won.
    fn wins(&self, key: &str) -> bool {
        let claim = Retrieve { claim: true, ..Retrieve::default() };
        match self.call(key, Op::Read(&claim)).lookup() {
            Lookup::Found(Item { meta, .. }) => {
                assert!(meta.stale, "{meta:?}");
                meta.won
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What is stored under the key of this number: nothing, an empty value, short ones, a long one.
fn value(number: usize) -> Option<Vec<u8>> {
    let length = match number % 7 {
        3 => return None,
        5 => 0,
        6 => 100 << 10,
        _ => number * 10,
    };
    Some((0..length).map(|byte| (byte + number) as u8).collect())
}

fn names() -> Vec<String> {
    (0..40).map(|number| format!("key:{number}")).collect()
}

#[test]
fn each_ends_as_it_would_alone() {
    let memcached = Memcached::start(&[]);
    for (protocol, connections) in
        [(Protocol::Meta, 1), (Protocol::Meta, 3), (Protocol::Binary, 1), (Protocol::Text, 2)]
    {
        let worker = Worker::new(RemoteConfig { protocol: Some(protocol), connections, ..config(memcached.path()) });
        let names = names();
        for (number, name) in names.iter().enumerate() {
            if let Some(value) = value(number) {
                worker.set(name, &value);
            }
        }
        // Later rounds use the memory of earlier ones, of which some are left in the middle.
        for round in 0..20 {
            let mut left = worker.begin(&names[round..]);
            let mut reads = worker.begin(&names);
            for number in 0..names.len() {
                if number < round {
                    worker.next(&mut left).expect("there are more");
                }
                match (worker.next(&mut reads).expect("an end for each key"), value(number)) {
                    (Lookup::Found(Item { meta, value: found }), Some(value)) => {
                        assert!(found == value, "{protocol:?}, {number}: {} bytes", found.len());
                        assert_eq!(meta.flags, value.len() as u32);
                    }
                    (Lookup::Miss { .. }, None) => {}
                    (other, _) => panic!("{protocol:?}, {number}: {other:?}"),
                }
            }
            assert_eq!(worker.next(&mut reads), None);
        }
    }
}

#[test]
fn items_are_shown_from_where_they_lie() {
    let memcached = Memcached::start(&[]);
    let worker = Worker::new(config(memcached.path()));
    worker.set("key:0", b"value");
    let mut reads = worker.begin(&names()[..2]);
    let mut shown = Vec::new();
    let ended = worker
        .wait(|context| reads.as_mut().poll_next(context, &mut |item: &ItemRef<'_>| shown.push(item.value.to_vec())));
    assert!(matches!(ended, Some(Ok(Lookup::Visited))), "{ended:?}");
    assert_eq!(shown, [b"value".to_vec()]);
}

/// memcached gives the recache of a stale item to the first who reads it over meta, also to one who cannot be told.
#[test]
fn a_recache_that_no_reader_asked_for_is_given_back() {
    let memcached = Memcached::start(&[]);
    let worker = Worker::new(config(memcached.path()));
    let names = names();
    let stale = Delete { invalidate: true, touch: Some(Exptime(1000)), ..Delete::default() };
    for how_many in [0, 1, 3] {
        for name in &names[..3] {
            worker.set(name, b"value");
            worker.call(name, Op::Delete(&stale));
        }
        let mut reads = worker.begin(&names[..3]);
        for _ in 0..how_many {
            match worker.next(&mut reads) {
                Some(Lookup::Found(item)) => assert!(item.meta.stale && !item.meta.won, "{:?}", item.meta),
                other => panic!("{other:?}"),
            }
        }
        if how_many == 1 {
            // The answers to the others are there by now.
            worker.call("another", Op::Read(&Retrieve::default()));
        }
        drop(reads);
        worker.call("another", Op::Read(&Retrieve::default()));
        for name in &names[..3] {
            assert!(worker.wins(name), "{name} after {how_many}");
            assert!(!worker.wins(name), "{name} after {how_many}");
        }
    }
}
