//! Servers whose store is a server: requests cross the event loops of a front's workers, with connections of their own in
//! their drivers.

mod common;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use common::moneta::{Servers, memory};
use common::{Memcached, config, remote, wait_until};
use moneta_client::wire::blocking::Dialogue;
use moneta_client::wire::{Answer, Protocol, Read, Request, Verb};
use moneta_net::{Address, Endpoint};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::request::{Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock};
use moneta_testkit::suite::{self, Options, SuiteConfig};

/// Wait for whatever takes long on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn store(path: &std::path::Path, item_max: usize, clock: &Arc<Clock>) -> Remote {
    let config = RemoteConfig { item_max, connections: 2, ..config(path) };
    Remote::new(config, Arc::clone(clock)).expect("the configuration makes sense")
}

#[test]
fn nothing_shows_of_a_front() {
    let (backs, fronts) = (Servers::default(), Servers::default());
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let back = backs.serve(memory(config, Arc::clone(&clock)), config, Arc::clone(&clock));
        let front = fronts.serve(store(&back, config.value_max, &clock), config, Arc::clone(&clock));
        store(&front, config.value_max, &clock)
    };
    suite::run(make, Options::exact().bare_numbers().versions_unknown().items_estimated().rounds(3).operations(700));
}

/// A second past 2038 means the past in text, unless the connection has asked for more; what asks is a front.
#[test]
fn items_that_live_past_2038_do_so_behind_a_front() {
    const LATE: u32 = 3_000_000_000;
    let limits = SuiteConfig { memory: 64 << 20, value_max: 1 << 20 };
    let clock = Arc::new(Clock::system());
    let (backs, fronts) = (Servers::default(), Servers::default());
    for protocol in [Protocol::Meta, Protocol::Text, Protocol::Binary] {
        let back = backs.serve(memory(limits, Arc::clone(&clock)), limits, Arc::clone(&clock));
        let config = RemoteConfig { protocol: Some(protocol), ..config(&back) };
        let store = Remote::new(config, Arc::clone(&clock)).expect("the configuration makes sense");
        let front = fronts.serve(store, limits, Arc::clone(&clock));
        let (mut first, mut second) = (dialogue(&front), dialogue(&back));
        let write = Write { exptime: Exptime(i64::from(LATE)), ..Write::default() };
        let stored = first.call(&Request { verb: Verb::Write(write), key: b"late", value: b"1" });
        assert!(matches!(stored, Ok(Answer::Stored { .. })), "{protocol:?}: {stored:?}");
        let Ok(Answer::Hit(seen)) = second.call(&read(b"late")) else { panic!("{protocol:?}: not kept") };
        let left = seen.ttl.expect("a time to live");
        assert!((i64::from(LATE - clock.now()) - left).abs() < 100, "{protocol:?}: {left} s");
    }
}

/// A client that asks for nothing gets memcached's: -1 as 32 bits without a sign is expired at once.
#[test]
fn wide_times_are_granted_to_the_connection_that_asks() {
    let limits = SuiteConfig { memory: 64 << 20, value_max: 1 << 20 };
    let servers = Servers::default();
    let clock = Arc::new(Clock::system());
    let path = servers.serve(memory(limits, Arc::clone(&clock)), limits, clock);
    let talk = |before: &str| {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        let requests =
            format!("{before}set k 0 3000000000 1\r\n1\r\nmg k s\r\nset k 0 4294967295 1\r\n1\r\nmg k s\r\nquit\r\n");
        stream.write_all(requests.as_bytes()).expect("it reads");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("it answers");
        answers
    };
    let granted = "VERSION 1.6.45 wide-times\r\nSTORED\r\nHD s1\r\nSTORED\r\nHD s1\r\n";
    assert_eq!(talk("version wide-times\r\n"), granted);
    assert_eq!(talk(""), "STORED\r\nEN\r\nSTORED\r\nEN\r\n");
}

fn dialogue(path: &std::path::Path) -> Dialogue {
    Dialogue::open(&Endpoint::new(Address::Unix(path.to_owned())).patient(PATIENCE), None, 1 << 20)
        .expect("the front answers")
}

fn set(key: &[u8], value: &[u8], dialogue: &mut Dialogue) -> Answer<'static> {
    dialogue.call(&Request { verb: Verb::Write(Write::default()), key, value }).expect("the front answers")
}

fn read(key: &[u8]) -> Request<'_> {
    Request { verb: Verb::Read(Read { retrieve: Retrieve::default(), value: true }), key, value: &[] }
}

#[test]
fn many_requests_at_once_are_each_answered_by_their_own() {
    let memcached = Memcached::start(&[]);
    let limits = SuiteConfig { memory: 64 << 20, value_max: 1 << 20 };
    let clock = Arc::new(Clock::system());
    let fronts = Servers::default();
    let front = fronts.serve(store(memcached.path(), 1 << 20, &clock), limits, clock);
    let mut first = dialogue(&front);
    let keys: Vec<Vec<u8>> = (0..100).map(|number| format!("key:{number}").into_bytes()).collect();
    for key in &keys {
        assert!(matches!(set(key, &key.repeat(40), &mut first), Answer::Stored { .. }));
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut dialogue = dialogue(&front);
                for _ in 0..50 {
                    keys.iter().for_each(|key| dialogue.ask(&read(key)).expect("it has a form"));
                    for key in &keys {
                        match dialogue.answer().expect("the front answers") {
                            Answer::Hit(seen) => assert_eq!(seen.value, key.repeat(40)),
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
    });
}

/// The front's clients get an error, in bounded time, and no wrong answer; then all is as before.
#[test]
fn a_front_outlives_the_server_behind_it() {
    let mut memcached = Memcached::start(&[]);
    let limits = SuiteConfig { memory: 64 << 20, value_max: 1 << 20 };
    let fronts = Servers::default();
    let config = RemoteConfig { request_timeout: Duration::from_millis(500).into(), ..config(memcached.path()) };
    let back = remote(config);
    let front = fronts.serve(back.clone(), limits, Arc::new(Clock::system()));
    let mut client = dialogue(&front);
    wait_until("the front is up", || matches!(set(b"a", b"1", &mut client), Answer::Stored { .. }));

    memcached.process().stop();
    let answer = client.call(&read(b"a")).expect("the front answers");
    assert!(matches!(answer, Answer::Refused(..)), "{answer:?}");
    wait_until("the front says so", || {
        client.call(&read(b"a")).expect("the front answers");
        back.health().unready
    });
    memcached.process().cont();
    wait_until("hits are hits again", || matches!(client.call(&read(b"a")), Ok(Answer::Hit(_))));

    memcached.kill();
    wait_until("the front says so", || {
        client.call(&read(b"a")).expect("the front answers");
        back.health().unready
    });
    memcached.run();
    wait_until("the front answers anew", || matches!(client.call(&read(b"a")), Ok(Answer::Miss)));
    wait_until("it takes writes", || matches!(set(b"a", b"2", &mut client), Answer::Stored { .. }));
    let samples = back.metrics();
    let of = |name| samples.iter().filter(move |sample| sample.metric.name == name);
    let value = |name| of(name).map(|sample| sample.value.number()).sum::<f64>();
    assert!(value("remote_timeouts_total") >= 1.0 && value("remote_reconnects_total") >= 1.0, "{samples:?}");
    assert!(value("remote_requests_total") > value("remote_replies_total") && value("remote_up") == 1.0, "{samples:?}");
}
