//! Warm jobs between real processes, beside a client that reads, writes and deletes. What they must not do shows nowhere else: put an
//! older value over a newer one, bring back what was deleted, have a target read that lacks a part, or end because a process did.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use common::{Node, PATIENCE, Process, Signal, moneta, output, printed, steady_port, until};
use moneta_link::{Control, ControlUrl};
use moneta_net::{Endpoint, HttpClient, Outward};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Keys that are there before the job, and as many that the client works on.
const KEYS: u32 = 1_500;

/// A control plane that can be killed and started again at its port.
struct Plane {
    folder: TempDir,
    port: u16,
    process: Option<Process>,
}

impl Plane {
    fn start() -> Self {
        let mut plane = Self { folder: tempfile::tempdir().unwrap(), port: steady_port(), process: None };
        plane.again();
        plane
    }

    fn again(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = moneta(&["control", "--listen", &listen, "--renew-every", "1", "--data"]);
        let process = Process::start(command.arg(self.folder.path().join("control")));
        process.until("the control plane is ready", || {
            let endpoint = Endpoint::new(listen.parse().unwrap()).patient(PATIENCE);
            HttpClient::new(endpoint).get("/readyz").send().is_ok_and(|answer| answer.is_success())
        });
        self.process = Some(process);
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn get(&self, path: &[&str]) -> Value {
        let url: ControlUrl = self.url().parse().unwrap();
        let control = Control::new(&[url], &Outward::default(), "default");
        control
            .get(&control.path(path.iter().copied()))
            .map_or(Value::Null, |page| serde_json::from_str(&page).unwrap())
    }

    fn topology(&self, change: &Value) {
        let url: ControlUrl = self.url().parse().unwrap();
        let control = Control::new(&[url], &Outward::default(), "default");
        control.post(&control.path(["topologies", "app"]), &json!({ "change": change }).to_string()).unwrap();
    }

    /// A node that is to hold a slot; waits until it does.
    fn node(&self, replica: &str, slot: &str, more: &[&str]) -> Node {
        let (url, state) = (self.url(), self.folder.path().join(format!("{slot}.state")).display().to_string());
        let place = ["--cluster", "--app", "app", "--replica", replica, "--slot", slot, "--zone", replica];
        let node =
            Node::start(&[&place[..], &["--control", &url, "--state-dir", &state, "--threads", "1"], more].concat());
        let address = node.address().to_string();
        until("it holds its slot", || self.get(&["topologies", "app"]).to_string().contains(&address));
        node
    }

    fn worker(&self, name: &str, volume: &Path) -> Process {
        let (url, volume) = (self.url(), volume.display().to_string());
        Process::start(&mut moneta(&["worker", "--control", &url, "--name", name, "--tasks", "2", "--volume", &volume]))
    }

    fn job(&self, id: &str) -> Value {
        self.get(&["jobs", id])
    }
}

/// The state of the task of a job.
fn state_of<'a>(job: &'a Value, task: &str) -> &'a str {
    let found = job["tasks"].as_array().and_then(|tasks| tasks.iter().find(|known| known["name"] == task));
    found.and_then(|found| found["state"].as_str()).unwrap_or("unknown")
}

/// A client of a proxy: it writes, deletes and reads its own keys, and knows what each must be.
struct Client {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<BTreeMap<String, Option<String>>>,
}

impl Client {
    fn start(proxy: &Node, mut known: BTreeMap<String, Option<String>>) -> Self {
        let (is_over, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, count, stream) = (Arc::clone(&is_over), Arc::clone(&rounds), proxy.connect());
        let thread = thread::spawn(move || {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while !over.load(Ordering::Relaxed) {
                let round = count.fetch_add(1, Ordering::Relaxed);
                let key = format!("key{}", fastrand::u32(..KEYS));
                if round % 3 == 0 {
                    let answer = ask(&stream, &mut reader, &format!("md {key}\r\n"));
                    assert!(answer == "HD" || answer == "NF", "{answer}");
                    known.insert(key, None);
                } else {
                    let value = format!("value{round}{}", "x".repeat(500));
                    let answer = ask(&stream, &mut reader, &format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()));
                    assert_eq!(answer, "STORED");
                    known.insert(key, Some(value));
                }
                let key = format!("key{}", fastrand::u32(..KEYS));
                if let Some(value) = known.get(&key) {
                    assert_eq!(&get(&stream, &mut reader, &key), value, "{key} in round {round}");
                }
                thread::sleep(std::time::Duration::from_millis(1));
            }
            known
        });
        Self { is_over, rounds, thread }
    }

    fn goes_on(&self) {
        let from = self.rounds.load(Ordering::Relaxed);
        until("the client goes on", || self.rounds.load(Ordering::Relaxed) > from + 50 || self.thread.is_finished());
    }

    fn end(self) -> BTreeMap<String, Option<String>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the client was answered as it must be")
    }
}

fn ask(mut stream: &TcpStream, reader: &mut impl BufRead, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn get(stream: &TcpStream, reader: &mut impl BufRead, key: &str) -> Option<String> {
    let head = ask(stream, reader, &format!("mg {key} v\r\n"));
    if !head.starts_with("VA ") {
        assert_eq!(head, "EN");
        return None;
    }
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    Some(line.trim_end().to_owned())
}

/// A fleet with a replica of two nodes that holds everything, and one of one node that is empty.
struct Fleet {
    plane: Plane,
    sources: Vec<Node>,
    target: Node,
    proxy: Node,
    volume: TempDir,
}

impl Fleet {
    fn start(of_sources: &dyn Fn(&Plane, &str) -> Node) -> Self {
        let plane = Plane::start();
        let replica = json!({ "name": "a", "zone": "a", "slots": ["a0", "a1"] });
        plane.topology(&json!({ "create": { "replicas": [replica] } }));
        let sources = ["a0", "a1"].map(|slot| of_sources(&plane, slot)).into();
        let state = plane.folder.path().join("proxy");
        let arguments = ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", "control:app", "--zone", "a"];
        let mut command = moneta(&arguments);
        let proxy = Node::run(command.args(["--control", &plane.url(), "--state-dir"]).arg(state));
        let stream = proxy.connect();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let value = "x".repeat(1_000);
        for number in 0..KEYS {
            let answer = ask(&stream, &mut reader, &format!("set old{number} 7 0 1000\r\n{value}\r\n"));
            assert_eq!(answer, "STORED");
            let answer = ask(&stream, &mut reader, &format!("set key{number} 0 0 4\r\nfrom\r\n"));
            assert_eq!(answer, "STORED");
        }
        plane.topology(&json!({ "add_replica": { "name": "b", "zone": "b", "slots": ["b0"] } }));
        let target = plane.node("b", "b0", &[]);
        until("the proxy writes to all", || {
            let epoch = plane.get(&["topologies", "app"])["epoch"].as_u64().unwrap_or(0);
            proxy.log().contains(&format!("epoch={epoch} "))
        });
        Self { plane, sources, target, proxy, volume: tempfile::tempdir().unwrap() }
    }

    /// Begins a job; returns its id.
    fn warm(&self, via: &str) -> String {
        let url = self.plane.url();
        let arguments = ["warm", "--app", "app", "--from", "most-items", "--to", "b", "--via", via, "--rate", "150k"];
        let mut told = String::new();
        until("nodes say how much they hold", || {
            let ended = output(&mut moneta(&[&arguments[..], &["--detach", "--control", &url]].concat()));
            told = String::from_utf8_lossy(&ended.stdout).into_owned();
            ended.status.success()
        });
        let id = told.split([' ', ':']).nth(1).expect("it says the job").to_owned();
        assert_eq!(self.plane.get(&["topologies", "app"])["replicas"][1]["write_only"], true);
        id
    }

    fn until_done(&self, id: &str, workers: &[&Process]) -> Value {
        let mut job = Value::Null;
        let (from, most) = (std::time::Instant::now(), 3 * PATIENCE);
        while job["state"] != "done" {
            job = self.plane.job(id);
            let logs = || workers.iter().map(|worker| worker.stderr()).collect::<Vec<_>>();
            assert!(job["state"] != "failed" && from.elapsed() < most, "{job:#} {:#?}", logs());
            thread::sleep(std::time::Duration::from_millis(200));
        }
        assert_eq!(self.plane.get(&["topologies", "app"])["replicas"][1]["write_only"], false);
        job
    }

    /// The target has what the client says, and all that was there before.
    fn check(&self, known: &BTreeMap<String, Option<String>>) {
        let stream = self.target.connect();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let value = Some("x".repeat(1_000));
        for number in 0..KEYS {
            assert_eq!(get(&stream, &mut reader, &format!("old{number}")), value, "old{number}");
            let key = format!("key{number}");
            let expected = known.get(&key).cloned().unwrap_or_else(|| Some("from".to_owned()));
            assert_eq!(get(&stream, &mut reader, &key), expected, "{key}");
        }
        assert!(known.values().any(Option::is_none) && known.values().any(Option::is_some));
    }
}

#[test]
#[ignore = "it waits for leases of workers that are gone, and for changes of a minute: `make test-warm`"]
fn a_replica_is_filled_while_its_workers_and_the_control_plane_are_killed() {
    let mut fleet = Fleet::start(&|plane, slot| plane.node("a", slot, &[]));
    let client = Client::start(&fleet.proxy, BTreeMap::new());
    let id = fleet.warm("direct");
    let mut first = fleet.plane.worker("first", fleet.volume.path());
    until("it is at work", || state_of(&fleet.plane.job(&id), "copy-0") == "running");
    client.goes_on();
    first.kill();
    let (second, third) =
        (fleet.plane.worker("second", fleet.volume.path()), fleet.plane.worker("third", fleet.volume.path()));
    until("another has its tasks", || {
        let job = fleet.plane.job(&id);
        job["tasks"].as_array().is_some_and(|tasks| tasks[..2].iter().all(|task| task["term"].as_u64() > Some(1)))
    });
    fleet.plane.kill();
    client.goes_on();
    fleet.plane.again();
    // A worker that is stopped for longer than its lease, and back.
    let stopped = fleet.plane.job(&id)["tasks"][0]["worker"].as_str().unwrap_or("").to_owned();
    let (stopped, other) = if stopped.starts_with("second") { (&second, &third) } else { (&third, &second) };
    stopped.signal(Signal::SIGSTOP);
    let job = fleet.until_done(&id, &[other]);
    stopped.signal(Signal::SIGCONT);
    client.goes_on();
    let known = client.end();
    fleet.check(&known);
    assert_eq!(state_of(&job, "compare"), "done");
    let shown = printed(&mut moneta(&["job", "show", &id, "--control", &fleet.plane.url()]));
    assert!(shown.contains("keys compared"), "{shown}");
    assert_eq!(fleet.sources.len(), 2);
}

#[test]
#[ignore = "it waits for leases of workers that are gone, and for changes of a minute: `make test-warm`"]
fn a_replica_is_filled_by_files_and_goes_on_after_a_pause_and_the_end_of_a_source() {
    let tiers = tempfile::tempdir().unwrap();
    let node = |plane: &Plane, slot: &str| {
        let tier = format!("{}:129m", tiers.path().join(slot).display());
        plane.node("a", slot, &["--flash", &tier])
    };
    let mut fleet = Fleet::start(&node);
    let client = Client::start(&fleet.proxy, BTreeMap::new());
    let id = fleet.warm(fleet.volume.path().to_str().unwrap());
    let workers: Vec<Process> =
        ["first", "second"].map(|name| fleet.plane.worker(name, fleet.volume.path())).into_iter().collect();
    until("it is at work", || state_of(&fleet.plane.job(&id), "fill-0") == "running");
    let job = |order: &str| printed(&mut moneta(&["job", order, &id, "--control", &fleet.plane.url()]));
    assert!(job("pause").contains("is paused"));
    until("its workers give their tasks back", || {
        let job = fleet.plane.job(&id);
        job["tasks"].as_array().is_some_and(|tasks| tasks.iter().all(|task| task["state"] != "running"))
    });
    client.goes_on();
    assert!(job("resume").contains("is running"));
    until("it is at work again", || state_of(&fleet.plane.job(&id), "dump-0") == "running");
    // A source ends in order, so that it has what it has answered, and comes back under its slot. Nothing else has its keys.
    let known = client.end();
    let mut source = fleet.sources.remove(1);
    source.signal(Signal::SIGTERM);
    source.wait();
    let source = node(&fleet.plane, "a1");
    until("the proxy asks it", || {
        let stream = fleet.proxy.connect();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        (0..20).all(|number| ask(&stream, &mut reader, &format!("mg old{number} k\r\n")).starts_with("HD"))
    });
    let client = Client::start(&fleet.proxy, known);
    let job = fleet.until_done(&id, &workers.iter().collect::<Vec<_>>());
    let known = client.end();
    fleet.check(&known);
    assert_eq!(state_of(&job, "tidy"), "done");
    assert_eq!(std::fs::read_dir(fleet.volume.path()).unwrap().count(), 0, "its files are gone");
    drop(source);
}

#[test]
fn a_job_that_is_cancelled_leaves_no_files_and_a_target_that_is_not_read() {
    let fleet = Fleet::start(&|plane, slot| plane.node("a", slot, &[]));
    let id = fleet.warm(fleet.volume.path().to_str().unwrap());
    let worker = fleet.plane.worker("first", fleet.volume.path());
    until("there are files", || std::fs::read_dir(fleet.volume.path().join(&id)).is_ok_and(|files| files.count() > 0));
    printed(&mut moneta(&["job", "cancel", &id, "--control", &fleet.plane.url()]));
    worker.until("it has ended", || fleet.plane.job(&id)["state"] == "cancelled");
    assert_eq!(std::fs::read_dir(fleet.volume.path()).unwrap().count(), 0, "its files are gone");
    assert_eq!(fleet.plane.get(&["topologies", "app"])["replicas"][1]["write_only"], true);
    // A replica cannot be filled from itself, nor from or into one that there is not.
    let url = fleet.plane.url();
    for (from, to) in [("b", "b"), ("c", "b"), ("a", "c")] {
        let ended = output(&mut moneta(&["warm", "--app", "app", "--from", from, "--to", to, "--control", &url]));
        assert!(!ended.status.success(), "{from} into {to}");
    }
}
