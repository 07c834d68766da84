//! Servers that end with their test, a plain client to plant items with, and runs against them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_memory::{Memory, MemoryConfig};
use moneta_net::Address;
use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings};
use moneta_server::{Listener, RunningServer, Server as NodeServer, ServerConfig};
use moneta_store::{Clock, KeyHash};
use moneta_testkit::process::Memcached;
pub use moneta_testkit::process::PATIENCE;
use moneta_verify::{Counts, Report, Unwatched, Verify, VerifyConfig};

/// From so many seconds on, items expire at a moment that is the same on every server, however late they are planted.
const LASTING: i64 = 600;
/// Largest value of the servers here.
const ITEM_MAX: usize = 2 << 20;

/// A server on a Unix socket.
pub struct Server {
    path: PathBuf,
    memcached: Option<Memcached>,
    /// A node in this process, and the folder of its socket.
    node: Option<(RunningServer, tempfile::TempDir)>,
}

impl Server {
    /// A real memcached.
    pub fn memcached() -> Self {
        Self::memcached_with(&[])
    }

    /// A real memcached, given more arguments.
    pub fn memcached_with(arguments: &[&str]) -> Self {
        let memcached = Memcached::start(&[&["-m", "128", "-I", "2m"], arguments].concat());
        Self { path: memcached.path().to_owned(), memcached: Some(memcached), node: None }
    }

    /// A Moneta in the test's own process.
    pub fn moneta() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(Clock::system());
        let memory = MemoryConfig {
            limit: 128 << 20,
            item_max: ITEM_MAX,
            evict: true,
            threads: 2,
            shards: None,
            seed: KeyHash::seeded(7),
            versioning: Default::default(),
        };
        let store = Memory::new(&memory, Arc::clone(&clock)).expect("the limits are possible");
        let path = folder.path().join("socket");
        let listeners = vec![Listener::unix(path.clone())];
        let config = ServerConfig { listeners, workers: 2, ..ServerConfig::default() };
        let settings = NodeSettings { item_max: ITEM_MAX, memory: 128 << 20, ..NodeSettings::default() };
        let node = Arc::new(Node::new(settings, clock, Authenticator::off()));
        let running = NodeServer::start(&config, Arc::new(store), node).expect("it starts");
        Self { path, memcached: None, node: Some((running, folder)) }
    }

    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.path)
    }

    /// Kills a memcached.
    pub fn kill(&mut self) {
        self.memcached = None;
    }
}

/// An item to plant.
#[derive(Clone, Debug)]
pub struct Planted {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub flags: u32,
    /// Seconds to live; 0 for ever. They count from the planting if they are few, else from the beginning of the tests.
    pub ttl: i64,
}

/// An item that never expires.
pub fn item(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, flags: u32) -> Planted {
    Planted { key: key.as_ref().to_vec(), value: value.as_ref().to_vec(), flags, ttl: 0 }
}

/// Key `number` of a test.
pub fn key(number: usize) -> String {
    format!("key:{number:06}")
}

/// A client that writes its requests by itself.
pub struct Client {
    stream: UnixStream,
}

impl Client {
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream }
    }

    /// Sets all of `items`.
    pub fn plant(&mut self, items: impl IntoIterator<Item = Planted>) {
        let mut requests = Vec::new();
        for Planted { key, value, flags, ttl } in items {
            let (key, base64) = encoded(&key);
            let exptime = if ttl >= LASTING { begun() + ttl } else { ttl };
            write!(requests, "ms {key} {} T{exptime} F{flags} q{base64}\r\n", value.len()).expect("a Vec takes all");
            requests.extend_from_slice(&value);
            requests.extend_from_slice(b"\r\n");
        }
        self.finish(requests);
    }

    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.plant([item(key, value, 0)]);
    }

    pub fn delete(&mut self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let mut requests = Vec::new();
        for key in keys {
            let (key, base64) = encoded(key.as_ref());
            write!(requests, "md {key} q{base64}\r\n").expect("a Vec takes all");
        }
        self.finish(requests);
    }

    /// Sends `request` and reads until `end`.
    pub fn ask(&mut self, request: &str, end: &str) -> String {
        self.stream.write_all(request.as_bytes()).expect("the server reads");
        String::from_utf8(self.read_to(end.as_bytes())).expect("a reply in ASCII")
    }

    /// Sends quiet requests; none may be answered.
    fn finish(&mut self, mut requests: Vec<u8>) {
        requests.extend_from_slice(b"mn\r\n");
        self.stream.write_all(&requests).expect("the server reads");
        let reply = self.read_to(b"MN\r\n");
        assert_eq!(reply.escape_ascii().to_string(), "MN\\r\\n");
    }

    fn read_to(&mut self, end: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        while !reply.ends_with(end) {
            let mut buffer = [0; 4096];
            let read = match self.stream.read(&mut buffer) {
                // A read with a time limit is not taken up again after the process was stopped.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.expect("the server answers"),
            };
            assert_ne!(read, 0, "the server hangs up after {}", reply.escape_ascii());
            reply.extend_from_slice(&buffer[..read]);
        }
        reply
    }
}

/// When the first item was planted, in Unix time.
fn begun() -> i64 {
    static BEGUN: OnceLock<i64> = OnceLock::new();
    *BEGUN.get_or_init(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.expect("a clock that is set").as_secs() as i64
    })
}

fn encoded(key: &[u8]) -> (String, &'static str) {
    if key.iter().all(u8::is_ascii_graphic) {
        (String::from_utf8(key.to_vec()).expect("ASCII"), "")
    } else {
        (STANDARD.encode(key), " b")
    }
}

/// A configuration that is patient with a loaded machine but soon sure of a difference.
pub fn config(a: &Server, b: &Server) -> VerifyConfig {
    VerifyConfig {
        settle: Duration::from_millis(150),
        timeout: PATIENCE,
        ..VerifyConfig::new(Address::Unix(a.path()), Address::Unix(b.path()))
    }
}

/// Runs to the end.
pub fn verify(config: VerifyConfig) -> Report {
    let report = Verify::new(config).run(&Unwatched).expect("both servers are there");
    assert_eq!(report.incomplete, None);
    report
}

/// The counts, but for those that depend on how the run went.
pub fn found(report: &Report) -> Counts {
    let versions = Counts { newer_in_a: 0, newer_in_b: 0, same_version: 0, ..report.counts };
    Counts { walked_a: 0, walked_b: 0, looked_for: 0, ..versions }
}
