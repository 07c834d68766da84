//! Servers that say what they are to each connection, and leave requests unanswered: the silent failure is that each
//! connection which comes up makes them look well, so that every request waits for its timeout, and no health report tells.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use common::peer::{Peer, Visit};
use common::{SEED, finish, remote, wait_until};
use moneta_client::wire::Protocol;
use moneta_net::{Address, Endpoint};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::request::Retrieve;
use moneta_store::{Calls, ErrorKind, ItemRef, Key, StoreError};

/// What a server answers beside the questions of a new connection.
#[derive(Clone, Copy)]
enum Answers {
    Nothing,
    /// Trials, and no request of a client's.
    Trials,
    Everything,
}

/// A server, and what it is told to answer.
struct Moody {
    peer: Peer,
    answers: Arc<AtomicU8>,
}

impl Moody {
    fn start() -> Self {
        let answers = Arc::new(AtomicU8::new(Answers::Everything as u8));
        let theirs = Arc::clone(&answers);
        let peer = Peer::play(Some(Protocol::Meta), move |visit| serve(visit, &theirs));
        Self { peer, answers }
    }

    fn answer(&self, what: Answers) {
        self.answers.store(what as u8, Ordering::SeqCst);
    }

    /// A store that takes it for dead after three connections.
    fn store(&self) -> Remote {
        let timeout = Duration::from_millis(250);
        remote(RemoteConfig {
            request_timeout: timeout.into(),
            backoff_min: Duration::from_millis(1),
            backoff_max: Duration::from_millis(5),
            timeouts_max: 3,
            ..RemoteConfig::new(Endpoint::new(Address::Unix(self.peer.path())).patient(timeout), SEED)
        })
    }

    fn connections(&self) -> usize {
        self.peer.connections.load(Ordering::SeqCst)
    }
}

fn serve(mut visit: Visit, answers: &AtomicU8) {
    while let Some(asked) = visit.next() {
        let is_trial = asked.key == "moneta:probe";
        let least = if is_trial { Answers::Trials } else { Answers::Everything };
        if answers.load(Ordering::SeqCst) >= least as u8 {
            let miss = format!("EN {}\r\n", asked.opaque);
            visit.say(&if is_trial { miss.into_bytes() } else { asked.hit(b"here") });
        }
    }
}

fn get(store: &Remote) -> Result<(), StoreError> {
    finish(store.get(&Key::new(b"key", SEED), &Retrieve::default(), &mut |_: &ItemRef<'_>| ())).map(drop)
}

/// Asks until the server is taken for dead.
fn find_out(store: &Remote) {
    wait_until("the server is taken for dead", || {
        let _ = get(store);
        store.health().unready
    });
}

#[test]
fn a_server_that_answers_no_request_is_dead_whatever_it_says_at_connecting() {
    let server = Moody::start();
    let store = server.store();
    wait_until("it answers", || get(&store).is_ok());

    server.answer(Answers::Nothing);
    find_out(&store);
    let connections = server.connections();
    // While it is tried again and again, no request waits for it.
    wait_until("it is tried again", || {
        assert_eq!(get(&store).expect_err("it is dead").kind(), ErrorKind::Unreachable);
        assert!(store.health().unready);
        server.connections() >= connections + 4
    });

    server.answer(Answers::Everything);
    wait_until("it is found again without a request", || !store.health().unready);
    wait_until("requests succeed again", || get(&store).is_ok());
}

#[test]
fn a_server_that_answers_trials_only_is_dead_after_one_request() {
    let server = Moody::start();
    let store = server.store();
    wait_until("it answers", || get(&store).is_ok());

    server.answer(Answers::Nothing);
    find_out(&store);
    for _ in 0..3 {
        server.answer(Answers::Trials);
        wait_until("it passes a trial", || !store.health().unready);
        // From now on no trial is passed: what is seen next stays so.
        server.answer(Answers::Nothing);
        assert_eq!(get(&store).expect_err("it hangs").kind(), ErrorKind::Timeout);
        wait_until("it is dead again", || store.health().unready);
    }

    server.answer(Answers::Everything);
    wait_until("requests succeed again", || get(&store).is_ok());
}

/// Callers that keep note of what a server may have taken must not do so for what was sent nowhere, nor leave out what was.
#[test]
fn a_failure_says_whether_the_request_was_sent() {
    let server = Moody::start();
    let store = server.store();
    wait_until("it answers", || get(&store).is_ok());

    server.answer(Answers::Nothing);
    let sent = get(&store).expect_err("it does not answer");
    assert!(sent.kind() == ErrorKind::Timeout && !sent.is_unsent(), "{sent:?}");
    find_out(&store);
    wait_until("a request that is refused at once was not sent", || {
        get(&store).is_err_and(|error| error.kind() == ErrorKind::Unreachable && error.is_unsent())
    });

    // One that accepts connections and does not say what it is: requests wait, and are not sent.
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let timeout = Duration::from_millis(100);
    let config = RemoteConfig::new(Endpoint::new(Address::Unix(path)).patient(timeout), SEED);
    let store = remote(RemoteConfig { request_timeout: timeout.into(), ..config });
    let waited = get(&store).expect_err("there is no connection");
    assert!(waited.is_unsent(), "{waited:?}");
}
