//! Guards against limits of a listener that are taken and not obeyed, or that reach the server's other listeners.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moneta_server::config::Commands;
use moneta_server::{ListenAddress, Listener, ListenerLimits, ServerConfig};
use moneta_store::Clock;
use support::{Client, PATIENCE, TestServer, config, eventually, hit, set, stopped};

/// A listener with the server's limits, and one with `limits` for each.
fn listeners(limits: &[ListenerLimits]) -> Vec<Listener> {
    let any = || Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let limited = limits.iter().map(|&limits| Listener { limits, ..any() });
    std::iter::once(any()).chain(limited).collect()
}

fn connect(server: &TestServer, listener: usize) -> Client<TcpStream> {
    let ListenAddress::Tcp(address) = &server.running.listen_addresses()[listener] else { panic!("it is TCP") };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    Client(stream)
}

#[test]
fn a_listener_turns_away_what_is_over_its_own_limit_and_the_others_do_not() {
    let limits = ListenerLimits { max_connections: Some(1), ..ListenerLimits::default() };
    let server = TestServer::start(ServerConfig { listeners: listeners(&[limits]), ..config() });
    let mut only = connect(&server, 1);
    only.ask("get a\r\n", "END\r\n");
    assert_eq!(connect(&server, 1).read_to_close(), b"ERROR Too many open connections\r\n");
    for _ in 0..3 {
        connect(&server, 0).ask("get a\r\n", "END\r\n");
    }
    assert_eq!(server.node.registry.totals().rejected_connections, 1);
    drop(only);
    eventually("room again", || {
        let mut next = connect(&server, 1);
        next.0.write_all(b"get a\r\n").is_ok() && next.0.read(&mut [0; 64]).is_ok_and(|bytes| bytes == 5)
    });
}

#[test]
fn the_servers_limit_stands_above_a_listeners() {
    let limits = ListenerLimits { max_connections: Some(10), ..ListenerLimits::default() };
    let server = TestServer::start(ServerConfig { listeners: listeners(&[limits]), max_connections: 1, ..config() });
    let mut first = connect(&server, 0);
    first.ask("get a\r\n", "END\r\n");
    assert_eq!(connect(&server, 1).read_to_close(), b"ERROR Too many open connections\r\n");
}

#[test]
fn operators_have_places_apart_from_clients() {
    let limits = ListenerLimits { commands: Some(Commands::ALL), ..ListenerLimits::default() };
    let like_clients = ListenerLimits { commands: Some(Commands::NONE), ..ListenerLimits::default() };
    let server = TestServer::start(ServerConfig {
        listeners: listeners(&[limits, like_clients]),
        commands: Commands::NONE,
        max_connections: 2,
        ..config()
    });
    let mut clients = [connect(&server, 0), connect(&server, 0)];
    clients.iter_mut().for_each(|client| client.ask("get a\r\n", "END\r\n"));
    let mut operators: Vec<_> = (0..32).map(|_| connect(&server, 1)).collect();
    operators.iter_mut().for_each(|operator| operator.ask("verbosity 0\r\n", "OK\r\n"));
    // Beyond their places, operators take those of clients; nothing is set aside for the other listener.
    for listener in 0..3 {
        assert_eq!(connect(&server, listener).read_to_close(), b"ERROR Too many open connections\r\n", "{listener}");
    }
    // Nor do operators cost clients theirs.
    drop(clients);
    eventually("room again", || {
        let mut next = connect(&server, 0);
        next.0.write_all(b"get a\r\n").is_ok() && next.0.read(&mut [0; 64]).is_ok_and(|bytes| bytes == 5)
    });
}

#[test]
fn a_flood_at_one_listener_leaves_the_others_their_turns() {
    // An operators' listener, so that the flood does not take its places.
    let limits = ListenerLimits { commands: Some(Commands::ALL), ..ListenerLimits::default() };
    let server =
        TestServer::start(ServerConfig { listeners: listeners(&[limits]), commands: Commands::NONE, ..config() });
    let ListenAddress::Tcp(flooded) = server.running.listen_addresses()[0] else { panic!("it is TCP") };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    drop(TcpStream::connect(flooded));
                }
            });
        }
        for _ in 0..50 {
            connect(&server, 1).ask("get a\r\n", "END\r\n");
        }
        assert!(server.node.registry.totals().total_connections > 50);
    });
}

/// Sets a flag at the end of a scope, a failed test's too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn each_listener_has_its_own_patience_with_silence() {
    let patience = |idle_timeout| ListenerLimits { idle_timeout: Some(idle_timeout), ..ListenerLimits::default() };
    let limits = [patience(Duration::from_secs(3)), patience(Duration::ZERO)];
    let idle_timeout = Some(Duration::from_secs(10));
    let server = TestServer::start_with_clock(
        ServerConfig { listeners: listeners(&limits), idle_timeout, ..config() },
        Clock::manual(1_000_000),
    );
    let mut clients = [0, 1, 2].map(|listener| connect(&server, listener));
    for client in &mut clients {
        client.ask("get a\r\n", "END\r\n");
    }
    server.node.clock.advance(4);
    assert_eq!(clients[1].read_to_close(), b"");
    assert_eq!(server.node.registry.totals().idle_kicks, 1);
    server.node.clock.advance(7);
    assert_eq!(clients[0].read_to_close(), b"");
    server.node.clock.advance(1_000_000);
    clients[2].ask("get a\r\n", "END\r\n");
    assert_eq!(server.node.registry.totals().idle_kicks, 2);
}

#[test]
fn a_listener_may_close_silent_clients_where_the_server_does_not() {
    let limits = ListenerLimits { idle_timeout: Some(Duration::from_secs(3)), ..ListenerLimits::default() };
    let server = TestServer::start_with_clock(
        ServerConfig { listeners: listeners(&[limits]), ..config() },
        Clock::manual(1_000_000),
    );
    let mut client = connect(&server, 1);
    client.ask("get a\r\n", "END\r\n");
    server.node.clock.advance(4);
    assert_eq!(client.read_to_close(), b"");
}

#[test]
fn a_listener_bounds_what_its_clients_leave_unread() {
    let output_limit = 64 * 1024;
    let limits = ListenerLimits { output_limit: Some(output_limit), ..ListenerLimits::default() };
    let config =
        ServerConfig { listeners: listeners(&[limits]), workers: 1, output_limit: 64 * 1024 * 1024, ..config() };
    let server = TestServer::start(config);
    let value = vec![b'v'; 50_000];
    let reply = hit("key", &value);
    let mut greedy = connect(&server, 1);
    greedy.ask(set("key", &value), "STORED\r\n");
    let count = 2_000;
    greedy.send(b"get key\r\n".repeat(count));
    let (executed, unsent) = stopped(&server, output_limit, reply.len(), "STORED\r\n".len());
    assert!(executed < count, "the test must ask for more than sockets hold");
    assert!(unsent <= output_limit + reply.len(), "{unsent} bytes are held");
    for _ in 0..count {
        assert!(greedy.receive(reply.len()) == reply);
    }
}

#[test]
fn a_listener_without_room_for_a_client_is_refused() {
    for limits in [
        ListenerLimits { max_connections: Some(0), ..ListenerLimits::default() },
        ListenerLimits { output_limit: Some(0), ..ListenerLimits::default() },
    ] {
        let started =
            TestServer::try_start(&ServerConfig { listeners: listeners(&[limits]), ..config() }, Clock::system());
        assert!(started.err().is_some_and(|error| error.to_string().contains("at least 1")));
    }
}
