//! A server in the test's process, on free ports, and a plain client for it.
#![allow(dead_code, reason = "each test file uses a part of this")]

pub mod admin;
pub mod gate;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_process::Desk;
use moneta_server::auth::Authenticator;
use moneta_server::client_memory::ClientMemory;
use moneta_server::node::{Node, NodeSettings};
use moneta_server::{ListenAddress, Listener, RunningServer, Server, ServerConfig, ServerError};
use moneta_store::Clock;
use moneta_testkit::model::ModelStore;

use gate::{Gate, GatedStore};

/// Long enough for the slowest machine; reached only when something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server with what its clients and the test need. It stops when it is dropped.
pub struct TestServer {
    pub running: RunningServer,
    /// Where [`admin::start`] has made one.
    pub desk: Option<Desk>,
    pub node: Arc<Node>,
    pub gate: Gate,
}

/// A configuration with one TCP listener on a free port and two workers.
pub fn config() -> ServerConfig {
    ServerConfig {
        listeners: vec![Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
        workers: 2,
        ..ServerConfig::default()
    }
}

impl TestServer {
    pub fn start(config: ServerConfig) -> Self {
        Self::start_with_clock(config, Clock::system())
    }

    pub fn start_with_clock(config: ServerConfig, clock: Clock) -> Self {
        Self::try_start(&config, clock).unwrap()
    }

    pub fn start_with_client_memory(config: ServerConfig, clock: Clock, bytes: usize) -> Self {
        Self::assemble(&config, clock, Authenticator::off(), bytes).unwrap()
    }

    pub fn try_start(config: &ServerConfig, clock: Clock) -> Result<Self, ServerError> {
        Self::try_start_guarded(config, clock, Authenticator::off())
    }

    /// The same with users who have to log in.
    pub fn try_start_guarded(config: &ServerConfig, clock: Clock, users: Authenticator) -> Result<Self, ServerError> {
        Self::assemble(config, clock, users, ClientMemory::LIMIT)
    }

    fn assemble(
        config: &ServerConfig,
        clock: Clock,
        users: Authenticator,
        client_memory: usize,
    ) -> Result<Self, ServerError> {
        let clock = Arc::new(clock);
        let settings = NodeSettings {
            max_connections: config.max_connections as u64,
            threads: config.workers,
            shutdown_enabled: true,
            client_memory,
            ..NodeSettings::default()
        };
        let gate = Gate::default();
        let store = GatedStore::layer(ModelStore::new(Arc::clone(&clock), 1024 * 1024), gate.clone());
        let node = Arc::new(Node::new(settings, clock, users));
        let running = Server::start(config, Arc::new(store), Arc::clone(&node))?;
        Ok(Self { running, desk: None, node, gate })
    }

    pub fn address(&self) -> SocketAddr {
        match &self.running.listen_addresses()[0] {
            ListenAddress::Tcp(address) => *address,
            ListenAddress::Unix { .. } => panic!("the first listener is not TCP"),
        }
    }

    pub fn connect(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client(stream)
    }
}

/// Waits until `holds`; the test fails if it never does.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a server has stopped executing for its one client, which reads nothing: tells how many reads it has executed and
/// how many bytes of their replies it holds. `reply`: bytes of the reply to a read; `sent`: of those that the client has read.
pub fn stopped(server: &TestServer, output_limit: usize, reply: usize, sent: usize) -> (usize, usize) {
    let (mut seen, mut held) = ((0, 0), 0);
    let mut since = Instant::now();
    eventually("the server stops executing", || {
        let totals = server.node.registry.totals();
        let last = std::mem::replace(&mut seen, (totals.cmd_get, totals.bytes_written));
        if last != seen {
            since = Instant::now();
            return false;
        }
        // Counters are read one after the other; they are consistent if none has changed between two readings. A delayed server
        // stands still too, but only one that has stopped holds as much as it may.
        held = (seen.0 as usize * reply + sent).saturating_sub(seen.1 as usize);
        held >= output_limit && since.elapsed() >= Duration::from_millis(100)
    });
    (seen.0 as usize, held)
}

/// A client that compares bytes.
pub struct Client<T>(pub T);

impl<T: Read + Write> Client<T> {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    pub fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[track_caller]
    pub fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let received = self.receive(bytes.len());
        assert_eq!(String::from_utf8_lossy(&received), String::from_utf8_lossy(bytes));
    }

    /// All up to a line that ends a list.
    pub fn receive_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            bytes.extend(self.receive(1));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(reply);
    }

    /// Reads until the server closes; a reset counts as a close.
    pub fn read_to_close(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("no close: {error}"),
        }
        bytes
    }
}

/// A `set` without flags and expiry.
pub fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
    request.extend_from_slice(value);
    request.extend_from_slice(b"\r\n");
    request
}

/// The reply to a `get` that hits.
pub fn hit(key: &str, value: &[u8]) -> Vec<u8> {
    let mut reply = format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes();
    reply.extend_from_slice(value);
    reply.extend_from_slice(b"\r\nEND\r\n");
    reply
}
