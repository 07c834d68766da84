//! Versions over the wire: the suite over a Moneta, and what becomes of a server that knows nothing of them.

mod common;

use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use common::flash::flash_with;
use common::moneta::{Servers, memory_with};
use common::{Memcached, SEED, config, finish};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::component::{Flush, Health, Parts, Report, Walk};
use moneta_store::request::{Exptime, Retrieve, Write};
use moneta_store::versions::{Floor, Floors, Versioning};
use moneta_store::{
    Calls, Clock, Component, Cursor, Cx, ErrorKind, Expiry, ItemMeta, ItemRef, Key, KeyHash, Lookup, Op, Reactors,
    ReadSeveral, Step, Store, Value, Version, Visit, Walked, Walking, Written,
};
use moneta_testkit::suite::{self, SuiteConfig};

/// A remote store that tells the suite what the server keeps to itself: the next version, and the flushes it knows.
struct ReadTold {
    remote: Remote,
    server: Arc<dyn Store>,
}

impl Store for ReadTold {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match op {
            Op::NextCas => self.server.call(cx, key, op, out),
            op => self.remote.call(cx, key, op, out),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
    }

    fn announce(&self, keys: &[Key<'_>]) {
        self.remote.announce(keys);
    }

    fn seed(&self) -> KeyHash {
        self.remote.seed()
    }
}

impl Component for ReadTold {
    fn parts(&self) -> Parts<'_> {
        Parts {
            below: vec![&self.remote],
            walk: Some(self),
            flush: Some(self),
            resize: None,
            observe: None,
            feed: None,
        }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, below: Vec<Report>) -> Report {
        below.into_iter().next().unwrap_or_default()
    }

    fn health(&self, below: Vec<Health>) -> Health {
        below.into_iter().next().unwrap_or_default()
    }

    fn close(&self) {}
}

impl Walk for ReadTold {
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        Walk::walk(&self.remote, cx, cursor, show)
    }
}

impl Flush for ReadTold {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        Flush::flush(&self.remote, cx, delay)
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        Flush::floor(&self.remote, cx, floor)
    }

    fn floors(&self) -> Floors {
        self.server.floors()
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        Flush::newest(&self.remote, cx)
    }

    fn lag(&self) -> u32 {
        0
    }
}

fn told(servers: &Servers, store: Arc<dyn Store>, config: SuiteConfig, clock: Arc<Clock>) -> ReadTold {
    let path = servers.serve(Arc::clone(&store), config, Arc::clone(&clock));
    let config = RemoteConfig { item_max: config.value_max, ..self::config(&path) };
    ReadTold { remote: Remote::new(config, clock).expect("the configuration makes sense"), server: store }
}

#[test]
fn a_server_in_ram_keeps_the_order_of_writes_over_the_wire() {
    let servers = Servers::default();
    suite::versions(
        |config, versioning, clock| {
            let store = Arc::new(memory_with(config, versioning, Arc::clone(&clock)));
            told(&servers, store, config, clock)
        },
        suite::seed(),
    );
}

#[test]
fn a_server_on_an_ssd_keeps_the_order_of_writes_over_the_wire() {
    let servers = Servers::default();
    suite::versions(
        |config, versioning, clock| {
            let store = Arc::new(flash_with(versioning, Arc::clone(&clock)));
            told(&servers, store, config, clock)
        },
        suite::seed(),
    );
}

#[test]
fn an_item_that_is_read_carries_its_version_and_its_marks_are_stored_with_it() {
    let servers = Servers::default();
    let clock = Arc::new(Clock::system());
    let config = SuiteConfig { memory: 64 << 20, value_max: 1000 };
    let store = told(&servers, Arc::new(memory_with(config, Versioning::default(), Arc::clone(&clock))), config, clock);
    let key = Key::new(b"key", SEED);
    let now = Clock::system().millis();
    let version = Version::at(now);
    let meta = ItemMeta {
        cas: version.0,
        flags: 7,
        expiry: Expiry((now / 1000) as u32 + 1000),
        token_sent: true,
        ..ItemMeta::default()
    };
    let put = |meta, value: &[u8]| {
        finish(store.put_newer(&key, &ItemRef { meta, value: Value::whole(value) }, now)).expect("an answer")
    };
    assert_eq!(put(meta, b"value"), Written::Stored { cas: version.0 });
    let peek = || match finish(store.peek(&key, &mut |_: &ItemRef<'_>| ())) {
        Ok(Lookup::Found(item)) => item.meta,
        other => panic!("{other:?}"),
    };
    let seen = peek();
    assert_eq!(
        (seen.version(), seen.flags, seen.expiry, seen.token_sent, seen.unversioned),
        (version, 7, meta.expiry, true, false)
    );
    let older = ItemMeta { cas: version.just_below().0, ..meta };
    assert_eq!(put(older, &[0; 1001]), Written::Superseded { by: version }, "too large, and older than what is there");
    assert_eq!(peek().version(), version);
    let newer = ItemMeta { cas: version.0 + 1, ..meta };
    assert_eq!(put(newer, &[0; 1001]), Written::TooLarge);
    assert!(matches!(finish(store.peek(&key, &mut |_: &ItemRef<'_>| ())), Ok(Lookup::Miss { .. })));
    let chosen = Write { new_cas: Some(u64::MAX), ..Write::default() };
    finish(store.set(&key, b"chosen", &chosen)).expect("a lone node takes it");
    assert_eq!((peek().unversioned, peek().cas, peek().version()), (true, u64::MAX, Version::ZERO));
    assert_eq!(put(newer, b"newer"), Written::Stored { cas: newer.cas }, "no client blocks newer writes");
}

#[test]
fn a_memcached_is_asked_nothing_by_version() {
    let memcached = Memcached::start(&[]);
    let clock = Arc::new(Clock::system());
    let store = Remote::new(config(memcached.path()), Arc::clone(&clock)).expect("the configuration makes sense");
    let key = Key::new(b"key", SEED);
    finish(store.set(&key, b"kept", &Write::default())).expect("it is stored");
    let version = Version::at(clock.millis());
    let meta = ItemMeta { cas: version.0, ..ItemMeta::default() };
    let put = finish(store.put_newer(&key, &ItemRef { meta, value: Value::whole(b"new") }, clock.millis()));
    assert_eq!(put.map_err(|error| error.kind()), Err(ErrorKind::NoVersions));
    let buried = finish(store.bury(&key, version));
    assert_eq!(buried.map_err(|error| error.kind()), Err(ErrorKind::NoVersions));
    let floor = finish(Calls::floor(&store, Floor { version, second: clock.now() }));
    assert_eq!(floor.map_err(|error| error.kind()), Err(ErrorKind::NoVersions));
    match finish(store.get(&key, &Retrieve::default(), &mut |_: &ItemRef<'_>| ())) {
        Ok(Lookup::Found(item)) => assert!(item.value == *b"kept" && item.meta.unversioned),
        other => panic!("{other:?}"),
    }
}

/// Should one of these ever be sent to memcached by mistake, nothing may come of it.
#[test]
fn memcached_refuses_each_token_and_changes_nothing() {
    let memcached = Memcached::start(&[]);
    let mut stream = UnixStream::connect(memcached.path()).expect("it is up");
    let mut ask = |lines: &str| {
        stream.write_all(format!("{lines}mn\r\n").as_bytes()).expect("it takes requests");
        let mut answer = Vec::new();
        while !answer.ends_with(b"MN\r\n") {
            let mut piece = [0; 4096];
            let bytes = stream.read(&mut piece).expect("it answers");
            assert!(bytes > 0, "it hung up on {lines:?}");
            answer.extend_from_slice(&piece[..bytes]);
        }
        answer.truncate(answer.len() - 4);
        String::from_utf8(answer).expect("text")
    };
    ask("set k 5 0 4\r\nkept\r\n");
    let kept = ask("mg k v c f t\r\n");
    for line in [
        "ms k 1 V5\r\nx\r\n",
        "ms k 1 c V5 A7 F3 D9 Y1\r\nx\r\n",
        "ms k 1 A7\r\nx\r\n",
        "ms k 1 Y1\r\nx\r\n",
        "ms k 1 q V5\r\nx\r\n",
        "ms other 1 V5\r\nx\r\n",
        "md k V5\r\n",
        "md k q V5\r\n",
        "md k b V5\r\n",
        "mg k V\r\n",
        "mg k D\r\n",
        "mg k Y\r\n",
        "mg k v c f t h l V D\r\n",
        "mg other N0 V\r\n",
        "mf 5 0\r\n",
        "mf 5 0 q O1\r\n",
        "mv\r\n",
    ] {
        let answer = ask(line);
        let lines: Vec<&str> = answer.split_terminator("\r\n").collect();
        let refused = matches!(lines[..], [line] if line.starts_with("CLIENT_ERROR ") || line == "ERROR");
        assert!(refused, "{line:?} was answered by {answer:?}");
        assert_eq!(ask("mg k v c f t\r\n"), kept, "{line:?}");
        assert_eq!(ask("mg other\r\n"), "EN\r\n", "{line:?}");
    }
}
