//! Guards the requests that wait for a store: they delay no other request, keep their order, and are not forgotten.

mod support;

use std::time::Duration;

use moneta_server::ServerConfig;
use rustix::net::sockopt::set_socket_linger;
use support::{TestServer, config, eventually, hit, set};

#[test]
fn replies_keep_their_order_while_later_requests_run() {
    let server = TestServer::start(ServerConfig { workers: 1, ..config() });
    let mut client = server.connect();
    client.send([b"get slow\r\n".to_vec(), set("quick", b"1"), b"get quick\r\n".to_vec()].concat());
    eventually("the read waits", || server.gate.waiting() == 1);
    // Another connection sees what the later request did, while the first reply is not out yet.
    let mut other = server.connect();
    eventually("the later request has run", || {
        other.send("get quick\r\n");
        let end = other.receive(5);
        if end == b"END\r\n" {
            return false;
        }
        other.expect(&hit("quick", b"1")[5..]);
        true
    });
    assert_eq!(server.gate.waiting(), 1);
    server.gate.open();
    client.expect([b"END\r\nSTORED\r\n".to_vec(), hit("quick", b"1")].concat());
    eventually("nothing waits", || server.gate.waiting() == 0);
}

#[test]
fn many_connections_wait_at_once_and_all_are_woken() {
    let server = TestServer::start(config());
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send([set("slow", b"value"), b"get slow2\r\n".to_vec(), b"get slow\r\n".to_vec()].concat());
    }
    // The read of the same key starts after the set.
    eventually("all wait", || server.gate.waiting() == 80);
    server.gate.open();
    for client in &mut clients {
        client.expect("STORED\r\nEND\r\n");
        client.expect(hit("slow", b"value"));
    }
}

#[test]
fn a_request_that_waits_is_answered_although_the_same_bytes_end_the_connection() {
    /// A binary GET whose key is longer than any may be: refused, and the connection is closed.
    const KEY_TOO_LONG: [u8; 24] = [0x80, 0, 1, 0x26, 0, 0, 0, 0, 0, 0, 1, 0x26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let server = TestServer::start(config());
    let mut leaving = server.connect();
    leaving.send("get slow\r\nquit\r\n");
    let mut refused = server.connect();
    let get = [&[0x80, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4][..], &[0; 12], b"slow"].concat();
    refused.send([&get[..], &KEY_TOO_LONG].concat());
    eventually("both wait", || server.gate.waiting() == 2);
    server.gate.open();
    assert_eq!(leaving.read_to_close(), b"END\r\n");
    let replies = refused.read_to_close();
    assert_eq!((replies[7], replies[24 + 9 + 7]), (1, 4), "not found, then invalid: {replies:?}");
}

#[test]
fn more_requests_than_may_wait_are_answered_all_the_same() {
    let server = TestServer::start(config());
    let mut client = server.connect();
    let count = 1_000;
    client.send(b"get slow\r\n".repeat(count));
    eventually("as many wait as may", || server.gate.waiting() == moneta_server::session::MAX_PARKED);
    server.gate.open();
    client.expect(b"END\r\n".repeat(count));
}

#[test]
fn a_client_may_leave_while_its_requests_wait() {
    let server = TestServer::start(config());
    let mut client = server.connect();
    client.send("get slow\r\n");
    eventually("it waits", || server.gate.waiting() == 1);
    drop(client);
    server.gate.open();
    eventually("it is gone", || server.node.registry.totals().curr_connections == 0);
    server.connect().ask("get quick\r\n", "END\r\n");
}

#[test]
fn changes_go_on_when_their_client_is_lost_and_reads_do_not() {
    let server = TestServer::start(config());
    let mut client = server.connect();
    client.send([b"get slow1\r\n".to_vec(), set("slow2", b"value"), b"touch slow3 10\r\n".to_vec()].concat());
    eventually("all wait", || server.gate.waiting() == 3);
    set_socket_linger(&client.0, Some(Duration::ZERO)).unwrap();
    drop(client);
    eventually("the read is given up", || server.gate.waiting() == 2);
    assert_eq!(server.node.registry.totals().curr_connections, 1);
    server.gate.open();
    eventually("it is gone", || server.node.registry.totals().curr_connections == 0);
    server.connect().ask("get slow2\r\n", hit("slow2", b"value"));
    assert_eq!(server.node.registry.totals().failed_connections, 1);
}
