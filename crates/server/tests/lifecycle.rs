//! Guards the end of a server: what is in flight is finished, what is not does not hold it up, nothing is left behind.

mod support;

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use moneta_process::phases::Phase;
use moneta_server::{ListenAddress, Listener, ServerConfig, ServerError};
use moneta_store::Clock;
use support::{Client, TestServer, config, eventually, hit, set};

#[test]
fn a_graceful_shutdown_finishes_what_is_in_flight() {
    let server = TestServer::start(config());
    let mut waiting = server.connect();
    let mut halfway = server.connect();
    let mut idle = server.connect();
    idle.ask("get a\r\n", "END\r\n");
    waiting.send("get slow\r\n");
    halfway.send("set key 0 0 5\r\nva");
    eventually("one waits", || server.gate.waiting() == 1);
    eventually("the half request is there", || server.node.registry.totals().bytes_read >= 34);

    server.running.shutdown(true);
    assert_eq!(idle.read_to_close(), b"");
    let address = server.address();
    eventually("no client is let in", || std::net::TcpStream::connect(address).is_err());
    halfway.send("lue\r\n");
    assert_eq!(halfway.read_to_close(), b"STORED\r\n");
    server.gate.open();
    assert_eq!(waiting.read_to_close(), b"END\r\n");
    server.running.join().unwrap();
}

#[test]
fn a_drain_has_an_end() {
    let server = TestServer::start(ServerConfig { drain_timeout: Duration::from_millis(50), ..config() });
    let mut stuck = server.connect();
    stuck.send("get slow\r\n");
    eventually("it waits", || server.gate.waiting() == 1);
    server.running.shutdown(true);
    server.running.join().unwrap();
    assert_eq!(stuck.read_to_close(), b"");
}

#[test]
fn a_lame_duck_serves_and_accepts_until_its_time_is_over() {
    let server = support::admin::start_with(ServerConfig { lame_duck: Duration::from_secs(2), ..config() });
    let mut before = server.connect();
    before.ask("get a\r\n", "END\r\n");
    server.running.shutdown(true);
    let (status, page) = support::admin::fetch(&server, "/readyz");
    let begun = std::time::Instant::now();
    assert!(status == 503 && page.contains("draining"), "{page}");
    // On a machine that is held up for longer than the time, there is nothing to see.
    if let Ok(stream) = std::net::TcpStream::connect(server.address()) {
        let mut late = Client(stream);
        use std::io::Write;
        let asked = late.0.write_all(b"get a\r\n").is_ok();
        let reply = late.read_to_close();
        assert!(!asked || reply == b"END\r\n" || begun.elapsed() > Duration::from_secs(1), "{reply:?}");
    }
    before.read_to_close();
    server.running.join().unwrap();
}

#[test]
fn an_immediate_shutdown_does_not_wait() {
    let server = TestServer::start(ServerConfig { drain_timeout: Duration::from_secs(3600), ..config() });
    let mut stuck = server.connect();
    stuck.send("get slow\r\n");
    eventually("it waits", || server.gate.waiting() == 1);
    server.running.shutdown(true);
    server.running.shutdown(false);
    server.running.join().unwrap();
    assert_eq!(stuck.read_to_close(), b"");
}

#[test]
fn a_worker_that_does_not_turn_is_felt() {
    let server = TestServer::start(ServerConfig { workers: 1, ..config() });
    let pulse = server.running.pulse();
    let mut client = server.connect();
    eventually("it turns with nothing to do", || pulse.standing_still().is_empty());
    client.send(set("heavy", b"value"));
    eventually("it is held up", || server.gate.heavy() == 1);
    pulse.standing_still();
    for _ in 0..3 {
        assert_eq!(pulse.standing_still(), [0]);
    }
    server.gate.let_heavy(1);
    client.expect("STORED\r\n");
    eventually("it turns again", || pulse.standing_still().is_empty());
    assert_eq!(server.node.phases.phase(), Phase::Running);
    server.running.shutdown(true);
    assert!(server.node.phases.phase() > Phase::Running);
}

#[test]
fn the_shutdown_command_stops_the_server() {
    let server = TestServer::start(config());
    let mut client = server.connect();
    client.send("shutdown graceful\r\n");
    client.read_to_close();
    server.running.join().unwrap();
}

#[test]
fn an_address_in_use_is_refused_by_name() {
    let first = TestServer::start(config());
    let address = first.address();
    let error = start_on(Listener::tcp(address)).expect_err("it is in use");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_unix_socket_has_its_mode_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener {
        address: ListenAddress::Unix { path: path.clone(), mode: 0o640 },
        ..Listener::tcp(([127, 0, 0, 1], 0).into())
    };
    let server = TestServer::start(ServerConfig { listeners: vec![listener], ..config() });
    let metadata = std::fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);

    let mut client = Client(UnixStream::connect(&path).unwrap());
    client.ask(set("key", b"value"), "STORED\r\n");
    client.ask("get key\r\n", hit("key", b"value"));
    assert_eq!(server.node.connections()[0].address, format!("unix:{}", path.display()));
    server.running.shutdown(true);
    server.running.join().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_socket_file_left_behind_is_replaced_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the file of a server that crashed");
    let server = TestServer::start(ServerConfig { listeners: vec![Listener::unix(&path)], ..config() });

    assert!(matches!(start_on(Listener::unix(&path)), Err(ServerError::SocketInUse(_))));
    Client(UnixStream::connect(&path).unwrap()).ask("get a\r\n", "END\r\n");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn what_is_no_socket_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    assert!(matches!(start_on(Listener::unix(&path)), Err(ServerError::Listen { .. })));
    assert_eq!(std::fs::read(Path::new(&path)).unwrap(), b"data");
}

fn start_on(listener: Listener) -> Result<moneta_server::RunningServer, ServerError> {
    let config = ServerConfig { listeners: vec![listener], ..config() };
    TestServer::try_start(&config, Clock::system()).map(|server| server.running)
}
