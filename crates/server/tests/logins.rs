//! Guards a node whose clients have to log in against those who do not: they have the limits of everybody else, little time,
//! few tries, and leave when they are users no more.

mod support;

use std::sync::Arc;

use moneta_server::auth::{AuthMode, Authenticator, Users};
use moneta_server::node::{Node, NodeSettings, Peer};
use moneta_server::session::{After, Session, Worker};
use moneta_store::{Clock, Cx};
use moneta_testkit::model::ModelStore;
use support::{TestServer, config, eventually};

const START: u32 = 1_000_000;
const RIGHT: &str = "set x 0 0 10\r\nann secret\r\n";
const WRONG: &str = "set x 0 0 10\r\nann secrex\r\n";
const FAILURE: &str = "CLIENT_ERROR authentication failure\r\n";

fn users() -> Authenticator {
    Authenticator::new(AuthMode::Text, Users::parse(b"ann:secret\nbob:builder\n").unwrap())
}

fn server() -> TestServer {
    TestServer::try_start_guarded(&config(), Clock::manual(START), users()).unwrap()
}

#[test]
fn a_run_of_log_ins_gives_way_to_others_and_to_a_client_that_does_not_read() {
    let clock = Arc::new(Clock::manual(START));
    let store = ModelStore::new(Arc::clone(&clock), 1024);
    let settings = NodeSettings { requests_per_event: 20, ..NodeSettings::default() };
    let node = Arc::new(Node::new(settings, clock, users()));
    let counters = node.registry.register();
    let worker = Worker { store: Arc::new(store), cx: Cx::outside(), node, counters };
    let mut session = Session::new(Peer::default());
    session.opened(&worker);
    let input = b"get a\r\n".repeat(1000);
    let mut output = Vec::new();
    let received = session.receive(&worker, &input, &mut output, 1 << 20);
    assert_eq!((received.consumed, received.needed, received.after), (20 * 7, 0, After::Continue));
    // Answers of 31 bytes: the second is over the mark.
    output.clear();
    let received = session.receive(&worker, &input, &mut output, 32);
    assert_eq!((received.consumed, received.needed), (2 * 7, 0));
}

#[test]
fn a_client_that_fails_too_often_is_closed_after_a_while() {
    let server = server();
    let mut client = server.connect();
    for _ in 0..5 {
        client.ask(WRONG, FAILURE);
    }
    // Nothing is read any more, not even the right password.
    client.send(RIGHT);
    eventually("it is seen to be barred", || {
        server.node.clock.advance(1);
        server.node.registry.totals().login_kicks_failures == 1
    });
    assert_eq!(client.read_to_close(), b"");
    let totals = server.node.registry.totals();
    assert_eq!((totals.auth_cmds, totals.auth_errors), (5, 5));
    server.connect().ask(RIGHT, "STORED\r\n");
}

#[test]
fn who_does_not_log_in_in_time_is_closed_and_who_did_is_not() {
    let server = server();
    let (mut silent, mut chatty, mut member) = (server.connect(), server.connect(), server.connect());
    member.ask(RIGHT, "STORED\r\n");
    chatty.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    eventually("all are there", || server.node.registry.totals().curr_connections == 3);
    server.node.clock.advance(9);
    chatty.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    server.node.clock.advance(1);
    assert_eq!(silent.read_to_close(), b"");
    assert_eq!(chatty.read_to_close(), b"");
    member.ask("get a\r\n", "END\r\n");
    assert_eq!(server.node.registry.totals().login_kicks_timeout, 2);
}

#[test]
fn a_user_that_is_removed_or_gets_another_password_is_logged_out() {
    let server = server();
    let (mut ann, mut bob) = (server.connect(), server.connect());
    ann.ask(RIGHT, "STORED\r\n");
    bob.ask("set x 0 0 11\r\nbob builder\r\n", "STORED\r\n");
    server.node.authenticator.reload(Users::parse(b"ann:secret\nbob:other\n").unwrap());
    assert_eq!(bob.read_to_close(), b"");
    ann.ask("get a\r\n", "END\r\n");
    server.node.authenticator.reload(Users::parse(b"bob:other\n").unwrap());
    assert_eq!(ann.read_to_close(), b"");
    assert_eq!(server.node.registry.totals().login_kicks_removed, 2);
}

#[test]
fn an_address_that_fails_over_many_connections_has_to_wait() {
    let clock = Arc::new(Clock::manual(START));
    let store = ModelStore::new(Arc::clone(&clock), 1024);
    let settings = NodeSettings { login_failures: 1, ..NodeSettings::default() };
    let node = Arc::new(Node::new(settings, clock, users()));
    let counters = node.registry.register();
    let worker = Worker { store: Arc::new(store), cx: Cx::outside(), node, counters };
    let answer = |address: Option<[u8; 4]>, attempt: &str| {
        let address = address.map(|address| (address, 40_000).into());
        let mut session = Session::new(Peer { address, ..Peer::default() });
        session.opened(&worker);
        let mut output = Vec::new();
        session.receive(&worker, attempt.as_bytes(), &mut output, 1 << 20);
        String::from_utf8(output).unwrap()
    };
    let (one, other) = (Some([10, 0, 0, 1]), Some([10, 0, 0, 2]));
    // One failure a minute, and the one that uses it up.
    assert_eq!([answer(one, WRONG), answer(one, WRONG)], [FAILURE, FAILURE]);
    // Not even the right password is looked at.
    assert_eq!(answer(one, RIGHT), "CLIENT_ERROR too many failed log-ins from this address, try again later\r\n");
    assert_eq!(answer(other, RIGHT), "STORED\r\n");
    // A Unix socket's permissions decide who may try.
    assert_eq!([answer(None, WRONG), answer(None, WRONG), answer(None, WRONG)], [FAILURE; 3]);
    assert_eq!(answer(None, RIGHT), "STORED\r\n");
}
