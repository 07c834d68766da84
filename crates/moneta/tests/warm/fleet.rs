//! A fleet with a replica that has everything and one that is empty, and a client beside the job that fills it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::plane::Plane;
use crate::common::{Node, PATIENCE, Process, moneta, output, until};

/// Keys that are there before the job, and as many that the client works on.
pub const KEYS: u32 = 1_500;

/// A worker of a control plane.
pub fn worker(plane: &Plane, name: &str, volume: &str, environment: &[(&str, String)]) -> Process {
    let mut command =
        moneta(&["worker", "--control", &plane.url(), "--name", name, "--tasks", "2", "--volume", volume]);
    Process::start(command.envs(environment.iter().map(|(name, value)| (*name, value.as_str()))))
}

/// The state of the task of a job.
pub fn state_of<'a>(job: &'a Value, task: &str) -> &'a str {
    let found = job["tasks"].as_array().and_then(|tasks| tasks.iter().find(|known| known["name"] == task));
    found.and_then(|found| found["state"].as_str()).unwrap_or("unknown")
}

/// A client of a proxy: it writes, deletes and reads its own keys, and knows what each must be.
pub struct Client {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<BTreeMap<String, Option<String>>>,
}

impl Client {
    pub fn start(proxy: &Node, mut known: BTreeMap<String, Option<String>>) -> Self {
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

    pub fn goes_on(&self) {
        let from = self.rounds.load(Ordering::Relaxed);
        until("the client goes on", || self.rounds.load(Ordering::Relaxed) > from + 50 || self.thread.is_finished());
    }

    pub fn end(self) -> BTreeMap<String, Option<String>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the client was answered as it must be")
    }
}

/// Asks until it is answered: on a loaded machine a node may not answer its proxy in time, and all that is asked here may be asked
/// again.
pub fn ask(mut stream: &TcpStream, reader: &mut impl BufRead, request: &str) -> String {
    let begun = Instant::now();
    loop {
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if !line.starts_with("SERVER_ERROR no answer") || begun.elapsed() > PATIENCE {
            return line.trim_end().to_owned();
        }
    }
}

pub fn get(stream: &TcpStream, reader: &mut impl BufRead, key: &str) -> Option<String> {
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
pub struct Fleet {
    pub plane: Plane,
    pub sources: Vec<Node>,
    pub target: Node,
    pub proxy: Node,
    pub volume: TempDir,
}

impl Fleet {
    pub fn start(of_sources: &dyn Fn(&Plane, &str) -> Node) -> Self {
        let plane = Plane::start();
        let replica = json!({ "name": "a", "zone": "a", "slots": ["a0", "a1"] });
        plane.change(&json!({ "create": { "replicas": [replica] } }));
        let sources = ["a0", "a1"].map(|slot| of_sources(&plane, slot)).into();
        let state = plane.folder.path().join("proxy");
        let proxy = plane.proxy(&state);
        let stream = proxy.connect();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let value = "x".repeat(1_000);
        for number in 0..KEYS {
            let answer = ask(&stream, &mut reader, &format!("set old{number} 7 0 1000\r\n{value}\r\n"));
            assert_eq!(answer, "STORED");
            let answer = ask(&stream, &mut reader, &format!("set key{number} 0 0 4\r\nfrom\r\n"));
            assert_eq!(answer, "STORED");
        }
        plane.change(&json!({ "add_replica": { "name": "b", "zone": "b", "slots": ["b0"] } }));
        let target = plane.node("b", "b0", &[]);
        until("the proxy writes to all", || {
            let epoch = plane.topology()["epoch"].as_u64().unwrap_or(0);
            proxy.log().contains(&format!("epoch={epoch} "))
        });
        Self { plane, sources, target, proxy, volume: tempfile::tempdir().unwrap() }
    }

    pub fn worker(&self, name: &str) -> Process {
        worker(&self.plane, name, self.volume.path().to_str().unwrap(), &[])
    }

    /// Begins a job; returns its id.
    pub fn warm(&self, via: &str) -> String {
        let url = self.plane.url();
        let arguments = ["warm", "--app", "app", "--from", "most-items", "--to", "b", "--via", via, "--rate", "150k"];
        let mut told = String::new();
        until("nodes say how much they hold", || {
            let ended = output(&mut moneta(&[&arguments[..], &["--detach", "--control", &url]].concat()));
            told = String::from_utf8_lossy(&ended.stdout).into_owned();
            ended.status.success()
        });
        let id = told.split([' ', ':']).nth(1).expect("it says the job").to_owned();
        assert_eq!(self.plane.topology()["replicas"][1]["write_only"], true);
        id
    }

    pub fn until_done(&self, id: &str, workers: &[&Process]) -> Value {
        let job = self.until_ended(id, workers);
        assert_eq!(self.plane.topology()["replicas"][1]["write_only"], false);
        job
    }

    pub fn until_ended(&self, id: &str, workers: &[&Process]) -> Value {
        let mut job = Value::Null;
        let (from, most) = (Instant::now(), 3 * PATIENCE);
        while job["state"] != "done" {
            job = self.plane.job(id);
            let logs = || workers.iter().map(|worker| worker.stderr()).collect::<Vec<_>>();
            assert!(job["state"] != "failed" && from.elapsed() < most, "{job:#} {:#?}", logs());
            thread::sleep(std::time::Duration::from_millis(200));
        }
        job
    }

    /// The target has what the client says, and all that was there before.
    pub fn check(&self, known: &BTreeMap<String, Option<String>>) {
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
