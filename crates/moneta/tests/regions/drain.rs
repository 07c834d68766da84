//! A region that is drained, and returned, while a client works that goes by the control plane. The failures to guard against: the
//! client sees an error, or reads in the other region less than it has written; what is drained looks as if it served, or stops
//! serving those who are still there.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{moneta, output, printed, refused, until};
use crate::world::{ask, page};

/// What is said where a drain is done.
const CROSSED: &str = "all that was written there until then is in the other regions";

/// Two regions of `moneta cluster up`, ended with the test.
struct Fleet {
    folder: tempfile::TempDir,
    /// The control plane of each.
    planes: [String; 2],
}

impl Fleet {
    fn up() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut fleet = Self { folder, planes: Default::default() };
        let screen = printed(&mut fleet.cluster("up", &["--regions", "2", "--port", "0"]));
        let line = screen.lines().find(|line| line.contains("region drain")).expect("it says how a region is drained");
        let url =
            |option: &str| line.split(option).nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a URL");
        fleet.planes = [url("--control"), url("--others")].map(str::to_owned);
        fleet
    }

    fn cluster(&self, what: &str, more: &[&str]) -> Command {
        let folder = self.folder.path().to_str().expect("a plain name");
        let mut command = moneta(&["cluster", what, "--dir", folder]);
        command.args(more);
        command
    }

    fn region(&self, what: &str, more: &[&str]) -> Command {
        let mut command = moneta(&["region", what, "region-1", "--control", &self.planes[0]]);
        command.args(more);
        command
    }

    /// Sends a process, by its name in the folder, a signal.
    fn signal(&self, name: &str, signal: Signal) {
        let pid = fs::read_to_string(self.folder.path().join(format!("{name}.pid"))).expect("it runs");
        kill(Pid::from_raw(pid.trim().parse().expect("a number")), signal).expect("it is there");
    }

    /// The names of a region's nodes.
    fn nodes(&self, region: usize) -> Vec<String> {
        let folder = self.folder.path().join(format!("region-{}", region + 1));
        let files: Vec<PathBuf> =
            fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("it is").path()).collect();
        let stems = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "pid"));
        let names = stems.map(|path| path.file_stem().expect("a name").to_str().expect("plain").to_owned());
        let of_region = names
            .filter(|name| !name.starts_with("proxy") && name != "control")
            .map(|name| format!("region-{}/{name}", region + 1));
        of_region.collect()
    }

    /// The proxies of a region that the control plane says are up.
    fn up_in(&self, region: usize) -> Vec<SocketAddr> {
        up(&self.planes[region])
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        output(&mut self.cluster("down", &[]));
    }
}

fn json(plane: &str, path: &str) -> Value {
    let text = page(plane.trim_start_matches("http://"), path);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

fn instances(plane: &str) -> Vec<Value> {
    json(plane, "/v1/default/instances")["instances"].as_array().expect("a list").clone()
}

fn up(plane: &str) -> Vec<SocketAddr> {
    let is_up = |one: &&Value| one["value"]["kind"] == "proxy" && one["value"]["effective"] == "UP";
    let listed = instances(plane);
    let address =
        |one: &Value| one["value"]["addresses"]["cache"].as_str().expect("it has one").parse().expect("it is one");
    listed.iter().filter(is_up).map(address).collect()
}

/// A client of region 1, which goes to a proxy that is up there, or else in region 2.
struct Client {
    /// Writes that were answered, by region.
    written: Arc<[AtomicUsize; 2]>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start(planes: [String; 2]) -> Self {
        let (written, stop) = (Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]), Arc::new(AtomicBool::new(false)));
        let (counts, over) = (Arc::clone(&written), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let found = planes.iter().map(|plane| up(plane)).enumerate().find(|(_, proxies)| !proxies.is_empty());
                let (region, proxies) = found.expect("a proxy is up somewhere");
                for _ in 0..5 {
                    let number = counts[region].load(Ordering::SeqCst);
                    let proxy = proxies[number % proxies.len()];
                    let key = format!("key{region}.{number}");
                    let answer = ask(proxy, &format!("set {key} 0 0 {}\r\n{key}", key.len()));
                    assert_eq!(answer, "STORED\r\n", "a client sees an error");
                    assert_eq!(ask(proxy, &format!("mg {key} v")), format!("VA {}\r\n{key}\r\n", key.len()));
                    counts[region].fetch_add(1, Ordering::SeqCst);
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self { written, stop, thread: Some(thread) }
    }

    fn written(&self, region: usize) -> usize {
        self.written[region].load(Ordering::SeqCst)
    }

    /// Waits until it has written so many more to a region.
    fn until_it_writes(&self, region: usize, more: usize) {
        let before = self.written(region);
        until("the client writes there", || {
            assert!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()), "the client has failed");
            self.written(region) >= before + more
        });
    }

    fn end(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().expect("it runs").join().expect("the client saw no error");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

fn until_all_is_read(at: SocketAddr, region: usize, written: usize) {
    for number in 0..written {
        let key = format!("key{region}.{number}");
        until(&format!("{key} is read in the other region"), || {
            ask(at, &format!("mg {key} v")) == format!("VA {}\r\n{key}\r\n", key.len())
        });
    }
}

#[test]
fn a_drained_region_s_clients_go_to_the_other_one_and_come_back() {
    let fleet = Fleet::up();
    let others = ["--others", &fleet.planes[1]];
    let yes = [&others[..], &["--yes", "--why", "a test"]].concat();
    let has_said = |plane: &String| instances(plane).iter().any(|one| one["vitals"]["relay"]["lag_ms"].is_u64());
    until("relays say how far they are", || fleet.planes.iter().all(has_said));
    until("all proxies are up", || fleet.up_in(0).len() == 3 && fleet.up_in(1).len() == 3);
    let (east, west) = (fleet.up_in(0)[0], fleet.up_in(1)[0]);
    let client = Client::start(fleet.planes.clone());
    client.until_it_writes(0, 20);
    // A drain is refused where no other region has a proxy that is up, and without --yes.
    let alone = refused(&mut fleet.region("drain", &["--yes"]), 1);
    assert!(alone.contains("no proxy of another region is up"), "{alone}");
    let unconfirmed = refused(&mut fleet.region("drain", &others), 1);
    assert!(unconfirmed.contains("say --yes"), "{unconfirmed}");
    assert!(refused(&mut fleet.region("return", &yes), 1).contains("is not drained"));
    assert_eq!(fleet.up_in(0).len(), 3);

    let said = printed(&mut fleet.region("drain", &yes));
    for part in ["3 proxies, 3 up", "region region-2: 3 proxies up", "s behind", "its 3 proxies say OUT_OF_SERVICE"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.contains(CROSSED), "{said}");
    client.until_it_writes(1, 20);
    let in_east = client.written(0);
    until_all_is_read(west, 0, in_east);
    client.until_it_writes(1, 20);
    assert_eq!(client.written(0), in_east, "the client still goes to what is drained");
    // Drained proxies answer the clients that stay connected.
    assert_eq!(ask(east, "set late 0 0 1\r\nx"), "STORED\r\n");
    until("what is written there still crosses", || ask(west, "mg late v") == "VA 1\r\nx\r\n");
    // `moneta status` and the console show the drain.
    let status = printed(&mut moneta(&["status", "--control", &fleet.planes[0]]));
    assert!(status.contains("region region-1 is drained") && status.contains("a test"), "{status}");
    let console = page(fleet.planes[0].trim_start_matches("http://"), "/console/default");
    assert!(console.contains("Region region-1 is drained"), "{console}");
    let audit = json(&fleet.planes[0], "/v1/default/audit").to_string();
    assert!(audit.contains("region=region-1") && audit.contains("a test"), "{audit}");
    let shown = output(&mut fleet.cluster("status", &[]));
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("drained"), "{shown}");

    let said = printed(&mut fleet.region("return", &yes));
    assert!(said.contains("3 of its proxies are up") && said.contains("s behind"), "{said}");
    client.until_it_writes(0, 20);
    let in_west = client.written(1);
    client.end();
    until_all_is_read(east, 1, in_west);
}

#[test]
fn what_has_not_followed_a_drain_is_said() {
    let fleet = Fleet::up();
    let [east, west] = &fleet.planes;
    let run = |what: &str, region: &str, more: &[&str]| {
        let (control, others) = if region == "region-2" { (west, east) } else { (east, west) };
        let told = ["region", what, region, "--control", control, "--others", others, "--yes"];
        let mut command = moneta(&told);
        command.args(more);
        command
    };
    let unfinished = |command: &mut Command| {
        let ended = output_of(command);
        assert_eq!(ended.0, Some(1), "{}", ended.1);
        ended.1
    };
    let has_said = |plane: &String| instances(plane).iter().any(|one| one["vitals"]["relay"]["lag_ms"].is_u64());
    until("relays say how far they are", || fleet.planes.iter().all(has_said));
    until("all proxies are up", || fleet.up_in(0).len() == 3 && fleet.up_in(1).len() == 3);

    // A region that is not there; one of an unusual name; other regions that do not answer.
    for nowhere in ["nowhere", "a/../b c"] {
        let said = unfinished(&mut run("drain", nowhere, &[]));
        assert!(said.contains(&format!("no proxy of region {nowhere} is registered here")), "{said}");
        let said = unfinished(&mut run("return", nowhere, &[]));
        assert!(said.contains(&format!("region {nowhere} is not drained")), "{said}");
    }
    let said = unfinished(&mut moneta(&[
        "region",
        "drain",
        "region-1",
        "--control",
        east,
        "--others",
        "http://127.0.0.1:1",
        "--yes",
    ]));
    assert!(said.contains("--others"), "{said}");

    // A relay that has stopped carries nothing: what was written is not said to be elsewhere.
    fleet.signal("relay-1-to-2", Signal::SIGSTOP);
    let said = unfinished(&mut run("drain", "region-1", &["--within", "6", "--why", "the first"]));
    assert!(said.contains("say OUT_OF_SERVICE") && !said.contains(CROSSED), "{said}");
    let version = || json(east, "/v1/default/properties")["properties"].to_string();
    let before = version();
    assert!(before.contains("the first"), "{before}");
    // Once more: nothing is changed, and it goes on to wait.
    let said = unfinished(&mut run("drain", "region-1", &["--within", "1", "--why", "the second"]));
    assert!(said.contains("is drained already") && said.contains("the first"), "{said}");
    fleet.signal("relay-1-to-2", Signal::SIGCONT);
    let said = printed(&mut run("drain", "region-1", &[]));
    assert!(said.contains(CROSSED), "{said}");
    assert_eq!(version(), before);

    // The last region.
    let said = unfinished(&mut run("drain", "region-2", &[]));
    assert!(said.contains("no proxy of another region is up"), "{said}");
    printed(&mut run("return", "region-1", &[]));
    let said = unfinished(&mut run("return", "region-1", &[]));
    assert!(said.contains("is not drained"), "{said}");
    until("all proxies are up", || fleet.up_in(0).len() == 3 && fleet.up_in(1).len() == 3);

    // Both at the same time: one serves.
    thread::scope(|scope| {
        for region in ["region-1", "region-2"] {
            scope.spawn(move || output_of(&mut run("drain", region, &[])));
        }
    });
    until("a region serves", || !fleet.up_in(0).is_empty() || !fleet.up_in(1).is_empty());
    for region in ["region-1", "region-2"] {
        output_of(&mut run("return", region, &[]));
    }
    until("all proxies are up", || fleet.up_in(0).len() == 3 && fleet.up_in(1).len() == 3);

    // A relay that is gone.
    fleet.signal("relay-1-to-2", Signal::SIGKILL);
    let is_relay = |one: &Value| one["value"]["relay"].is_object() && one["state"] == "live";
    until("the control plane sees it", || !instances(west).iter().any(is_relay));
    let said = unfinished(&mut run("drain", "region-1", &[]));
    assert!(said.contains("no relay carries default") || said.contains("is silent"), "{said}");
    let said = unfinished(&mut run("drain", "region-1", &["--force", "--within", "5"]));
    assert!(said.contains("say OUT_OF_SERVICE") && !said.contains(CROSSED), "{said}");
    printed(&mut run("return", "region-1", &[]));

    // The other region's nodes are down, so its proxies are no place to go to.
    let nodes = fleet.nodes(1);
    assert_eq!(nodes.len(), 6);
    nodes.iter().for_each(|node| fleet.signal(node, Signal::SIGKILL));
    until("its proxies are not up", || fleet.up_in(1).is_empty());
    let said = unfinished(&mut run("drain", "region-1", &["--lag-max", "1000000"]));
    assert!(said.contains("no proxy of another region is up"), "{said}");
    assert_eq!(fleet.up_in(0).len(), 3);
}

/// How a command ends, and all that it prints.
fn output_of(command: &mut Command) -> (Option<i32>, String) {
    let ended = output(command);
    let texts = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (ended.status.code(), texts.concat())
}
