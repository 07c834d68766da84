//! A server with its admin side, and reading what that serves.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use moneta_admin::AdminConfig;
use moneta_process::Desk;
use moneta_process::desk::{About, Vitals};
use moneta_process::phases::Phases;
use moneta_server::ServerConfig;
use moneta_store::Progress;

use super::{PATIENCE, TestServer, config};

/// A server with an admin side on a free port.
pub fn start() -> TestServer {
    start_with(config())
}

/// The same of a server with a configuration.
pub fn start_with(config: ServerConfig) -> TestServer {
    let mut server = TestServer::start(config);
    let desk = desk(Arc::clone(&server.node.phases), Arc::default());
    server.running.show_on(&desk);
    desk.serve();
    server.desk = Some(desk);
    server
}

/// The desk of a process that starts.
pub fn desk(phases: Arc<Phases>, recovery: Arc<Progress>) -> Desk {
    let about = About { program: "moneta", version: moneta_server::MONETA_VERSION, role: "node" };
    let vitals = Vitals { about, phases, recovery, left_out: None };
    Desk::open(vitals, Some(SocketAddr::from(([127, 0, 0, 1], 0))), AdminConfig::default()).unwrap()
}

/// Status and body of a page.
pub fn fetch(server: &TestServer, path: &str) -> (u16, String) {
    fetch_from(server.desk.as_ref().unwrap(), path)
}

/// The same of an admin side that may have no server.
pub fn fetch_from(desk: &Desk, path: &str) -> (u16, String) {
    let (status, _, body) = fetch_accepting(desk, path, "application/openmetrics-text");
    (status, body)
}

/// Status, head and body of a page, for a client that accepts `accept`.
pub fn fetch_as(server: &TestServer, path: &str, accept: &str) -> (u16, String, String) {
    fetch_accepting(server.desk.as_ref().unwrap(), path, accept)
}

fn fetch_accepting(desk: &Desk, path: &str, accept: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(desk.address().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// Samples by name and labels as written, and types by family.
#[derive(Debug, Default)]
pub struct Exposition {
    pub samples: BTreeMap<String, f64>,
    pub types: BTreeMap<String, String>,
}

impl Exposition {
    /// Reads the text format strictly: every sample belongs to the family announced last, and nothing is told twice.
    pub fn parse(text: &str) -> Self {
        let mut exposition = Self::default();
        let mut family = String::new();
        let body = text.strip_suffix("# EOF\n").expect("the text ends in its end mark");
        for line in body.lines() {
            if let Some(announced) = line.strip_prefix("# TYPE ") {
                let (name, sort) = announced.split_once(' ').unwrap();
                family = name.to_owned();
                assert!(exposition.types.insert(name.into(), sort.into()).is_none(), "{name} is announced twice");
            } else if !line.starts_with("# HELP ") {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                assert!(sample.starts_with(&family), "{sample} under {family}");
                let told_twice = exposition.samples.insert(sample.into(), value.parse().unwrap());
                assert!(told_twice.is_none(), "{sample} is told twice");
            }
        }
        exposition
    }

    /// The value of a sample that must be there.
    pub fn get(&self, sample: &str) -> f64 {
        *self.samples.get(sample).unwrap_or_else(|| panic!("no {sample} in {:#?}", self.samples))
    }
}

/// What `/metrics` says now.
pub fn metrics(server: &TestServer) -> Exposition {
    let (status, text) = fetch(server, "/metrics");
    assert_eq!(status, 200);
    Exposition::parse(&text)
}
