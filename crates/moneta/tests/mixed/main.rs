//! Two builds in one cluster: an older one and this one, rolled forward, back and forward again under load. No acknowledged write
//! is lost and no value is wrong, whichever process is of which build: versions, floors, hints on disk, feeds and SSD tiers go
//! from one to the other.
//!
//! `make test-mixed` builds the older one and says where it is, by `MONETA_OLD_BIN`.

// Other programs use more of it.
#[allow(dead_code)]
#[path = "../bad_days/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod plane;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use client::Client;
use common::{Node, moneta, steady_port};
use nix::sys::signal::Signal;

const ZONES: [&str; 3] = ["a", "b", "c"];
const PROXIES: usize = 2;
/// Keys of each client.
const KEYS: usize = 300;
/// Of the keys of each client.
const PREFIXES: [&str; PROXIES] = ["x", "y"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Build {
    Old,
    New,
}

/// A command of a build, without the test's environment.
fn command(old: &Path, build: Build, verb: &str) -> Command {
    let new = moneta(&[verb]);
    match build {
        Build::New => new,
        Build::Old => {
            let mut command = Command::new(old);
            command.arg(verb);
            for (name, _) in new.get_envs() {
                command.env_remove(name);
            }
            command
        }
    }
}

struct Fleet {
    old: PathBuf,
    folder: tempfile::TempDir,
    nodes: Vec<(Option<Node>, u16)>,
    proxies: Vec<(Option<Node>, u16)>,
}

impl Fleet {
    fn start(old: PathBuf) -> Self {
        let ports = |count| (0..count).map(|_| (None, steady_port())).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let mut fleet = Self { old, folder, nodes: ports(ZONES.len()), proxies: ports(PROXIES) };
        let mut topology = "epoch = 1\n".to_owned();
        for (zone, (_, port)) in ZONES.iter().zip(&fleet.nodes) {
            topology.push_str(&format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0=127.0.0.1:{port}\"]\n"));
        }
        std::fs::write(fleet.topology(), topology).expect("the topology is written");
        (0..ZONES.len()).for_each(|number| fleet.run_node(number, Build::Old));
        (0..ZONES.len()).for_each(|number| fleet.wait_until_ready(number));
        (0..PROXIES).for_each(|number| fleet.run_proxy(number, Build::Old));
        fleet
    }

    fn topology(&self) -> PathBuf {
        self.folder.path().join("topology.toml")
    }

    fn run_node(&mut self, number: usize, build: Build) {
        let tier = self.folder.path().join(format!("ssd-{number}"));
        std::fs::create_dir_all(&tier).expect("a folder");
        let mut command = command(&self.old, build, "serve");
        let (port, writer) = (self.nodes[number].1.to_string(), (number + 1).to_string());
        command.args([
            "-p",
            &port,
            "--admin",
            "off",
            "--cluster",
            "--writer-id",
            &writer,
            "--threads",
            "1",
            "-m",
            "64",
        ]);
        command.arg("--flash").arg(format!("{}:140m", tier.display())).arg("--catch-up").arg(self.topology());
        self.nodes[number].0 = Some(Node::run(&mut command));
    }

    fn run_proxy(&mut self, number: usize, build: Build) {
        let mut command = command(&self.old, build, "proxy");
        let (port, writer) = (self.proxies[number].1.to_string(), (number + 7).to_string());
        command.args([
            "-p",
            &port,
            "--admin",
            "off",
            "--threads",
            "1",
            "--zone",
            ZONES[number],
            "--writer-id",
            &writer,
        ]);
        command.arg("--topology").arg(self.topology());
        command.arg("--hint-dir").arg(self.folder.path().join(format!("hints-{number}")));
        self.proxies[number].0 = Some(Node::run(&mut command));
    }

    fn stop(process: &mut Option<Node>) {
        let mut process = process.take().expect("it runs");
        process.signal(Signal::SIGTERM);
        assert!(process.wait().success(), "a clean end: {}", process.log());
    }

    fn roll_node(&mut self, number: usize, build: Build) {
        Self::stop(&mut self.nodes[number].0);
        self.run_node(number, build);
        self.wait_until_ready(number);
    }

    fn roll_proxy(&mut self, number: usize, build: Build) {
        Self::stop(&mut self.proxies[number].0);
        self.run_proxy(number, build);
    }

    fn node(&self, number: usize) -> &Node {
        self.nodes[number].0.as_ref().expect("it runs")
    }

    /// Waits until a node answers reads: it has caught up.
    fn wait_until_ready(&self, number: usize) {
        let node = self.node(number);
        node.wait_for(|| node.exchange("get nothing\r\n") == "END\r\n", "the node answers reads");
    }

    fn proxy_address(&self, number: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.proxies[number].1))
    }

    /// The copies hold what a client was told.
    fn wait_until_all_hold(&self, clients: &[Client]) {
        for (number, zone) in ZONES.iter().enumerate() {
            let node = self.node(number);
            let holds = |client: &Client| {
                client.keys().iter().all(|key| client.fits(key, &node.exchange(&format!("get {key}\r\n"))))
            };
            for client in clients {
                node.wait_for(|| holds(client), &format!("the node of zone {zone} holds all"));
            }
        }
    }
}

/// A client that goes on while its proxy is restarted.
struct Load {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Client>,
}

impl Load {
    fn start(mut client: Client, proxy: SocketAddr, prefix: &'static str) -> Self {
        let over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&over);
        let run = move || {
            for round in 0.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("{prefix}{}", round * 7 % KEYS);
                let stored = client.set(&key);
                // Not by `get`, to which the older build answers what failed as a miss.
                let answer = client.try_ask(&format!("mg {key} v"));
                match answer {
                    Ok(answer) if !answer.starts_with("SERVER_ERROR") => {
                        let answer = answer.replacen("VA ", &format!("VALUE {key} 0 "), 1);
                        assert!(client.fits(&key, &answer), "{key} shows {answer:?} behind a set, stored: {stored}");
                    }
                    Ok(_) => {}
                    Err(_) => {
                        std::thread::sleep(Duration::from_millis(20));
                        if std::net::TcpStream::connect(proxy).is_ok() {
                            client.move_to(proxy);
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            client.move_to(proxy);
            client
        };
        Self { over, thread: std::thread::spawn(run) }
    }

    fn stop(self) -> Client {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("values are right")
    }
}

/// Where the older build is.
fn old() -> PathBuf {
    let path = std::env::var_os("MONETA_OLD_BIN").expect("MONETA_OLD_BIN names a binary: make test-mixed");
    assert!(Path::new(&path).is_file(), "MONETA_OLD_BIN is a file");
    path.into()
}

#[test]
#[ignore = "needs a binary of an older build: make test-mixed"]
fn a_cluster_is_rolled_forward_back_and_forward_again() {
    let mut fleet = Fleet::start(old());
    let mut clients: Vec<Client> = (0..PROXIES).map(|number| Client::of(fleet.proxy_address(number))).collect();
    for (client, prefix) in clients.iter_mut().zip(PREFIXES) {
        (0..KEYS).for_each(|number| assert!(client.set(&format!("{prefix}{number}")), "all are up"));
    }
    for (to, proxies_first) in [(Build::New, false), (Build::Old, true), (Build::New, true)] {
        let loads: Vec<Load> = clients
            .drain(..)
            .enumerate()
            .map(|(number, client)| Load::start(client, fleet.proxy_address(number), PREFIXES[number]))
            .collect();
        let roll_proxies = |fleet: &mut Fleet| (0..PROXIES).for_each(|number| fleet.roll_proxy(number, to));
        if proxies_first {
            roll_proxies(&mut fleet);
        }
        (0..ZONES.len()).for_each(|number| fleet.roll_node(number, to));
        if !proxies_first {
            roll_proxies(&mut fleet);
        }
        clients = loads.into_iter().map(Load::stop).collect();
        fleet.wait_until_all_hold(&clients);
        println!("rolled to {to:?}, proxies first: {proxies_first}");
    }
}

#[test]
#[ignore = "needs a binary of an older build: make test-mixed"]
fn hints_of_one_build_are_delivered_by_the_other() {
    let mut fleet = Fleet::start(old());
    let mut client = Client::of(fleet.proxy_address(0));
    for to in [Build::New, Build::Old] {
        client.move_to(fleet.proxy_address(0));
        assert_eq!(client.round(0..KEYS).0, KEYS, "all are up");
        Fleet::stop(&mut fleet.nodes[2].0);
        assert_eq!(client.round(0..KEYS).0, KEYS, "two of three take it");
        fleet.roll_proxy(0, to);
        fleet.run_node(2, to);
        fleet.wait_until_ready(2);
        fleet.wait_until_all_hold(std::slice::from_ref(&client));
    }
}

#[test]
#[ignore = "needs a binary of an older build: make test-mixed"]
fn a_flush_reaches_copies_of_both_builds() {
    let mut fleet = Fleet::start(old());
    fleet.roll_node(1, Build::New);
    for build in [Build::New, Build::Old] {
        fleet.roll_proxy(0, build);
        let mut client = Client::of(fleet.proxy_address(0));
        assert_eq!(client.round(0..KEYS).0, KEYS);
        assert_eq!(client.ask("flush_all"), "OK\r\n", "through a proxy of {build:?}");
        assert_eq!(client.ask("set after 0 0 1\r\n1"), "STORED\r\n");
        for (number, zone) in ZONES.iter().enumerate() {
            let node = fleet.node(number);
            assert_eq!(node.exchange("get key0 key1 key2\r\n"), "END\r\n", "zone {zone}");
            node.wait_for(|| node.exchange("get after\r\n").contains("VALUE"), "what came behind the flush stays");
        }
    }
}
