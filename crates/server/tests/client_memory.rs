//! Guards the node's memory against clients that send half, read nothing, or ask for much: what is held for all of them
//! together has a limit, and others are served meanwhile. The silent failure is a node that grows until the system ends it.

mod support;

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use moneta_server::client_memory::{ClientMemory, Kind};
use moneta_server::{Listener, ServerConfig};
use moneta_store::Clock;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use support::{Client, PATIENCE, TestServer, config, eventually, hit, set};

const MIB: usize = 1024 * 1024;
/// Limit on what is held for clients.
const LIMIT: usize = 16 * MIB;
/// The value of an item as large as may be, but for a little.
const LARGE: usize = MIB - 64 * 1024;

fn start(clock: Clock) -> TestServer {
    TestServer::start_with_client_memory(config(), clock, LIMIT)
}

fn memory(server: &TestServer) -> &ClientMemory {
    &server.node.client_memory
}

/// A client that reads as little as the kernel lets it.
fn deaf(server: &TestServer) -> Client<TcpStream> {
    let client = server.connect();
    set_socket_recv_buffer_size(&client.0, 4096).unwrap();
    client
}

/// Clients that each send all but the end of a large request.
fn half_sent(server: &TestServer, count: usize) -> Vec<Client<TcpStream>> {
    let send = |index| {
        let mut client = server.connect();
        let request = set(&format!("half{index}"), &vec![b'x'; LARGE]);
        client.send(&request[..request.len() - 3]);
        client
    };
    (0..count).map(send).collect()
}

/// Reads that wait for a device hold what they read, whether the client takes it or not.
#[test]
fn reads_that_wait_hold_no_more_than_a_connections_share_and_all_are_answered() {
    let server = start(Clock::system());
    let value = vec![b'v'; LARGE];
    server.gate.open();
    server.connect().ask(set("slow", &value), "STORED\r\n");
    server.gate.close();
    let count = 40;
    let mut client = server.connect();
    client.send([b"get slow\r\n".repeat(count), set("other", b"1")].concat());
    eventually("some wait", || server.gate.waiting() > 0 && server.node.registry.holding().of(Kind::Parked) >= LARGE);
    let mut other = server.connect();
    other.ask("get other\r\n", "END\r\n");
    let (waiting, held) = (server.gate.waiting(), server.node.registry.holding().of(Kind::Parked));
    assert!(waiting <= 2 && held <= LIMIT / 4, "{waiting} wait and hold {held} bytes");
    server.gate.open();
    for _ in 0..count {
        assert!(client.receive(hit("slow", &value).len()) == hit("slow", &value));
    }
    client.expect("STORED\r\n");
    drop(client);
    eventually("nothing is held", || memory(&server).total() == 0 && server.node.registry.holding().total() == 0);
}

/// Writes that wait for a device hold their values.
#[test]
fn writes_that_wait_hold_no_more_than_a_connections_share() {
    let server = start(Clock::system());
    let mut client = server.connect();
    let sender = std::thread::spawn(move || {
        let requests: Vec<u8> = (0..20).flat_map(|index| set(&format!("slow{index}"), &vec![b'v'; LARGE])).collect();
        client.send(requests);
        client.expect(b"STORED\r\n".repeat(20));
    });
    let (mut read, mut since) = (0, Instant::now());
    eventually("the server stops reading", || {
        let last = std::mem::replace(&mut read, server.node.registry.totals().bytes_read);
        since = if last == read { since } else { Instant::now() };
        server.gate.waiting() > 0 && since.elapsed() >= Duration::from_millis(200)
    });
    assert!(server.gate.waiting() <= 2, "{} wait", server.gate.waiting());
    server.gate.open();
    sender.join().unwrap();
}

#[test]
fn large_requests_are_refused_while_memory_is_scarce_and_small_ones_served() {
    let server = start(Clock::manual(1_700_000_000));
    let _half_sent = half_sent(&server, 30);
    eventually("all have come", || {
        let totals = server.node.registry.totals();
        totals.memory_refusals > 0 && server.node.registry.holding().of(Kind::Input) > LIMIT / 4 * 3
    });
    assert!(memory(&server).total() <= LIMIT / 8 * 7, "{}", memory(&server).total());
    let mut good = server.connect();
    good.ask(set("small", b"1"), "STORED\r\n");
    // What a request that is refused had is gone, as its client cannot tell which of both is there.
    good.ask(set("large", b"old"), "STORED\r\n");
    good.ask(set("large", &vec![b'x'; LARGE]), "SERVER_ERROR out of memory storing object\r\n");
    good.ask("get large\r\n", "END\r\n");
    good.ask("get small\r\n", hit("small", b"1"));
    let binary = [&[0x80, 1, 0, 1, 8, 0, 0, 0, 0, 0xf, 0, 9][..], &[0; 12], &[0; 8], b"k", &vec![0; 0xf0000]].concat();
    let mut other = server.connect();
    other.send(binary);
    assert_eq!(other.receive(24)[6..8], [0, 0x82], "the status is out of memory");
    // No connection is closed before the time; then those are that have held memory for long.
    assert_eq!(server.node.registry.totals().memory_kicks, 0);
    server.node.clock.advance(11);
    eventually("some are closed", || server.node.registry.totals().memory_kicks > 0);
    eventually("memory is there", || memory(&server).total() <= LIMIT / 4 * 3);
    good.ask(set("large", &vec![b'x'; LARGE]), "STORED\r\n");
}

#[test]
fn the_sum_holds_whatever_clients_do_not_read() {
    let workers = 2;
    let server = start(Clock::system());
    let value = vec![b'v'; LARGE];
    let mut good = server.connect();
    good.ask(set("large", &value), "STORED\r\n");
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let mut client = deaf(&server);
            client.send(b"get large\r\n".repeat(10));
            client
        })
        .collect();
    // The most that one turn of each worker adds before the account is kept.
    let turn = workers * (2 * MIB + ServerConfig::OUTPUT_LIMIT);
    let mut most = 0;
    eventually("connections are closed", || {
        most = most.max(server.node.registry.holding().total());
        server.node.registry.totals().memory_kicks > 0
    });
    for _ in 0..200 {
        good.ask("get small\r\n", "END\r\n");
        most = most.max(server.node.registry.holding().total());
    }
    assert!(most <= LIMIT + turn, "{most} bytes were held");
    assert!(most >= LIMIT / 2, "only {most} bytes were held: the test tests nothing");
    drop(clients);
    eventually("nothing is held", || memory(&server).total() == 0);
    good.ask("get large\r\n", hit("large", &value));
}

/// A server on a Unix socket too, whose buffers the kernel does not let grow, with more keys than these and the output limit
/// take.
fn with_many_keys(name: &str, clock: Clock) -> (TestServer, PathBuf) {
    let path = std::env::temp_dir().join(format!("moneta-{name}-{}", std::process::id()));
    let mut config = config();
    config.listeners.push(Listener::unix(&path));
    let server = TestServer::start_with_client_memory(config, clock, LIMIT);
    let mut filler = server.connect();
    let items = (0..4_000).flat_map(|index| format!("set key{index:0240} 0 0 1 noreply\r\nx\r\n").into_bytes());
    filler.send(items.collect::<Vec<u8>>());
    filler.ask("mn\r\n", "MN\r\n");
    (server, path)
}

fn connect_to(path: &Path) -> Client<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client(stream)
}

#[test]
fn one_dump_runs_at_a_time_and_one_that_is_not_read_is_closed() {
    let (server, path) = with_many_keys("dumps", Clock::manual(1_700_000_000));
    let mut first = connect_to(&path);
    first.send("lru_crawler metadump all\r\n");
    first.expect("OK\r\n");
    let mut second = server.connect();
    for _ in 0..3 {
        second.ask("lru_crawler metadump all\r\n", "BUSY currently processing crawler request\r\n");
        second.ask("lru_crawler mgdump all\r\n", "BUSY currently processing crawler request\r\n");
    }
    eventually("the first waits for its client", || server.node.registry.holding().of(Kind::Dump) > 0);
    // It may get a line or two more before it stands still.
    eventually("the first is closed", || {
        server.node.clock.advance(31);
        server.node.registry.totals().idle_kicks == 1
    });
    second.send("lru_crawler mgdump all\r\nmn\r\n");
    second.expect("OK\r\nmg key");
    let mut tail = Vec::new();
    while !tail.ends_with(b"\r\nEN\r\nMN\r\n") {
        tail.extend_from_slice(&second.receive(1));
    }
    assert_eq!(server.node.registry.totals().idle_kicks, 1);
}

#[test]
fn a_dump_ends_with_its_client() {
    let (server, path) = with_many_keys("dump", Clock::system());
    let mut first = connect_to(&path);
    first.send("lru_crawler metadump all\r\n");
    first.expect("OK\r\n");
    drop(first);
    eventually("another one may begin", || {
        let mut second = server.connect();
        second.send("lru_crawler metadump all\r\n");
        second.receive(2) == b"OK"
    });
}
