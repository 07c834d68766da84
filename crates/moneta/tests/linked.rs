//! Nodes and proxies with a control plane, as processes. The silent failures guarded against: a proxy that stops with its control
//! plane, or loses keys when that comes back; a node that is gone and keeps its slot for ever; a restart that needs what is away.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use common::plane::{Plane, ready};
use common::{Node, Signal, moneta, until};
use serde_json::{Value, json};

/// Makes the topology of an app of these zones, with a replica and a slot each.
fn create(plane: &Plane, zones: &[&str]) {
    let replica = |zone: &&str| json!({"name": zone, "zone": zone, "slots": [format!("{zone}0")]});
    let replicas: Vec<Value> = zones.iter().map(replica).collect();
    plane.change(&json!({"create": {"replicas": replicas}}));
}

/// How many instances have this status, as the control plane says.
fn with_status(plane: &Plane, status: &str) -> usize {
    plane.instances().iter().filter(|instance| instance["value"]["status"] == status).count()
}

fn holder(plane: &Plane, replica: &str) -> Option<String> {
    let topology = plane.topology();
    let of = topology["replicas"].as_array()?.iter().find(|one| one["name"] == replica)?;
    of["slots"][0]["holder"].as_str().map(str::to_owned)
}

/// A node that is to hold the slot of a zone.
fn node_of(plane: &Plane, zone: &str, state: &Path) -> Node {
    plane.starts((zone, &format!("{zone}0")), state, &["--region", "here"])
}

fn ready_of(node: &Node) -> Value {
    let line =
        node.screen.iter().find_map(|line| line.split("http://").nth(1)).expect("it says where its admin side is");
    let admin = line.split(['/', ' ']).next().unwrap();
    ready(admin).expect("it answers")
}

/// A client that sets and reads, all the time, and counts what fails.
struct Client {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<Vec<String>>,
}

impl Client {
    fn of(proxy: &Node) -> Self {
        let (is_over, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, count, stream) = (Arc::clone(&is_over), Arc::clone(&rounds), proxy.connect());
        let thread = thread::spawn(move || {
            let (mut wrong, mut reader) = (Vec::new(), BufReader::new(stream.try_clone().unwrap()));
            while !over.load(Ordering::Relaxed) {
                let round = count.fetch_add(1, Ordering::Relaxed);
                let value = format!("value{round}");
                let key = format!("key{}", round % 100);
                let stored = ask(&stream, &mut reader, &format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()), 1);
                let read = ask(&stream, &mut reader, &format!("mg {key} v\r\n"), 2);
                if stored != "STORED\r\n" || !read.ends_with(&format!("\r\n{value}\r\n")) {
                    wrong.push(format!("{stored:?} {read:?}"));
                    // An answer of another length would be taken for the next one.
                    return wrong;
                }
                thread::sleep(std::time::Duration::from_millis(1));
            }
            wrong
        });
        Self { is_over, rounds, thread }
    }

    /// Waits until it has done so many rounds more.
    fn goes_on(&self) {
        let from = self.rounds.load(Ordering::Relaxed);
        until("requests go on", || self.rounds.load(Ordering::Relaxed) > from + 100 || self.thread.is_finished());
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        assert_eq!(self.thread.join().unwrap(), Vec::<String>::new());
    }
}

fn ask(mut stream: &TcpStream, reader: &mut impl BufRead, request: &str, lines: usize) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    for _ in 0..lines {
        reader.read_line(&mut answer).unwrap();
        if answer == "EN\r\n" || answer.starts_with("SERVER_ERROR") {
            break;
        }
    }
    answer
}

#[test]
fn nodes_register_a_proxy_follows_and_the_control_plane_may_be_away() {
    let folder = tempfile::tempdir().unwrap();
    let state = |name: &str| folder.path().join(name);
    let mut plane = Plane::start();
    create(&plane, &["a", "b", "c"]);
    let mut nodes = ["a", "b", "c"].map(|zone| node_of(&plane, zone, &state(zone)));
    until("all nodes are up", || with_status(&plane, "UP") == 3);
    let a = plane.instances().into_iter().find(|one| one["value"]["slot"] == "a0").unwrap();
    assert_eq!(
        (&a["value"]["kind"], &a["value"]["zone"], &a["value"]["region"]),
        (&json!("node"), &json!("a"), &json!("here"))
    );
    assert_eq!(a["value"]["addresses"]["cache"], nodes[0].address().to_string());
    until("all slots are held", || ["a", "b", "c"].iter().all(|zone| holder(&plane, zone).is_some()));
    let proxy = plane.proxy(&state("proxy"));
    until("the proxy is registered", || plane.instances().iter().any(|one| one["value"]["kind"] == "proxy"));
    let client = Client::of(&proxy);
    client.goes_on();

    plane.kill();
    proxy.wait_for(|| ready_of(&proxy).to_string().contains("not registered"), "it says that it is cut off");
    assert_eq!(ready_of(&proxy)["ready"], true);
    client.goes_on();
    plane.again();
    until("all are known again", || with_status(&plane, "UP") == 4);
    proxy.wait_for(|| !ready_of(&proxy).to_string().contains("control plane"), "it is followed again");
    client.goes_on();

    // In order: others are told before it drains.
    nodes[0].signal(Signal::SIGTERM);
    until("it says that it leaves", || with_status(&plane, "OUT_OF_SERVICE") == 1 || plane.instances().len() == 3);
    assert!(nodes[0].wait().success(), "{}", nodes[0].log());
    until("it is off the list", || plane.instances().len() == 3);
    client.goes_on();
    client.end();
}

#[test]
fn a_node_that_is_killed_gives_its_slot_to_a_spare() {
    let folder = tempfile::tempdir().unwrap();
    let state = |name: &str| folder.path().join(name);
    let plane = Plane::start();
    create(&plane, &["a", "b", "c"]);
    let first = node_of(&plane, "a", &state("a"));
    until("its slot is held", || holder(&plane, "a").is_some());
    let others = ["b", "c"].map(|zone| node_of(&plane, zone, &state(zone)));
    until("the others are", || ["b", "c"].iter().all(|zone| holder(&plane, zone).is_some()));
    let spare = node_of(&plane, "a", &state("spare"));
    spare.wait_for(|| ready_of(&spare)["slot"] == "spare", "it waits as a spare");
    let name = |node: &Node| ready_of(node)["instance"].as_str().unwrap().to_owned();
    assert_eq!(holder(&plane, "a"), Some(name(&first)));
    let proxy = plane.proxy(&state("proxy"));
    let client = Client::of(&proxy);
    client.goes_on();
    first.signal(Signal::SIGKILL);
    until("the spare has the slot", || holder(&plane, "a") == Some(name(&spare)));
    spare.wait_for(|| ready_of(&spare)["slot"] == "held", "it knows that");
    let address = spare.address().to_string();
    let status = || {
        let listed = moneta(&["route", "--control", &plane.url(), "control:app", "key1"]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap()
    };
    until("route knows it", || status().contains(&address));
    let epoch = plane.topology()["epoch"].as_u64().unwrap();
    proxy.wait_for_topology(u32::try_from(epoch).unwrap());
    client.goes_on();
    client.end();
    drop(others);
}

#[test]
fn a_proxy_and_a_node_start_without_the_control_plane_by_what_they_kept() {
    let folder = tempfile::tempdir().unwrap();
    let state = |name: &str| folder.path().join(name);
    let mut plane = Plane::start();
    create(&plane, &["a"]);
    let node = node_of(&plane, "a", &state("a"));
    until("its slot is held", || holder(&plane, "a").is_some());
    let mut proxy = plane.proxy(&state("proxy"));
    assert_eq!(proxy.exchange("set key 0 0 5\r\nvalue\r\n"), "STORED\r\n");
    let name = ready_of(&proxy)["instance"].clone();
    proxy.signal(Signal::SIGKILL);
    proxy.wait();
    plane.kill();
    let proxy = plane.proxy(&state("proxy"));
    assert_eq!(proxy.exchange("get key\r\n"), "VALUE key 0 5\r\nvalue\r\nEND\r\n");
    let page = ready_of(&proxy);
    assert_eq!((&page["ready"], &page["instance"]), (&json!(true), &name));
    assert!(page.to_string().contains("the control plane was not followed since the start"), "{page}");
    // A folder is one process's.
    let mut second = moneta(&["serve", "-p", "0", "--admin", "off", "--control", &plane.url(), "--state-dir"]);
    let refused = common::refused(second.arg(state("proxy")), 1);
    assert!(refused.contains("another process uses this folder"), "{refused}");
    plane.again();
    until("both are known again", || with_status(&plane, "UP") == 2);
    drop(node);
}
