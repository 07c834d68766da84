//! Connections to servers whose names a test gives a meaning.

mod flood;
mod half_open;
mod large;
mod late;
mod server;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use moneta_client::wire::{Answer, Protocol, Request, Verb};
use moneta_net::{Address, Names};
use moneta_store::request::Delete;
use moneta_store::{ErrorKind, KeyHash, Reactor};
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketType};
use server::Empty;

use super::entry::Target;
use super::outcome::Outcome;
use crate::config::RemoteConfig;
use crate::promise::Promise;
use crate::shared::ServerShared;
use crate::worker_client::WorkerClient;

/// Any key.
const KEY: &[u8] = b"key";

/// The addresses of a name, until a test changes them.
#[derive(Clone, Default)]
struct Meaning(Arc<Mutex<Vec<SocketAddr>>>);

impl Meaning {
    fn of(addresses: &[SocketAddr]) -> Self {
        Self(Arc::new(Mutex::new(addresses.to_vec())))
    }

    fn move_to(&self, addresses: &[SocketAddr]) {
        *self.0.lock() = addresses.to_vec();
    }

    fn shared(&self, timeout: Duration) -> Arc<ServerShared> {
        self.shared_with(|config| {
            config.request_timeout = timeout.into();
            config.endpoint.timeouts.connect = Some(timeout);
        })
    }

    fn shared_with(&self, set: impl FnOnce(&mut RemoteConfig)) -> Arc<ServerShared> {
        let address = Address::tcp("somewhere", 11211);
        let (meaning, name) = (self.clone(), address.clone());
        let mut config = RemoteConfig {
            backoff_min: Duration::from_millis(1),
            backoff_max: Duration::from_millis(5),
            ..RemoteConfig::new(address, KeyHash::seeded(0))
        };
        set(&mut config);
        let names = Names::new(&name, Box::new(move |_| Ok(meaning.0.lock().clone()))).expect("it is found");
        Arc::new(ServerShared::with_names(config, names))
    }
}

/// An address that accepts connections and never answers, as long as the listener is kept.
fn silent() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
    (listener.local_addr().expect("it is bound"), listener)
}

/// Turns a client until something holds.
fn turn_until(what: &str, client: &WorkerClient, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        client.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Looks for the key.
fn look(client: &WorkerClient) -> Outcome<'static> {
    ask(client, Verb::Peek { value: true })
}

fn ask(client: &WorkerClient, verb: Verb) -> Outcome<'static> {
    let (promise, mut outcome) = (Promise::new(), None);
    let request = Request { verb, key: KEY, value: &[] };
    if let Err(error) = client.begin_for(&request, 0, Target::Shared(Arc::clone(&promise))) {
        return Err(crate::failure::Failure::new(error.kind(), error.to_string()));
    }
    turn_until("the request ends", client, || match promise.poll(&Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => {
            outcome = Some(ended);
            true
        }
        Poll::Pending => false,
    });
    outcome.expect("it has ended")
}

#[test]
fn a_reap_takes_replies_and_leaves_requests_to_the_next_turn() {
    let server = Empty::start();
    let shared = Meaning::of(&[server.address]).shared(Duration::from_secs(60));
    let client = WorkerClient::new(&shared).expect("the system has room");
    assert!(matches!(look(&client), Ok(Answer::Miss)), "it is up");
    let begin = || {
        let promise = Promise::new();
        let request = Request { verb: Verb::Peek { value: true }, key: KEY, value: &[] };
        client.begin_for(&request, 0, Target::Shared(Arc::clone(&promise))).expect("it is up");
        promise
    };
    let has_ended = |promise: &Promise| promise.poll(&Context::from_waker(Waker::noop())).is_ready();
    let (first, begun) = (begin(), Instant::now());
    client.turn();
    let second = begin();
    while !has_ended(&first) {
        assert!(begun.elapsed() < Duration::from_secs(60), "a reply is reaped within a minute");
        client.reap();
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..20 {
        client.reap();
        assert!(!has_ended(&second), "it was not sent");
        std::thread::sleep(Duration::from_millis(1));
    }
    turn_until("the second one is sent", &client, || has_ended(&second));
}

#[test]
fn a_server_that_moved_is_found_again_though_its_old_address_is_silent() {
    let (old, _listener) = silent();
    let meaning = Meaning::of(&[old]);
    let shared = meaning.shared(Duration::from_millis(100));
    let client = WorkerClient::new(&shared).expect("the system has room");
    turn_until("the server is taken for dead", &client, || shared.is_open());

    let server = Empty::start();
    meaning.move_to(&[server.address]);
    turn_until("it is found", &client, || !shared.is_open());
    turn_until("it answers", &client, || matches!(look(&client), Ok(Answer::Miss)));
}

/// An address that refuses connections as long as the socket is kept.
fn refusing() -> (SocketAddr, OwnedFd) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("the system has room");
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("an address is free");
    let address = rustix::net::getsockname(&socket).expect("it is bound");
    (address.try_into().expect("it is one of the internet's"), socket)
}

#[test]
fn a_server_that_listens_at_the_second_address_of_its_name_refuses_nothing() {
    let server = Empty::start();
    let (refusing_address, _socket) = refusing();
    let shared = Meaning::of(&[refusing_address, server.address]).shared(Duration::from_secs(20));
    let client = WorkerClient::new(&shared).expect("the system has room");
    // It is under way when the first address refuses.
    assert!(matches!(look(&client), Ok(Answer::Miss)));
    assert!(shared.last_failure().is_empty(), "{}", shared.last_failure());

    // Others begin where the first one came up.
    let other = WorkerClient::new(&shared).expect("the system has room");
    assert!(matches!(look(&other), Ok(Answer::Miss)));
    let failures = || shared.counters.connect_failures.load(Ordering::SeqCst);
    assert_eq!(failures(), 1);
}

#[test]
fn a_server_refuses_when_it_does_so_at_each_of_its_addresses() {
    let (refusing_address, _socket) = refusing();
    let (another, _other_socket) = refusing();
    let shared = Meaning::of(&[refusing_address, another]).shared(Duration::from_secs(20));
    let client = WorkerClient::new(&shared).expect("the system has room");
    turn_until("the server is taken for dead", &client, || shared.is_open());
    assert!(shared.counters.connect_failures.load(Ordering::SeqCst) >= 2);
    assert!(look(&client).is_err());
}

/// A server that speaks binary only hangs up on text each time; one that is being started anew, or has a bad moment, does so
/// once.
#[test]
fn who_hangs_up_once_is_not_asked_in_binary() {
    for (hang_ups, protocol) in [(1, Protocol::Meta), (2, Protocol::Binary)] {
        let server = Empty::start().hang_up(hang_ups);
        let shared = Meaning::of(&[server.address]).shared(Duration::from_secs(20));
        let client = WorkerClient::new(&shared).expect("the system has room");
        assert!(matches!(look(&client), Ok(Answer::Miss)));
        assert_eq!(shared.dialect().map(|dialect| dialect.protocol), Some(protocol), "after {hang_ups}");
    }
}

#[test]
fn who_is_known_to_speak_meta_is_not_asked_in_binary() {
    let server = Empty::start();
    let shared = Meaning::of(&[server.address]).shared(Duration::from_secs(20));
    let client = WorkerClient::new(&shared).expect("the system has room");
    assert!(matches!(look(&client), Ok(Answer::Miss)));

    let server = server.hang_up(2);
    let other = WorkerClient::new(&shared).expect("the system has room");
    assert_eq!(look(&other).expect_err("it hangs up").kind, ErrorKind::Unreachable);
    turn_until("it answers", &other, || matches!(look(&other), Ok(Answer::Miss)));
    assert_eq!(shared.dialect().map(|dialect| dialect.protocol), Some(Protocol::Meta));
    drop(server);
}

#[test]
fn a_connection_that_came_up_in_binary_is_left_when_the_server_turns_out_to_speak_meta() {
    let server = Empty::start().hang_up(2);
    let shared = Meaning::of(&[server.address]).shared(Duration::from_secs(20));
    let client = WorkerClient::new(&shared).expect("the system has room");
    assert!(matches!(look(&client), Ok(Answer::Miss)));
    assert!(!shared.knows_meta());

    let other = WorkerClient::new(&shared).expect("the system has room");
    assert!(matches!(look(&other), Ok(Answer::Miss)));
    assert!(shared.knows_meta());
    // What only meta has a form for.
    let invalidate = Verb::Delete(Delete { invalidate: true, ..Delete::default() });
    assert!(matches!(ask(&client, invalidate), Ok(Answer::NotFound)));
}

/// A client whose connection is still up: no other client tells it that the server is back.
#[test]
fn a_lane_knows_from_others_that_a_server_hangs_and_finds_out_itself_when_that_ends() {
    let server = Empty::start();
    let shared = Meaning::of(&[server.address]).shared(Duration::from_millis(200));
    let [client, other] = [(); 2].map(|()| WorkerClient::new(&shared).expect("the system has room"));
    for client in [&client, &other] {
        turn_until("it answers", client, || matches!(look(client), Ok(Answer::Miss)));
    }
    server.hush(true);
    turn_until("it is taken for dead", &client, || {
        let _ = look(&client);
        shared.hangs()
    });
    drop(client);

    assert_eq!(look(&other).expect_err("it hangs").kind, ErrorKind::Unreachable);
    server.hush(false);
    turn_until("it answers again", &other, || matches!(look(&other), Ok(Answer::Miss)));
    assert!(!shared.is_open());
}
