//! The feed over HTTP. The failure to guard against is a reader with a filter that never gets further, since what little passes
//! the filter is further on than an answer may take.

mod support;

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use moneta_process::Desk;
use moneta_server::Server;
use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings};
use moneta_store::feed::{Batch, Change, Entry, Feed, FeedPlace, Reader, Recorded, Set, Wanted};
use moneta_store::{Clock, Component as _, ItemMeta, Parts, Store, StoreError, Version};
use moneta_testkit::doubles::{Double, Layer};
use moneta_testkit::model::ModelStore;
use support::admin::{desk, fetch_from};
use support::config;

/// Its feed has no end, and very seldom a change that its readers want.
struct Endless(ModelStore);

const INCARNATION: u64 = 7;
/// One batch in so many has a change.
const SELDOM: u64 = 1 << 40;

fn place(position: u64) -> FeedPlace {
    FeedPlace { incarnation: INCARNATION, position, told: 0 }
}

impl Double for Endless {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.0
    }

    fn parts(&self) -> Parts<'_> {
        Parts { feed: Some(self), ..self.0.parts() }
    }
}

impl Feed for Endless {
    fn end(&self) -> FeedPlace {
        place(u64::MAX)
    }

    fn since(&self, millis: u64) -> FeedPlace {
        place(millis)
    }

    fn has_more(&self, _: FeedPlace) -> bool {
        true
    }

    fn behind(&self, _: FeedPlace) -> u64 {
        0
    }

    fn reader(&self, from: FeedPlace, _: Wanted) -> Box<dyn Reader> {
        Box::new(Endlessly(from.position))
    }
}

struct Endlessly(u64);

impl Reader for Endlessly {
    fn read(&mut self, limit: usize, _: usize) -> Result<Batch, StoreError> {
        self.0 += 1;
        let next = place(self.0);
        let delete = Change::Delete { key: b"key"[..].into(), version: Version(1 << 40) };
        let entry = || Entry { recorded: Recorded::Whole(delete.clone()), next };
        let entries = (0..usize::from(self.0.is_multiple_of(SELDOM)).min(limit)).map(|_| entry()).collect();
        Ok(Batch { gap: None, entries, next, watermark: self.0, is_end: false })
    }

    fn held(&self) -> usize {
        0
    }
}

/// Its feed has large values without end.
struct Large(ModelStore);

const VALUE: usize = 8 << 20;

impl Double for Large {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.0
    }

    fn parts(&self) -> Parts<'_> {
        Parts { feed: Some(self), ..self.0.parts() }
    }
}

impl Feed for Large {
    fn end(&self) -> FeedPlace {
        place(u64::MAX)
    }

    fn since(&self, millis: u64) -> FeedPlace {
        place(millis)
    }

    fn has_more(&self, _: FeedPlace) -> bool {
        true
    }

    fn behind(&self, _: FeedPlace) -> u64 {
        0
    }

    fn reader(&self, from: FeedPlace, _: Wanted) -> Box<dyn Reader> {
        Box::new(Largely(from.position, vec![b'v'; VALUE].into()))
    }
}

struct Largely(u64, bytes::Bytes);

impl Reader for Largely {
    fn read(&mut self, _: usize, _: usize) -> Result<Batch, StoreError> {
        self.0 += 1;
        let next = place(self.0);
        let meta = ItemMeta { cas: self.0, ..ItemMeta::default() };
        let set = Set { key: b"key"[..].into(), meta, value: Some(self.1.clone()), as_of: None };
        let entries = vec![Entry { recorded: Recorded::Whole(Change::Set(set)), next }];
        Ok(Batch { gap: None, entries, next, watermark: self.0, is_end: false })
    }

    fn held(&self) -> usize {
        self.1.len()
    }
}

fn admin_side() -> (Desk, impl Sized) {
    serving(|model| Arc::new(Layer(Endless(model))), NodeSettings::default())
}

fn serving(store: impl Fn(ModelStore) -> Arc<dyn Store>, settings: NodeSettings) -> (Desk, impl Sized) {
    let clock = Arc::new(Clock::system());
    let node = Arc::new(Node::new(settings, Arc::clone(&clock), Authenticator::off()));
    let store = store(ModelStore::new(clock, 1 << 20));
    let desk = desk(Arc::clone(&node.phases), Arc::default());
    let running = Server::start(&config(), store, node).expect("a server");
    running.show_on(&desk);
    desk.serve();
    (desk, running)
}

#[test]
fn an_answer_ends_where_little_is_wanted_of_much_that_is_read() {
    let (admin, _running) = admin_side();
    let (status, body) = fetch_from(&admin, "/changes?since=0&prefix=k");
    assert_eq!(status, 200, "{body}");
    let last: serde_json::Value = serde_json::from_str(body.lines().last().expect("a last line")).expect("JSON");
    assert_eq!((last["kind"].as_str(), last["more"].as_bool()), (Some("end"), Some(true)), "{body}");
    let cursor = last["cursor"].as_str().expect("where to go on").to_owned();
    assert_ne!(cursor, "7-0", "it got further");
    // From there on as from anywhere.
    let (_, body) = fetch_from(&admin, &format!("/changes?cursor={}&prefix=k", place(SELDOM - 1)));
    assert!(body.contains("\"kind\":\"delete\""), "{body}");
}

#[test]
fn what_is_out_of_range_is_refused() {
    let (admin, _running) = admin_side();
    let long = "n".repeat(65);
    for wrong in ["region=16", "values=2", &format!("name={long}"), "name="] {
        assert_eq!(fetch_from(&admin, &format!("/changes?since=0&{wrong}")).0, 400, "{wrong}");
    }
    for right in ["region=15", "values=1", &format!("name={}", &long[1..]), "limit=0"] {
        assert_eq!(fetch_from(&admin, &format!("/changes?since=0&{right}")).0, 200, "{right}");
    }
}

/// Guards the bound on answers that are not read: without it they take a gigabyte.
#[test]
fn answers_that_are_not_read_hold_a_bounded_share_of_client_memory() {
    const UNREAD: usize = 6;
    let limit = 128 << 20;
    let settings = NodeSettings { client_memory: limit, ..NodeSettings::default() };
    let (admin, _running) = serving(|model| Arc::new(Layer(Large(model))), settings);
    let held = || {
        let (_, metrics) = fetch_from(&admin, "/metrics");
        let line = metrics.lines().find(|line| line.starts_with("moneta_client_memory_bytes{kind=\"feed\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("it is told") as usize
    };
    let unread: Vec<_> = (0..UNREAD)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(admin.address().expect("it listens")).expect("it accepts");
            stream.write_all(b"GET /changes?since=0&values=1 HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
            // It is made by now.
            stream.read_exact(&mut [0; 1]).expect("it answers");
            assert!(held() <= limit / 8 + 3 * VALUE, "{} MiB are held", held() >> 20);
            stream
        })
        .collect();
    assert!(held() > 0, "what is not read is in the account");
    // Who reads has its answer.
    let (status, body) = fetch_from(&admin, "/changes?since=0&values=1");
    assert_eq!((status, body.lines().count()), (200, 2));
    drop(unread);
    while held() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
