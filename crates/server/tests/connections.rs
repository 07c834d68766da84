//! Guards against connections that cost others something: one that is slow, silent, greedy or one too many.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use moneta_server::{Listener, ServerConfig};
use moneta_store::Clock;
use support::{TestServer, config, eventually, hit, set, stopped};

#[test]
fn a_request_may_come_a_byte_at_a_time() {
    let server = TestServer::start(config());
    let mut client = server.connect();
    for byte in [set("key", b"value"), b"get key\r\n".to_vec()].concat() {
        client.send([byte]);
    }
    client.expect("STORED\r\n");
    client.expect(hit("key", b"value"));
}

#[test]
fn many_requests_may_come_at_once() {
    let server = TestServer::start(config());
    let mut client = server.connect();
    client.ask(set("key", b"value"), "STORED\r\n");
    let count = 5_000;
    let sender = client.0.try_clone().unwrap();
    let writing = std::thread::spawn(move || (&sender).write_all(&b"get key\r\n".repeat(count)).unwrap());
    client.expect(hit("key", b"value").repeat(count));
    writing.join().unwrap();
}

#[test]
fn a_large_value_goes_in_and_out_whole() {
    let server = TestServer::start(config());
    let mut client = server.connect();
    let value: Vec<u8> = (0..1_000_000u32).map(|index| (index % 251) as u8).collect();
    // Behind it in the same stream: its last bytes and the next request share a read.
    client.send([set("large", &value), b"get large\r\n".to_vec(), b"get none\r\n".to_vec()].concat());
    client.expect("STORED\r\n");
    assert!(client.receive(hit("large", &value).len()) == hit("large", &value));
    client.expect("END\r\n");
}

#[test]
fn connections_spread_evenly_over_workers_and_stay_even() {
    let server = TestServer::start(config());
    let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
    let per_worker = || {
        server.node.registry.workers().iter().take(2).map(|worker| worker.curr_connections.get()).collect::<Vec<_>>()
    };
    eventually("25 connections on each worker", || per_worker() == [25, 25]);
    clients.truncate(31);
    eventually("31 connections", || per_worker().iter().sum::<u64>() == 31);
    // A worker counts a close a moment before the acceptor can see it. One that answers is past that moment.
    clients.iter_mut().for_each(|client| client.ask("get a\r\n", "END\r\n"));
    clients.extend((0..19).map(|_| server.connect()));
    eventually("even again", || per_worker() == [25, 25]);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = TestServer::start(ServerConfig { max_connections: 2, ..config() });
    let mut first = server.connect();
    let mut second = server.connect();
    first.ask("get a\r\n", "END\r\n");
    second.ask("get a\r\n", "END\r\n");
    assert_eq!(server.connect().read_to_close(), b"ERROR Too many open connections\r\n");
    let totals = server.node.registry.totals();
    assert_eq!((totals.rejected_connections, totals.curr_connections, totals.total_connections), (1, 2, 2));
    drop(second);
    eventually("room again", || server.node.registry.totals().curr_connections == 1);
    // The worker counts the close a moment before the acceptor can see it.
    eventually("a third connection", || {
        let mut third = server.connect();
        third.0.write_all(b"get a\r\n").is_ok() && third.0.read(&mut [0; 64]).is_ok_and(|bytes| bytes == 5)
    });
}

#[test]
fn a_silent_connection_is_closed_and_a_busy_one_is_not() {
    let idle_timeout = Some(Duration::from_secs(10));
    let server = TestServer::start_with_clock(ServerConfig { idle_timeout, ..config() }, Clock::manual(1_000_000));
    let mut silent = server.connect();
    let mut busy = server.connect();
    silent.ask("get a\r\n", "END\r\n");
    busy.ask("get a\r\n", "END\r\n");
    server.node.clock.advance(6);
    busy.ask("get a\r\n", "END\r\n");
    server.node.clock.advance(6);
    assert_eq!(silent.read_to_close(), b"");
    busy.ask("get a\r\n", "END\r\n");
    assert_eq!(server.node.registry.totals().idle_kicks, 1);
}

#[test]
fn a_client_that_never_reads_is_stopped_at_a_bounded_buffer() {
    let output_limit = 256 * 1024;
    let server = TestServer::start(ServerConfig { workers: 1, output_limit, ..config() });
    let value = vec![b'v'; 50_000];
    let reply = hit("key", &value);
    let mut greedy = server.connect();
    greedy.ask(set("key", &value), "STORED\r\n");

    let count = 2_000;
    let sender = greedy.0.try_clone().unwrap();
    let writing = std::thread::spawn(move || (&sender).write_all(&b"get key\r\n".repeat(count)).unwrap());
    let (executed, unsent) = stopped(&server, output_limit, reply.len(), "STORED\r\n".len());
    assert!(executed < count, "the test must ask for more than sockets hold");
    assert!(unsent <= output_limit + reply.len(), "{unsent} bytes are held");

    // Its neighbour on the same worker does not notice.
    let mut neighbour = server.connect();
    neighbour.ask("get none\r\n", "END\r\n");

    for _ in 0..count {
        assert!(greedy.receive(reply.len()) == reply);
    }
    writing.join().unwrap();
    greedy.ask("get none\r\n", "END\r\n");
}

#[test]
fn a_watcher_that_reads_nothing_is_closed_and_one_that_reads_is_not() {
    let server = TestServer::start_with_clock(ServerConfig { workers: 1, ..config() }, Clock::manual(1_000_000));
    let (mut stuck, mut quiet) = (server.connect(), server.connect());
    stuck.ask("watch fetchers\r\n", "OK\r\n");
    // It has nothing to read, and watches on.
    quiet.ask("watch evictions\r\n", "OK\r\n");
    let mut client = server.connect();
    eventually("nothing more goes out to it", || {
        client.send(b"get a\r\n".repeat(1000));
        client.expect(b"END\r\n".repeat(1000));
        server.node.watchers.stats().skipped > 100_000
    });
    eventually("it is closed", || {
        server.node.clock.advance(20);
        server.node.registry.totals().watcher_kicks == 1
    });
    assert_eq!(server.node.watchers.stats().watchers, 1);
    client.ask("get a\r\n", "END\r\n");
}

#[test]
fn a_client_that_floods_does_not_keep_its_neighbour_waiting() {
    let server = TestServer::start(ServerConfig { workers: 1, ..config() });
    let mut flood = server.connect();
    flood.0.set_nonblocking(true).unwrap();
    let mut neighbour = server.connect();
    let requests = b"get none\r\n".repeat(10_000);
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..200 {
        for outcome in [flood.0.write(&requests), flood.0.read(&mut buffer)] {
            match outcome {
                Ok(bytes) => assert!(bytes > 0, "the flood was cut off"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        neighbour.ask("get none\r\n", "END\r\n");
    }
}

#[test]
fn requests_sent_before_the_client_closes_its_side_are_answered() {
    let server = TestServer::start(config());
    let mut client = server.connect();
    client.send([set("key", b"value"), b"get key\r\n".to_vec()].concat());
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_to_close(), [b"STORED\r\n".to_vec(), hit("key", b"value")].concat());
}

#[test]
fn a_client_that_vanishes_in_the_middle_leaves_nothing_behind() {
    let server = TestServer::start(config());
    for _ in 0..20 {
        let mut client = server.connect();
        client.send("set key 0 0 1000\r\nhalf of the va");
    }
    eventually("all are gone", || {
        let totals = server.node.registry.totals();
        totals.total_connections == 20 && totals.curr_connections == 0
    });
    assert!(server.node.connections().is_empty());
}

#[test]
fn ipv6_and_several_addresses_are_listened_on() {
    let listeners = vec![
        Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        Listener::tcp(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0))),
    ];
    let server = TestServer::start(ServerConfig { listeners, ..config() });
    let moneta_server::ListenAddress::Tcp(second) = server.running.listen_addresses()[1].clone() else {
        panic!("the second listener is TCP");
    };
    assert!(second.is_ipv6() && second.port() != 0);
    let mut first = server.connect();
    let mut second = support::Client(std::net::TcpStream::connect(second).unwrap());
    second.0.set_read_timeout(Some(support::PATIENCE)).unwrap();
    first.ask(set("key", b"value"), "STORED\r\n");
    second.ask("get key\r\n", hit("key", b"value"));
    let mut listed = server.node.connections();
    assert_eq!(listed.len(), 2);
    assert!(listed.remove(1).address.starts_with("tcp6:[::1]:"));
    assert_eq!(listed[0].listener, format!("tcp:{}", server.address()));
}
