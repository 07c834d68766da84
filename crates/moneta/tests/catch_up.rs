//! Nodes that come back learn from other copies what they have missed, before they answer reads.

mod common;
#[path = "catch_up/readers.rs"]
mod readers;
#[path = "catch_up/stopped.rs"]
mod stopped;

use std::fmt::Write;

use common::{Node, exchange, file, moneta, refused, steady_port};
use nix::sys::signal::Signal;

const ZONES: [&str; 3] = ["a", "b", "c"];
const KEYS: usize = 400;
const BEHIND: &str = "SERVER_ERROR this node catches up with other copies\r\n";

/// Three copies of one node each, on SSD, and a proxy.
struct Copies {
    nodes: Vec<Option<Node>>,
    addresses: Vec<String>,
    admins: Vec<String>,
    more: Vec<&'static [&'static str]>,
    folder: tempfile::TempDir,
}

impl Copies {
    /// `more`: options of each node beside those that all have.
    fn start(more: [&'static [&'static str]; 3]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut copies =
            Self { nodes: Vec::new(), addresses: Vec::new(), admins: Vec::new(), more: more.to_vec(), folder };
        for number in 0..ZONES.len() {
            let node = copies.run(number, &steady_port().to_string(), &format!("127.0.0.1:{}", steady_port()));
            copies.addresses.push(node.address().to_string());
            copies.admins.push(admin_of(&node));
            copies.nodes.push(Some(node));
        }
        copies.place(1, None);
        copies
    }

    /// Writes the topology. `beside`: the address of a node that takes some keys of zone b.
    fn place(&self, epoch: u64, beside: Option<&str>) {
        let mut text = format!("epoch = {epoch}\n");
        for (zone, address) in ZONES.iter().zip(&self.addresses) {
            let more = beside.filter(|_| *zone == "b").map_or(String::new(), |beside| format!(", \"1={beside}\""));
            let _ = write!(text, "[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={address}\"{more}]\n");
        }
        file(self.folder.path(), "topology.toml", &text);
    }

    fn topology(&self) -> String {
        self.folder.path().join("topology.toml").to_str().expect("a plain name").to_owned()
    }

    fn run(&self, number: usize, port: &str, admin: &str) -> Node {
        let folder = self.folder.path().join(ZONES[number]);
        std::fs::create_dir_all(&folder).expect("a folder");
        let (flash, writer) = (format!("{}:200m", folder.display()), (number + 1).to_string());
        let mut command = moneta(&["serve", "-p", port, "--admin", admin, "--cluster", "--writer-id", &writer]);
        command.args(["--threads", "1", "-m", "64", "--catch-up", &self.topology()]);
        if !self.more[number].contains(&"--feed-memory") {
            command.args(["--flash", &flash]);
        }
        Node::run(command.args(self.more[number]))
    }

    fn proxy(&self, zone: &str) -> Node {
        let topology = self.topology();
        let arguments = ["--topology", &topology, "--zone", zone, "--threads", "1", "--node-timeout", "2s"];
        Node::run(moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0"]).args(arguments))
    }

    fn node(&self, number: usize) -> &Node {
        self.nodes[number].as_ref().expect("it runs")
    }

    fn kill(&mut self, number: usize) {
        let mut node = self.nodes[number].take().expect("it runs");
        node.signal(Signal::SIGKILL);
        node.wait();
    }

    /// Starts a node where it was, with what it has on its SSD.
    fn bring_back(&mut self, number: usize) {
        let port = self.addresses[number].rsplit(':').next().expect("a port").to_owned();
        let node = self.run(number, &port, &self.admins[number]);
        self.nodes[number] = Some(node);
    }

    fn wait_until_ready(&self, number: usize) {
        let admin = &self.admins[number];
        self.node(number).wait_for(|| page(admin, "/readyz").starts_with("HTTP/1.0 200"), "it is never ready");
    }

    fn metric(&self, number: usize, name: &str) -> u64 {
        let text = page(&self.admins[number], "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("moneta_{name} ")));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in {text}")) as u64
    }
}

fn admin_of(node: &Node) -> String {
    node.wait_for_log("admin HTTP listening");
    let log = node.log();
    let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
    line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address").to_owned()
}

fn page(admin: &str, path: &str) -> String {
    exchange_page(admin, path).unwrap_or_default()
}

fn exchange_page(admin: &str, path: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(admin)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// What a key holds on a node, if it holds anything.
fn value(node: &Node, key: &str) -> Option<String> {
    let answer = exchange(node.connect(), &format!("get {key}\r\n"));
    let value = answer.strip_prefix("VALUE ").and_then(|rest| rest.lines().nth(1)).map(str::to_owned);
    assert!(value.is_some() || answer == "END\r\n", "{key}: {answer}");
    value
}

fn set_all(node: &Node, keys: impl Iterator<Item = usize>, value: &str) {
    let mut requests = String::new();
    let mut count = 0;
    for key in keys {
        let _ = write!(requests, "set key{key} 0 0 {}\r\n{value}\r\n", value.len());
        count += 1;
    }
    assert_eq!(node.exchange(&requests), "STORED\r\n".repeat(count));
}

/// While a node is away, keys are written, deleted and created: back, it shows nothing else.
#[test]
fn a_node_that_was_killed_shows_nothing_old_when_it_is_back() {
    let mut copies = Copies::start([&[], &["--flash-durability", "every-write"], &[]]);
    let proxy = copies.proxy("a");
    (0..3).for_each(|number| copies.wait_until_ready(number));
    set_all(&proxy, 0..KEYS, "old");
    let b = copies.node(1);
    b.wait_for(|| value(b, "key399").is_some(), "the write does not arrive");
    copies.kill(1);
    set_all(&proxy, 0..KEYS / 2, "new");
    let mut deletes = String::new();
    (KEYS / 2..KEYS / 2 + 50).for_each(|key| write!(deletes, "delete key{key}\r\n").expect("memory"));
    assert_eq!(proxy.exchange(&deletes), "DELETED\r\n".repeat(50));
    set_all(&proxy, KEYS..KEYS + 50, "created");
    // Nothing but feeds tells the node of it: the hints of this proxy are gone.
    drop(proxy);
    copies.bring_back(1);
    copies.wait_until_ready(1);
    let b = copies.node(1);
    for key in 0..KEYS + 50 {
        let expected = match key {
            _ if key < KEYS / 2 => Some("new"),
            _ if key < KEYS / 2 + 50 => None,
            _ if key < KEYS => Some("old"),
            _ => Some("created"),
        };
        assert_eq!(value(b, &format!("key{key}")).as_deref(), expected, "key{key}");
    }
    assert!(copies.metric(1, "catch_up_taken_total") >= 300);
    assert_eq!(copies.metric(1, "catch_up_dropped_total"), 0);
    // What comes after is followed for a while, also by a node that proxies do not write to.
    copies.node(0).exchange("set late 0 0 1\r\nx\r\n");
    b.wait_for(|| value(b, "late").is_some(), "a change of another copy never arrives");
}

/// A node that is behind refuses what depends on what it holds, and a proxy that reads from it first has its answers elsewhere.
#[test]
fn a_node_that_is_behind_takes_writes_and_answers_no_reads() {
    let mut copies = Copies::start([&[], &["--flash-durability", "every-write", "--catch-up-deadline", "1h"], &[]]);
    let proxy = copies.proxy("b");
    (0..3).for_each(|number| copies.wait_until_ready(number));
    set_all(&proxy, 0..20, "old");
    set_all(&proxy, 100..101, "7");
    copies.kill(1);
    set_all(&proxy, 0..10, "new");
    // The others are stopped: no copy can tell it what it missed.
    for number in [0, 2] {
        copies.node(number).signal(Signal::SIGSTOP);
    }
    copies.bring_back(1);
    let b = copies.node(1);
    assert_eq!(b.exchange("get key1\r\n"), "END\r\n", "classic text has no error in a list of values");
    assert_eq!(b.exchange("incr key100 1\r\n"), BEHIND);
    assert_eq!(b.exchange("add key1 0 0 1\r\nx\r\n"), BEHIND);
    assert_eq!(b.exchange("mg key1 v\r\n"), BEHIND);
    assert_eq!(b.exchange("set key11 0 0 4\r\nmine\r\n"), "STORED\r\n");
    assert!(page(&copies.admins[1], "/readyz").contains("catching up with other copies"));
    assert_eq!(copies.metric(1, "catch_up_behind"), 1);
    for number in [0, 2] {
        copies.node(number).signal(Signal::SIGCONT);
    }
    // They were stopped for so long that they ask the others, too.
    [0, 2].iter().for_each(|number| copies.wait_until_ready(*number));
    let b = copies.node(1);
    let is_right =
        |key: usize| value(&proxy, &format!("key{key}")).as_deref() == Some(if key < 10 { "new" } else { "old" });
    for key in (0..20).filter(|key| *key != 11) {
        assert!(is_right(key), "key{key} through the proxy");
    }
    assert_eq!(proxy.exchange("incr key100 1\r\n"), "8\r\n");
    copies.wait_until_ready(1);
    // Two copies make a quorum: the third may take the write after the client has its answer.
    b.wait_for(|| value(b, "key100").as_deref() == Some("8"), "the increment does not arrive");
    assert_eq!(value(b, "key1").as_deref(), Some("new"));
}

/// All nodes at once, as after a loss of power: each has what it had, and learns what the others have.
#[test]
fn all_nodes_come_back_at_once() {
    let mut copies = Copies::start([&["--flash-durability", "every-write"]; 3]);
    let proxy = copies.proxy("a");
    (0..3).for_each(|number| copies.wait_until_ready(number));
    set_all(&proxy, 0..KEYS, "old");
    copies.kill(2);
    set_all(&proxy, 0..KEYS / 2, "new");
    assert!(proxy.exchange("delete key399\r\n").contains("DELETED"));
    drop(proxy);
    copies.kill(0);
    copies.kill(1);
    (0..3).for_each(|number| copies.bring_back(number));
    for (number, zone) in ZONES.into_iter().enumerate() {
        copies.wait_until_ready(number);
        let node = copies.node(number);
        for key in 0..KEYS {
            let shown = value(node, &format!("key{key}"));
            let expected = (key != 399).then_some(if key < KEYS / 2 { "new" } else { "old" });
            assert_eq!(shown.as_deref(), expected, "key{key} of {zone}");
        }
    }
}

/// Where no feed reaches back far enough, what the node holds may be old: it goes, and readers fill the node.
#[test]
fn a_node_that_was_away_for_too_long_drops_what_it_has() {
    let ring: &[&str] = &["--feed-memory", "1", "-m", "64"];
    let mut copies = Copies::start([ring, &["--flash-durability", "every-write"], ring]);
    let proxy = copies.proxy("a");
    (0..3).for_each(|number| copies.wait_until_ready(number));
    set_all(&proxy, 0..KEYS, "old");
    let b = copies.node(1);
    b.wait_for(|| value(b, "key399").is_some(), "the write does not arrive");
    copies.kill(1);
    set_all(&proxy, 0..100, "new");
    // More changes than the rings of the other copies hold, of no more keys than a proxy tells others of by name.
    for _ in 0..11 {
        set_all(&proxy, 1000..1900, "x");
    }
    drop(proxy);
    copies.bring_back(1);
    copies.wait_until_ready(1);
    let b = copies.node(1);
    assert_eq!(copies.metric(1, "catch_up_dropped_total"), 1);
    let kept: Vec<usize> = (0..KEYS).filter(|key| value(b, &format!("key{key}")).is_some()).collect();
    assert!(kept.is_empty(), "{kept:?} are left");
    // Through a proxy it is filled again: at once with what it had not missed. What it lacks by the word of the proxy that is gone
    // is read elsewhere for minutes, if that proxy had the time to tell it.
    let proxy = copies.proxy("b");
    let is_filled =
        || value(&proxy, "key200").as_deref() == Some("old") && value(b, "key200").as_deref() == Some("old");
    b.wait_for(is_filled, "a read through the proxy does not fill the node");
    assert_eq!(value(&proxy, "key7").as_deref(), Some("new"));
}

/// Another node has some keys for a while: the one that gets them back has old items of them.
#[test]
fn keys_that_come_back_to_a_node_show_nothing_old() {
    let copies = Copies::start([&[], &["--feed-memory", "1", "-m", "64"], &[]]);
    let proxy = copies.proxy("a");
    (0..3).for_each(|number| copies.wait_until_ready(number));
    set_all(&proxy, 0..KEYS, "old");
    let b = copies.node(1);
    b.wait_for(|| value(b, "key399").is_some(), "the write does not arrive");
    b.wait_for_log("epoch=1");
    let other = Node::run(&mut moneta(&["serve", "-p", "0", "--admin", "off", "--cluster", "--writer-id", "9"]));
    copies.place(2, Some(&other.address().to_string()));
    b.wait_for_log("other copies are read by another topology");
    proxy.wait_for_topology(2);
    set_all(&proxy, 0..KEYS, "new");
    other.wait_for(|| (0..KEYS).any(|key| value(&other, &format!("key{key}")).is_some()), "it gets no keys");
    let is_old = |key: &usize| value(b, &format!("key{key}")).as_deref() == Some("old");
    assert!((0..KEYS).any(|key| is_old(&key)), "all keys stayed");
    copies.place(3, None);
    b.wait_for_log("keys that other nodes had are back");
    b.wait_for_log("caught up with other copies");
    copies.wait_until_ready(1);
    assert_eq!((0..KEYS).filter(is_old).collect::<Vec<_>>(), [] as [usize; 0]);
    // The feeds of a cluster that is younger than the margin do not reach back: then all goes.
    assert!(copies.metric(1, "catch_up_taken_total") + copies.metric(1, "catch_up_dropped_total") > 0);
}

/// The addresses that a node has of the others are wrong, as where a control plane does not know these yet. Those of a later topology are
/// taken long before its deadline.
#[test]
fn a_node_that_knows_no_address_of_another_catches_up_by_a_later_topology() {
    let mut copies = Copies::start([&[], &["--flash-durability", "every-write", "--catch-up-deadline", "1h"], &[]]);
    let proxy = copies.proxy("b");
    (0..3).for_each(|number| copies.wait_until_ready(number));
    set_all(&proxy, 0..20, "old");
    copies.kill(1);
    set_all(&proxy, 0..10, "new");
    let addresses = copies.addresses.clone();
    (copies.addresses[0], copies.addresses[2]) = ("unheld.invalid:11211".into(), "unheld.invalid:11211".into());
    copies.place(2, None);
    copies.bring_back(1);
    assert_eq!(copies.node(1).exchange("mg key1 v\r\n"), BEHIND);
    copies.addresses = addresses;
    copies.place(3, None);
    copies.wait_until_ready(1);
    proxy.wait_for_topology(3);
    for key in 0..20 {
        let (name, is) = (format!("key{key}"), if key < 10 { "new" } else { "old" });
        assert_eq!(value(&proxy, &name).as_deref(), Some(is), "{name}");
        // The feeds of a cluster that is younger than the margin do not reach back: then all went.
        let own = value(copies.node(1), &name);
        assert!(own.as_deref().is_none_or(|own| own == is), "{name}: {own:?}");
    }
}

/// A node that cannot learn what it has missed answers all the same after its deadline, and says so.
#[test]
fn a_node_without_others_answers_after_its_deadline() {
    let mut copies = Copies::start([&[], &["--flash-durability", "every-write", "--catch-up-deadline", "2s"], &[]]);
    copies.wait_until_ready(1);
    copies.node(1).exchange("set key 0 0 3\r\nold\r\n");
    for number in 0..3 {
        copies.kill(number);
    }
    copies.bring_back(1);
    copies.wait_until_ready(1);
    let readyz = page(&copies.admins[1], "/readyz");
    assert!(readyz.contains("may hold what is old"), "{readyz}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let told = refused(&mut moneta(&["serve", "--catch-up", "topology.toml"]), 2);
    assert!(told.contains("catch_up") && told.contains("--cluster"), "{told}");
    let told = refused(&mut moneta(&["serve", "--cluster", "--catch-up-as", "10.0.0.1:11211"]), 2);
    assert!(told.contains("catch_up_as"), "{told}");
    let memcached = ["--l1", "remote:/run/m.sock", "--l2", "none"];
    let told = refused(moneta(&["serve", "--cluster", "--catch-up", "topology.toml"]).args(memcached), 2);
    assert!(told.contains("nothing tells how old they are"), "{told}");
}
