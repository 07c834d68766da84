//! Keys that one request reads are read together from a lower tier that does such reads. Answers do not show a layer that does
//! not pass this on: they are right, with one round trip for each key. So the tests count the round trips.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use moneta_layers::feed::Feed;
use moneta_layers::{Chunked, ChunkedConfig, Promotion, Tiered, TieredConfig};
use moneta_store::component::{Component, Health, Parts, Report};
use moneta_store::request::{Exptime, Retrieve, Write};
use moneta_store::steps::poll_owned;
use moneta_store::{
    Calls, Clock, Cx, ItemRef, Key, KeyHash, Lookup, Op, Outcome, PendingReads, Reactors, ReadSeveral, Reads, Step,
    Store, StoreError, Visit,
};
use moneta_testkit::model::ModelStore;

use crate::scripted::{START, VALUE_MAX};

/// A store that reads together, and counts. Its reads end when they are polled for the second time.
#[derive(Clone)]
struct Server(Arc<Counted>);

struct Counted {
    inner: ModelStore,
    /// Reads of one key.
    alone: AtomicUsize,
    /// Reads of several keys, and the keys of all.
    together: AtomicUsize,
    keys: AtomicUsize,
}

impl Server {
    fn new(clock: &Arc<Clock>) -> Self {
        let inner = ModelStore::new(Arc::clone(clock), VALUE_MAX);
        Self(Arc::new(Counted {
            inner,
            alone: AtomicUsize::new(0),
            together: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
        }))
    }

    /// Reads of one key, of several, and the keys of these, since the last time.
    fn counted(&self) -> (usize, usize, usize) {
        let take = |count: &AtomicUsize| count.swap(0, Ordering::Relaxed);
        (take(&self.0.alone), take(&self.0.together), take(&self.0.keys))
    }
}

impl Store for Server {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        self.0.alone.fetch_add(usize::from(matches!(op, Op::Read(_))), Ordering::Relaxed);
        self.0.inner.call(cx, key, op, out)
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        Some(self)
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.0.inner.seed()
    }
}

impl ReadSeveral for Server {
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        self.0.together.fetch_add(1, Ordering::Relaxed);
        self.0.keys.fetch_add(keys.len(), Ordering::Relaxed);
        let read = |key| moneta_store::steps::read_owned(&self.0.inner, cx, key, Op::Read(request));
        let ends = keys.iter().map(|key| read(key).now().map(Outcome::lookup)).collect();
        Some(Box::pin(Late { ends, asked: false }))
    }
}

struct Late {
    ends: VecDeque<Result<Lookup, StoreError>>,
    asked: bool,
}

impl Reads for Late {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        _: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>> {
        if !std::mem::replace(&mut self.asked, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.ends.pop_front())
    }
}

impl Component for Server {
    fn parts(&self) -> Parts<'_> {
        self.0.inner.parts()
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, cx: &Cx, below: Vec<Report>) -> Report {
        self.0.inner.report(cx, below)
    }

    fn health(&self, below: Vec<Health>) -> Health {
        Component::health(&self.0.inner, below)
    }

    fn close(&self) {}
}

fn name(number: usize) -> String {
    format!("key {number}")
}

fn set(store: &dyn Store, number: usize, value: &str) {
    let name = name(number);
    let step = store.set(&Key::new(name.as_bytes(), store.seed()), value.as_bytes(), &Write::default());
    match step {
        Step::Done(ended) => ended.expect("it is stored"),
        Step::Wait(pending) => pollster::block_on(pending).expect("it is stored"),
    };
}

/// Begins to read keys together.
fn begin(store: &dyn Store, numbers: std::ops::Range<usize>, request: &Retrieve) -> Option<PendingReads> {
    let names: Vec<String> = numbers.map(name).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(name.as_bytes(), store.seed())).collect();
    store.together().expect("it reads together").read_several(&Cx::outside(), &keys, request)
}

/// The values of all, in order.
fn ends(mut reads: PendingReads) -> Vec<Option<String>> {
    let mut values = Vec::new();
    loop {
        let mut shown = None;
        let mut context = Context::from_waker(Waker::noop());
        let next = reads.as_mut().poll_next(&mut context, &mut |item: &ItemRef<'_>| shown = Some(text(item)));
        match next {
            Poll::Pending => {}
            Poll::Ready(None) => return values,
            Poll::Ready(Some(read)) => values.push(match read.expect("nothing fails") {
                Lookup::Visited => Some(shown.expect("it was shown")),
                Lookup::Found(item) => Some(text(&item.as_ref())),
                Lookup::Miss { .. } => None,
            }),
        }
    }
}

fn text(item: &ItemRef<'_>) -> String {
    String::from_utf8(item.value.to_vec()).expect("text")
}

fn tiered(lower: Server, clock: &Arc<Clock>) -> Tiered<ModelStore, Server> {
    let config = TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: VALUE_MAX, cluster: false };
    Tiered::new(ModelStore::new(Arc::clone(clock), VALUE_MAX), lower, config, Arc::clone(clock))
}

#[test]
fn what_ram_lacks_is_read_together_from_below_and_comes_up() {
    let clock = Arc::new(Clock::manual(START));
    let server = Server::new(&clock);
    (0..10).filter(|number| *number != 7).for_each(|number| set(&server, number, &format!("below {number}")));
    let store = tiered(server.clone(), &clock);
    (0..3).for_each(|number| set(&store, number, &format!("above {number}")));
    server.counted();

    let expected = |number| match number {
        7 => None,
        0..3 => Some(format!("above {number}")),
        _ => Some(format!("below {number}")),
    };
    let values = ends(begin(&store, 0..10, &Retrieve::BRIEF).expect("RAM lacks some"));
    assert_eq!(values, (0..10).map(expected).collect::<Vec<_>>());
    assert_eq!(server.counted(), (0, 1, 7), "one read below, of the seven that RAM lacks");

    // All that is there is in RAM by now.
    assert!(begin(&store, 0..10, &Retrieve::BRIEF).is_none(), "one key is no reason to read together");
    assert_eq!(server.counted(), (0, 0, 0));
    // What changes something is decided key by key.
    assert!(begin(&store, 10..20, &Retrieve { touch: Some(Exptime(9)), ..Retrieve::default() }).is_none());
    assert!(begin(&store, 10..20, &Retrieve { claim: true, ..Retrieve::default() }).is_none());
}

#[test]
fn a_change_that_overtakes_such_a_read_is_what_it_shows_and_what_stays_above() {
    let clock = Arc::new(Clock::manual(START));
    let server = Server::new(&clock);
    (0..4).for_each(|number| set(&server, number, "old"));
    let store = tiered(server.clone(), &clock);
    let reads = begin(&store, 0..4, &Retrieve::default()).expect("RAM has none");
    set(&store, 2, "new");
    let old = || Some("old".to_owned());
    assert_eq!(ends(reads), [old(), old(), Some("new".into()), old()]);
    assert!(begin(&store, 0..4, &Retrieve::default()).is_none(), "all are above");
    let name = name(2);
    let key = Key::new(name.as_bytes(), store.seed());
    let Step::Done(Ok(Outcome::Read(Lookup::Found(item)))) =
        moneta_store::steps::read_owned(store.upper(), &Cx::outside(), &key, Op::Peek)
    else {
        panic!("it is above")
    };
    assert_eq!(text(&item.as_ref()), "new");
}

#[test]
fn the_feed_and_pieces_pass_it_on() {
    let clock = Arc::new(Clock::manual(START));
    let server = Server::new(&clock);
    let feed = Feed::new(tiered(server.clone(), &clock), 1 << 20, Arc::clone(&clock));
    (0..5).for_each(|number| set(&server, number, "value"));
    server.counted();
    assert_eq!(ends(begin(&feed, 0..5, &Retrieve::BRIEF).expect("together")), vec![Some("value".to_owned()); 5]);
    assert_eq!(server.counted(), (0, 1, 5));

    let server = Server::new(&clock);
    let config = ChunkedConfig { piece_bytes: 100, whole_max: 100, item_max: 1000 };
    let pieces = Chunked::new(server.clone(), config, Arc::clone(&clock));
    (0..5).for_each(|number| set(&pieces, number, &"long".repeat(number * 20)));
    server.counted();
    let mut reads = begin(&pieces, 0..6, &Retrieve::BRIEF).expect("together");
    let first = loop {
        match poll_owned(&mut reads, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(first) => break first,
            Poll::Pending => {}
        }
    };
    assert!(matches!(first, Some(Ok(Lookup::Found(_)))));
    let expected = (1..6).map(|number| (number < 5).then(|| "long".repeat(number * 20)));
    assert_eq!(ends(reads), expected.collect::<Vec<_>>());
    let (alone, together, keys) = server.counted();
    assert_eq!((together, keys), (1, 6), "the heads of all");
    assert!(alone > 0, "pieces follow one by one");
}
