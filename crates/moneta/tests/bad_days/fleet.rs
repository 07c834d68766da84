//! Three zones of one node each, reached through forwarders, and proxies over them.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::client::Client;
use crate::common::{Node, connect, exchange, file, moneta, steady_port};
use crate::forwarder::Forwarder;

pub const ZONES: [&str; 3] = ["a", "b", "c"];
/// The longest that a node may hold a request up.
pub const NODE_TIMEOUT: &str = "1500ms";

pub struct Fleet {
    pub nodes: Vec<Option<Node>>,
    /// Where the nodes listen.
    pub addresses: Vec<SocketAddr>,
    pub forwarders: Vec<Forwarder>,
    pub folder: tempfile::TempDir,
}

/// A node's command, with the options that a test adds.
fn node(number: usize, port: u16, more: &[&str]) -> Node {
    let (writer, port) = ((number + 1).to_string(), port.to_string());
    let arguments = ["--cluster", "--writer-id", &writer, "--threads", "1", "-m", "64"];
    Node::run(moneta(&["serve", "-p", &port, "--admin", "off"]).args(arguments).args(more))
}

impl Fleet {
    pub fn start() -> Self {
        Self::with([&[], &[], &[]])
    }

    /// With options for each node.
    pub fn with(more: [&[&str]; 3]) -> Self {
        let nodes: Vec<_> =
            more.iter().enumerate().map(|(number, more)| Some(node(number, steady_port(), more))).collect();
        Self::of(nodes)
    }

    pub fn of(nodes: Vec<Option<Node>>) -> Self {
        let addresses = nodes.iter().flatten().map(Node::address).collect();
        Self::at(nodes, addresses)
    }

    /// Of nodes that proxies reach there.
    pub fn at(nodes: Vec<Option<Node>>, addresses: Vec<SocketAddr>) -> Self {
        let forwarders = addresses.iter().copied().map(Forwarder::to).collect();
        let fleet = Self { nodes, addresses, forwarders, folder: tempfile::tempdir().expect("a folder") };
        fleet.write_topology(1, &ZONES);
        fleet
    }

    /// A topology file with these zones, in place of the one of before.
    pub fn write_topology(&self, epoch: u32, zones: &[&str]) -> PathBuf {
        let mut text = format!("epoch = {epoch}\n");
        for (zone, forwarder) in ZONES.iter().zip(&self.forwarders).filter(|(zone, _)| zones.contains(zone)) {
            text.push_str(&format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={}\"]\n", forwarder.address));
        }
        let new = file(self.folder.path(), "topology.new", &text);
        let path = self.folder.path().join("topology.toml");
        std::fs::rename(new, &path).expect("the file can be renamed");
        path
    }

    /// A proxy of a zone.
    pub fn proxy(&self, zone: &str, more: &[&str]) -> Proxy {
        self.patient_proxy(zone, NODE_TIMEOUT, more)
    }

    /// A proxy that waits so long for nodes.
    pub fn patient_proxy(&self, zone: &str, timeout: &str, more: &[&str]) -> Proxy {
        let hints = self.folder.path().join(format!("hints-{zone}"));
        let topology = self.folder.path().join("topology.toml");
        let (hints, topology) = (hints.to_str().expect("plain"), topology.to_str().expect("plain"));
        let arguments = ["--topology", topology, "--zone", zone, "--hint-dir", hints, "--threads", "1"];
        let timeout = ["--node-timeout", timeout];
        Proxy::run(moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0"]).args(arguments).args(timeout).args(more))
    }

    pub fn node(&self, number: usize) -> &Node {
        self.nodes[number].as_ref().expect("it runs")
    }

    pub fn kill(&mut self, number: usize) {
        drop(self.nodes[number].take());
    }

    /// Starts a node anew, empty, where it was.
    pub fn restart(&mut self, number: usize) {
        self.nodes[number] = Some(node(number, self.addresses[number].port(), &[]));
    }

    /// Every key of the journal is on this node as it should be.
    pub fn holds_all(&self, number: usize, client: &Client) -> bool {
        client.keys().iter().all(|key| client.fits(key, &self.look(number, &format!("get {key}\r\n"))))
    }

    /// What a node answers through its last listener: where proxies have to show who they are, the test has one of its own.
    pub fn look(&self, number: usize, request: &str) -> String {
        let addresses = self.node(number).listening();
        let last = addresses.iter().rev().find_map(|address| address.parse::<SocketAddr>().ok());
        exchange(connect(last.expect("it listens on TCP")), request)
    }
}

/// A proxy with its admin address.
pub struct Proxy {
    pub process: Node,
    admin: String,
}

impl Proxy {
    pub fn run(command: &mut std::process::Command) -> Self {
        let process = Node::run(command);
        process.wait_for_log("admin HTTP listening");
        let log = process.log();
        let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
        let admin = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
        Self { admin: admin.to_owned(), process }
    }

    /// Its admin address.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    pub fn client(&self) -> Client {
        Client::of(self.process.address())
    }

    pub fn page(&self, path: &str) -> String {
        let mut stream = connect(&*self.admin);
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }

    /// The sum of a metric over its samples with this label, such as `zone="a"`.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.page("/metrics");
        let lines = text.lines().filter(|line| line.starts_with(&format!("moneta_{name}{{")) && line.contains(label));
        lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")).sum()
    }

    pub fn is_up(&self, zone: &str) -> bool {
        self.metric("cluster_node_up", &format!("zone=\"{zone}\"")) == 1.0
    }

    pub fn ejections(&self, zone: &str) -> f64 {
        self.metric("cluster_node_ejections_total", &format!("zone=\"{zone}\""))
    }

    /// Waits until all nodes are asked, and have been given what they missed.
    pub fn wait_until_whole(&self) {
        let is_whole = || ZONES.iter().all(|zone| self.is_up(zone)) && self.metric("cluster_hints", "") == 0.0;
        self.process.wait_for(is_whole, "all nodes are back and have what they missed");
    }
}
