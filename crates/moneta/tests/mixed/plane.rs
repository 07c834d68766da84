//! A control plane of one build that nodes and proxies of both follow: it is replaced by the other build on its ledger, and so is each
//! node, while clients of a proxy of each build see no error.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use moneta_link::{Control, ControlUrl};
use moneta_net::Outward;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::plane::ready;
use crate::common::{Node, connect, steady_port, until};
use crate::{Build, KEYS, PREFIXES, ZONES, command, old};

/// Rounds that a client makes between two steps.
const ROUNDS: usize = 100;

struct Fleet {
    old: PathBuf,
    folder: tempfile::TempDir,
    control: Option<Node>,
    control_port: u16,
    nodes: [Option<Node>; 3],
    node_ports: [u16; 3],
    proxies: Vec<Node>,
}

impl Fleet {
    /// A control plane of the older build, nodes of both, and a proxy of each.
    fn start(old: PathBuf) -> Self {
        let mut fleet = Self {
            old,
            folder: tempfile::tempdir().expect("a folder"),
            control: None,
            control_port: steady_port(),
            nodes: [None, None, None],
            node_ports: [(); 3].map(|()| steady_port()),
            proxies: Vec::new(),
        };
        fleet.run_control(Build::Old);
        let replicas = ZONES.map(|zone| json!({ "name": zone, "zone": zone, "slots": [format!("{zone}0")] }));
        fleet.change(&json!({ "create": { "replicas": replicas } }));
        for (number, build) in [Build::Old, Build::New, Build::Old].into_iter().enumerate() {
            fleet.run_node(number, build);
        }
        (0..ZONES.len()).for_each(|number| fleet.wait_until_serving(number));
        fleet.proxies = vec![fleet.proxy(0, Build::Old), fleet.proxy(1, Build::New)];
        fleet
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.control_port)
    }

    fn run_control(&mut self, build: Build) {
        let mut command = command(&self.old, build, "control");
        let listen = format!("127.0.0.1:{}", self.control_port);
        command.args(["--listen", &listen, "--renew-every", "1", "--data"]).arg(self.folder.path().join("control"));
        let control = self.control.insert(Node::run(&mut command));
        let is_ready = || ready(&listen).is_some_and(|page| page["ready"] == true);
        control.wait_for(is_ready, &format!("a control plane of build {build:?} is ready"));
    }

    fn run_node(&mut self, number: usize, build: Build) {
        let (zone, port) = (ZONES[number], self.node_ports[number].to_string());
        let mut command = command(&self.old, build, "serve");
        command.args(["-p", &port, "--admin", "127.0.0.1:0", "--cluster", "--threads", "1", "-m", "64"]);
        command.args(["--writer-id", &(number + 1).to_string(), "--zone", zone, "--replica", zone]);
        command.args(["--slot", &format!("{zone}0"), "--app", "app", "--catch-up", "control:app"]);
        command.args(["--control", &self.url(), "--state-dir"]).arg(self.folder.path().join(zone));
        self.nodes[number] = Some(Node::run(&mut command));
    }

    fn proxy(&self, number: usize, build: Build) -> Node {
        let mut command = command(&self.old, build, "proxy");
        command.args(["-p", "0", "--admin", "127.0.0.1:0", "--threads", "1", "--topology", "control:app"]);
        // As a node on a loaded machine may take: two of three copies are to take each write.
        command.args(["--node-timeout", "10s", "--writer-id", &(number + 7).to_string()]);
        command.args(["--zone", ZONES[number], "--app", "app"]);
        command.args(["--control", &self.url(), "--state-dir"]).arg(self.folder.path().join(PREFIXES[number]));
        Node::run(&mut command)
    }

    /// Ends the control plane in order and goes on with one of `build` on the same ledger.
    fn replace_control(&mut self, build: Build) {
        stop(&mut self.control);
        self.run_control(build);
    }

    /// Ends a node in order and goes on with one of `build` in its slot.
    fn replace_node(&mut self, number: usize, build: Build) {
        stop(&mut self.nodes[number]);
        self.run_node(number, build);
        self.wait_until_serving(number);
    }

    fn ask(&self) -> Control {
        let url: ControlUrl = self.url().parse().expect("a URL");
        Control::new(&[url], &Outward::default(), "default")
    }

    /// What the control plane says at a path; `Null` where it does not.
    fn get(&self, path: &[&str]) -> Value {
        let control = self.ask();
        control
            .get(&control.path(path.iter().copied()))
            .map_or(Value::Null, |page| serde_json::from_str(&page).unwrap())
    }

    /// Changes the topology; returns its epoch.
    fn change(&self, change: &Value) -> u64 {
        let (control, body) = (self.ask(), json!({ "why": "a test", "change": change }).to_string());
        let answer = control.post(&control.path(["topologies", "app"]), &body).expect("the change is made");
        serde_json::from_str::<Value>(&answer).unwrap()["epoch"].as_u64().expect("an epoch")
    }

    /// The status of what serves at a port, as the control plane has it.
    fn status(&self, port: u16) -> Option<String> {
        let all = self.get(&["instances"]);
        let address = format!("127.0.0.1:{port}");
        let one =
            all["instances"].as_array()?.iter().find(|one| one["value"]["addresses"]["cache"] == address)?.clone();
        (one["state"] == "live").then(|| one["value"]["status"].as_str().map(str::to_owned))?
    }

    /// Waits until a node is up, and holds its slot.
    fn wait_until_serving(&self, number: usize) {
        let (node, port) = (self.nodes[number].as_ref().expect("it runs"), self.node_ports[number]);
        let holds = || {
            let topology = self.get(&["topologies", "app"]);
            let replicas = topology["replicas"].as_array().cloned().unwrap_or_default();
            let slot = replicas.iter().find(|replica| replica["name"] == ZONES[number]).map(|found| &found["slots"][0]);
            slot.is_some_and(|slot| slot["address"] == format!("127.0.0.1:{port}") && slot["holder"].is_string())
        };
        node.wait_for(|| self.status(port).as_deref() == Some("UP") && holds(), "the node serves in its slot");
    }

    /// Every process renews, and a change reaches the proxies of both builds.
    fn is_whole(&self, change: &Value, clients: &[Load]) {
        (0..ZONES.len()).for_each(|number| self.wait_until_serving(number));
        let ports = self.proxies.iter().map(|proxy| proxy.address().port());
        ports.for_each(|port| until("the proxies renew", || self.status(port).as_deref() == Some("UP")));
        let epoch = self.change(change);
        self.proxies.iter().for_each(|proxy| proxy.wait_for_topology(u32::try_from(epoch).expect("few changes")));
        clients.iter().for_each(Load::goes_on);
    }
}

fn stop(process: &mut Option<Node>) {
    let mut process = process.take().expect("it runs");
    process.signal(Signal::SIGTERM);
    assert!(process.wait().success(), "a clean end: {}", process.log());
}

/// A client that sets and reads through one proxy, and keeps what was not as it should be.
struct Load {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<String>>,
}

impl Load {
    fn start(proxy: SocketAddr, prefix: &'static str) -> Self {
        let (is_over, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&rounds));
        let run = move || {
            let (mut stream, mut wrong) = (BufReader::new(connect(proxy)), Vec::new());
            // A connection whose answers are not understood says nothing more.
            while wrong.is_empty() && !over.load(Ordering::Relaxed) {
                let round = count.fetch_add(1, Ordering::Relaxed);
                let (key, value) = (format!("{prefix}{}", round * 7 % KEYS), format!("{prefix}-{round}"));
                let stored = ask(&mut stream, &format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()), 1);
                let read = ask(&mut stream, &format!("mg {key} v\r\n"), 2);
                if stored != "STORED\r\n" || read != format!("VA {}\r\n{value}\r\n", value.len()) {
                    wrong.push(format!("{key}: {stored:?} {read:?}"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            wrong
        };
        Self { is_over, rounds, thread: std::thread::spawn(run) }
    }

    fn goes_on(&self) {
        let from = self.rounds.load(Ordering::Relaxed);
        until("requests go on", || self.rounds.load(Ordering::Relaxed) > from + ROUNDS || self.thread.is_finished());
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        assert_eq!(self.thread.join().expect("it ends"), Vec::<String>::new(), "errors that a client has seen");
    }
}

fn ask(stream: &mut BufReader<TcpStream>, request: &str, lines: usize) -> String {
    stream.get_mut().write_all(request.as_bytes()).expect("the proxy reads");
    let mut answer = String::new();
    for _ in 0..lines {
        stream.read_line(&mut answer).expect("the proxy answers");
        if answer == "EN\r\n" || answer.starts_with("SERVER_ERROR") {
            break;
        }
    }
    answer
}

#[test]
#[ignore = "needs a binary of an older build: make test-mixed"]
fn old_and_new_processes_follow_control_planes_of_both_builds() {
    let mut fleet = Fleet::start(old());
    let clients: Vec<Load> =
        fleet.proxies.iter().zip(PREFIXES).map(|(proxy, prefix)| Load::start(proxy.address(), prefix)).collect();
    let weight = |weight: u32| json!({ "weight": { "replica": "a", "slot": "a0", "weight": weight } });
    fleet.is_whole(&weight(2), &clients);
    for (turn, build) in [Build::New, Build::Old, Build::New].into_iter().enumerate() {
        fleet.replace_control(build);
        fleet.is_whole(&weight(3 + turn as u32), &clients);
        println!("all follow a control plane of build {build:?}");
        // Each slot gets a node of the build that it did not have.
        for number in 0..ZONES.len() {
            let is_new = (number + turn) % 2 == 0;
            fleet.replace_node(number, if is_new { Build::New } else { Build::Old });
            clients.iter().for_each(Load::goes_on);
        }
        println!("each node has been replaced beside it");
    }
    clients.into_iter().for_each(Load::end);
}
