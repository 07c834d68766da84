//! `moneta proxy` over real nodes: three zones of two, nodes that are killed, stopped and come back, and a topology that changes.

mod common;
#[path = "proxy/presence.rs"]
mod presence;
#[path = "proxy/reload.rs"]
mod reload;
#[path = "proxy/starts.rs"]
mod starts;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use common::{Node, connect, file, moneta, printed, refused, steady_port};
use nix::sys::signal::Signal;

const ZONES: [&str; 3] = ["a", "b", "c"];
const KEYS: usize = 300;

struct Cluster {
    nodes: Vec<Vec<Option<Node>>>,
    addresses: Vec<Vec<String>>,
    folder: tempfile::TempDir,
}

fn node(writer: usize, port: &str) -> Node {
    let arguments = ["--cluster", "--writer-id", &writer.to_string(), "--threads", "1", "-m", "64"];
    Node::run(moneta(&["serve", "-p", port, "--admin", "off"]).args(arguments))
}

impl Cluster {
    fn start() -> Self {
        let zone = |zone: usize| {
            (0..2).map(|slot| Some(node(zone * 2 + slot, &steady_port().to_string()))).collect::<Vec<_>>()
        };
        let nodes: Vec<Vec<_>> = (0..ZONES.len()).map(zone).collect();
        let address = |node: &Option<Node>| node.as_ref().expect("it was started").address().to_string();
        let addresses = nodes.iter().map(|zone| zone.iter().map(address).collect()).collect();
        let cluster = Self { nodes, addresses, folder: tempfile::tempdir().expect("a folder") };
        cluster.write_topology(1, &ZONES);
        cluster
    }

    fn write_topology(&self, epoch: u32, zones: &[&str]) -> String {
        let mut text = format!("epoch = {epoch}\nring = \"slots\"\n");
        for (zone, addresses) in ZONES.iter().zip(&self.addresses).filter(|(zone, _)| zones.contains(zone)) {
            let nodes: Vec<String> =
                addresses.iter().enumerate().map(|(slot, address)| format!("\"{slot}={address}\"")).collect();
            text.push_str(&format!("[[replica]]\nzone = \"{zone}\"\nnodes = [{}]\n", nodes.join(", ")));
        }
        // By another file that takes its place, so that no half of one is ever read.
        let new = file(self.folder.path(), "topology.new", &text);
        let path = self.folder.path().join("topology.toml");
        std::fs::rename(new, &path).expect("the file can be renamed");
        path.to_str().expect("a plain name").to_owned()
    }

    fn proxy(&self, zone: &str) -> Node {
        self.proxy_with(zone, "1", "2s")
    }

    fn proxy_of(&self, zone: &str, more: &[&str]) -> Node {
        Node::run(self.command(zone, "1", "2s").args(more))
    }

    fn proxy_with(&self, zone: &str, threads: &str, timeout: &str) -> Node {
        Node::run(&mut self.command(zone, threads, timeout))
    }

    fn command(&self, zone: &str, threads: &str, timeout: &str) -> std::process::Command {
        let topology = self.folder.path().join("topology.toml");
        let hints = self.folder.path().join(format!("hints-{zone}"));
        let (topology, hints) = (topology.to_str().expect("plain"), hints.to_str().expect("plain").to_owned());
        let arguments = [
            "--topology",
            topology,
            "--zone",
            zone,
            "--hint-dir",
            &hints,
            "--threads",
            threads,
            "--node-timeout",
            timeout,
        ];
        let mut command = moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0"]);
        command.args(arguments);
        command
    }

    fn kill(&mut self, zone: usize, slot: usize) {
        drop(self.nodes[zone][slot].take());
    }

    /// Starts a node anew, empty, where it was.
    fn restart(&mut self, zone: usize, slot: usize) {
        let port = self.addresses[zone][slot].rsplit(':').next().expect("a port").to_owned();
        self.nodes[zone][slot] = Some(node(zone * 2 + slot, &port));
    }
}

/// One command at a time on one connection.
struct Client(TcpStream);

impl Client {
    fn of(node: &Node) -> Self {
        Self(connect(node.address()))
    }

    /// Sends a command, and `mn` after it; what comes before the answer to that.
    fn ask(&mut self, command: &str) -> String {
        self.0.write_all(format!("{command}\r\nmn\r\n").as_bytes()).expect("it reads");
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        while !answer.ends_with(b"MN\r\n") {
            let count = self.0.read(&mut buffer).expect("it answers in time");
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..count]);
        }
        answer.truncate(answer.len() - 4);
        String::from_utf8(answer).expect("text")
    }

    fn set_all(&mut self, value: &str) {
        for key in 0..KEYS {
            let answer = self.ask(&format!("set key{key} 0 0 {}\r\n{value}", value.len()));
            assert_eq!(answer, "STORED\r\n", "key{key}");
        }
    }

    /// The keys that do not show `value`.
    fn others(&mut self, value: &str) -> Vec<String> {
        let all = (0..KEYS).map(|key| (key, self.ask(&format!("get key{key}"))));
        let expected = |key| format!("VALUE key{key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
        all.filter(|(key, answer)| *answer != expected(*key))
            .map(|(key, answer)| format!("key{key}: {answer}"))
            .collect()
    }
}

fn page(admin: &str, path: &str) -> String {
    let mut stream = connect(admin);
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

fn metric(admin: &str, name: &str) -> u64 {
    let text = page(admin, "/metrics");
    let lines = text.lines().filter(|line| line.starts_with(&format!("moneta_{name}{{")));
    lines
        .map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number") as u64)
        .sum()
}

fn admin_of(node: &Node) -> String {
    node.wait_for_log("admin HTTP listening");
    let log = node.log();
    let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
    line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address").to_owned()
}

#[test]
fn what_is_written_in_one_zone_is_read_in_the_others() {
    let cluster = Cluster::start();
    let (near, far) = (cluster.proxy("a"), cluster.proxy("c"));
    let (mut near, mut far) = (Client::of(&near), Client::of(&far));
    near.set_all("first");
    // The copies that were not waited for have it soon.
    for _ in 0..100 {
        if far.others("first").is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(far.others("first").is_empty());
    assert_eq!(near.ask("incr key0 1"), "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
    assert_eq!(near.ask("set counter 0 0 2\r\n10"), "STORED\r\n");
    assert_eq!(far.ask("incr counter 5"), "15\r\n");
    assert_eq!(near.ask("incr counter 1"), "16\r\n");
    assert_eq!(far.ask("decr counter 6"), "10\r\n");
    assert_eq!(near.ask("add lock 0 60 1\r\nx"), "STORED\r\n");
    assert_eq!(far.ask("add lock 0 60 1\r\ny"), "NOT_STORED\r\n");
    assert_eq!(far.ask("append lock 0 0 1\r\nz"), "STORED\r\n");
    let gets = near.ask("gets lock");
    let cas = gets.split_whitespace().nth(4).expect("a CAS value").to_owned();
    assert_eq!(gets, format!("VALUE lock 0 2 {cas}\r\nxz\r\nEND\r\n"));
    assert_eq!(far.ask(&format!("cas lock 0 0 1 {cas}\r\nn")), "STORED\r\n");
    assert_eq!(near.ask(&format!("cas lock 0 0 1 {cas}\r\nm")), "EXISTS\r\n");
    assert_eq!(far.ask("delete lock"), "DELETED\r\n");
    assert_eq!(near.ask("get lock"), "END\r\n");
    assert_eq!(near.ask("delete lock"), "NOT_FOUND\r\n");
    assert_eq!(near.ask("mg lock v N30"), "VA 0 W\r\n\r\n");
    assert!(far.ask("mg lock v N30").ends_with("Z\r\n\r\n"), "one client of all zones wins");
    assert_eq!(near.ask("flush_all"), "OK\r\n");
    assert!((0..KEYS).all(|key| far.ask(&format!("get key{key}")) == "END\r\n"));
    assert_eq!(near.ask("ms chosen 1 E5\r\nx"), "CLIENT_ERROR CAS values cannot be chosen on this server\r\n");
}

#[test]
fn a_node_that_is_killed_costs_no_write_and_no_value() {
    let mut cluster = Cluster::start();
    let proxy = cluster.proxy("a");
    let admin = admin_of(&proxy);
    let mut client = Client::of(&proxy);
    client.set_all("first");
    cluster.kill(0, 0);
    assert_eq!(client.others("first"), Vec::<String>::new(), "other zones have it");
    client.set_all("second");
    assert_eq!(client.others("second"), Vec::<String>::new());
    assert!(metric(&admin, "cluster_hints") > 0);
    cluster.restart(0, 0);
    proxy.wait_for(|| metric(&admin, "cluster_hints") == 0, "hints are delivered when the node is back");
    assert_eq!(client.others("second"), Vec::<String>::new(), "what the empty node misses comes from elsewhere");
    // All of another zone, and a node of a third one stands still: two copies are left of some keys, one of others.
    cluster.kill(1, 0);
    cluster.kill(1, 1);
    assert_eq!(client.others("second"), Vec::<String>::new());
    client.set_all("third");
    cluster.nodes[2][0].as_ref().expect("it runs").signal(Signal::SIGSTOP);
    assert_eq!(client.others("third"), Vec::<String>::new(), "the near copy has it");
    let answers: Vec<String> = (0..40).map(|key| client.ask(&format!("set key{key} 0 0 1\r\n4"))).collect();
    assert!(answers.iter().all(|answer| answer == "STORED\r\n" || answer.starts_with("SERVER_ERROR")));
    assert!(answers.iter().any(|answer| answer.starts_with("SERVER_ERROR")), "some keys have one copy left");
    cluster.nodes[2][0].as_ref().expect("it runs").signal(Signal::SIGCONT);
}

#[test]
fn hints_outlive_a_proxy_and_deletes_reach_a_node_that_was_away() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy("b");
    let mut client = Client::of(&proxy);
    client.set_all("old");
    let away = cluster.nodes[2][0].as_ref().expect("it runs");
    let mut direct = Client::of(away);
    let missed = (0..KEYS).filter(|key| direct.ask(&format!("get key{key}")) != "END\r\n").count() as u64;
    assert!(missed > 0);
    away.signal(Signal::SIGSTOP);
    let deleted = (0..KEYS).filter(|key| client.ask(&format!("delete key{key}")) == "DELETED\r\n").count();
    assert_eq!(deleted, KEYS);
    let admin = admin_of(&proxy);
    // A write becomes a hint when its time is up, and the file is written ten times a second.
    proxy.wait_for(|| metric(&admin, "cluster_hints") >= missed, "what the node missed becomes hints");
    std::thread::sleep(std::time::Duration::from_secs(1));
    let missed = metric(&admin, "cluster_hints");
    drop((client, proxy));
    let proxy = cluster.proxy("b");
    let admin = admin_of(&proxy);
    assert_eq!(metric(&admin, "cluster_hints"), missed, "they are kept over a kill");
    away.signal(Signal::SIGCONT);
    proxy.wait_for(|| metric(&admin, "cluster_hints") == 0, "hints are delivered when the node goes on");
    assert!((0..KEYS).all(|key| direct.ask(&format!("get key{key}")) == "END\r\n"), "nothing that was deleted is left");
}

#[test]
fn a_topology_changes_without_a_dropped_request() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy("a");
    let admin = admin_of(&proxy);
    let mut client = Client::of(&proxy);
    client.set_all("kept");
    cluster.write_topology(2, &["a", "b"]);
    proxy.wait_for(
        || {
            assert_eq!(client_of(&proxy).others("kept"), Vec::<String>::new());
            metric(&admin, "cluster_epoch") == 2
        },
        "the new topology is taken",
    );
    client.set_all("two");
    cluster.write_topology(3, &["a", "b", "c"]);
    proxy.wait_for(|| metric(&admin, "cluster_epoch") == 3, "the third topology is taken");
    client.set_all("three");
    assert_eq!(client.others("three"), Vec::<String>::new());
}

fn client_of(node: &Node) -> Client {
    Client::of(node)
}

#[test]
fn a_version_far_ahead_is_refused_and_stops_nothing() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy_of("a", &["--client-versions", "yes"]);
    let mut client = Client::of(&proxy);
    assert_eq!(client.ask("set k 0 0 3\r\nold"), "STORED\r\n");
    const AHEAD: &str = "18000000000000000000";
    assert!(client.ask(&format!("ms k 3 V{AHEAD}\r\nbad")).starts_with("SERVER_ERROR"));
    assert!(client.ask(&format!("md k V{AHEAD}")).starts_with("SERVER_ERROR"));
    assert_eq!(client.ask("get k"), "VALUE k 0 3\r\nold\r\nEND\r\n");
    assert_eq!(client.ask("set k 0 0 3\r\nnew"), "STORED\r\n");
    assert_eq!(client.ask("get k"), "VALUE k 0 3\r\nnew\r\nEND\r\n");
    assert_eq!(metric(&admin_of(&proxy), "cluster_hints"), 0, "no node lacks what all refused");
    // The version that a write was made from counts through a proxy, too.
    let version = client.ask("mg k c").split('c').nth(1).expect("a version").trim().parse::<u64>().expect("a number");
    let newer = version + (1 << 22);
    assert_eq!(client.ask(&format!("ms k 1 V{newer} C0\r\nx")), format!("EX V{version}\r\n"));
    assert_eq!(client.ask(&format!("ms k 1 V{newer} C{}\r\nx", version - 1)), format!("EX V{version}\r\n"));
    assert_eq!(client.ask(&format!("ms k 1 V{newer} C{version}\r\nx")), "HD\r\n");
}

#[test]
fn clients_of_a_proxy_name_no_versions() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy("a");
    let mut client = Client::of(&proxy);
    assert_eq!(client.ask("set k 0 0 3\r\nold"), "STORED\r\n");
    let version = client.ask("mg k c").split('c').nth(1).expect("a version").trim().parse::<u64>().expect("a number");
    let refused = "CLIENT_ERROR versions cannot be named here: see client_versions\r\n";
    // A millisecond, and a year ahead.
    for ahead in [1u64 << 22, (365 * 86_400_000) << 22] {
        let version = version + ahead;
        let large = format!("ms k {} V{version}\r\n{}", 2 << 20, "x".repeat(2 << 20));
        for command in [format!("ms k 1 V{version}\r\nx"), format!("md k V{version}"), format!("mf {version} 1")] {
            assert_eq!(client.ask(&command), refused, "{command}");
        }
        assert!(client.ask(&large).starts_with("SERVER_ERROR object too large"));
    }
    assert_eq!(client.ask("get k"), "VALUE k 0 3\r\nold\r\nEND\r\n");
    assert_eq!(client.ask("set k 0 0 3\r\nnew"), "STORED\r\n");
    assert_eq!(client.ask("set other 0 0 3\r\nnew"), "STORED\r\n");
}

#[test]
fn what_cannot_be_had_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(refused(&mut moneta(&["proxy"]), 2).contains("topology"));
    let none = folder.path().join("none.toml");
    assert!(refused(&mut moneta(&["serve", "--topology", path(&none)]), 2).contains("moneta proxy"));
    assert!(refused(&mut moneta(&["serve", "--ack", "all"]), 2).contains("topology"));
    let flash = folder.path().join("tier");
    let arguments = ["proxy", "--topology", path(&none), "--flash", &format!("{}:64m", path(&flash))];
    assert!(refused(&mut moneta(&arguments), 2).contains("left out of a proxy"));
    let bad = file(folder.path(), "bad.toml", "epoch = 1\n[[replica]]\nzone = \"a\"\nnodes = []\n");
    assert!(refused(&mut moneta(&["proxy", "-p", "0", "--admin", "off", "--topology", &bad]), 1).contains("topology"));
    let good =
        file(folder.path(), "good.toml", "[[replica]]\nzone = \"a\"\nnodes = [\"0=127.0.0.1:1\", \"1=127.0.0.1:2\"]\n");
    let routes = printed(&mut moneta(&["route", &good, "key", "another"]));
    assert_eq!(routes.lines().count(), 3);
    assert!(routes.lines().skip(1).all(|line| line.contains("127.0.0.1:1") || line.contains("127.0.0.1:2")));
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// What a `get` of these keys shows, of which the first [`KEYS`] have `value`.
fn hits(keys: &[usize], value: &str) -> String {
    let hit = |key: &usize| format!("VALUE key{key} 0 {}\r\n{value}\r\n", value.len());
    keys.iter().filter(|key| **key < KEYS).map(hit).collect::<String>() + "END\r\n"
}

fn get(keys: &[usize]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("key{key}")).collect();
    format!("get {}\r\n", keys.join(" "))
}

#[test]
fn many_keys_and_pipelined_requests_are_answered_in_order_also_without_a_node() {
    let mut cluster = Cluster::start();
    let proxy = cluster.proxy("a");
    let mut client = Client::of(&proxy);
    client.set_all("first");
    let mut rng = fastrand::Rng::with_seed(7);
    let mut check = |client: &mut Client, value: &str| {
        for round in 0..20 {
            // Some keys are missing, and some come twice.
            let mut some = |count: usize| (0..count).map(|_| rng.usize(..KEYS + 30)).collect::<Vec<usize>>();
            let several = some(2 + 3 * round);
            assert_eq!(client.ask(get(&several).trim_end()), hits(&several, value));
            // A write in the middle, of a key that is read before and after it.
            let (singles, changed) = (some(30), round);
            let mut sent: String = singles.iter().map(|key| get(&[*key])).collect();
            let mut expected: String = singles.iter().map(|key| hits(&[*key], value)).collect();
            sent += &(get(&[changed, changed]) + &format!("set key{changed} 0 0 3\r\nnew\r\n") + &get(&[changed]));
            expected += &(hits(&[changed, changed], value) + "STORED\r\n" + &hits(&[changed], "new"));
            sent += &format!("set key{changed} 0 0 {}\r\n{value}\r\n", value.len());
            expected += "STORED\r\n";
            sent += &(get(&several) + &get(&[changed]) + &get(&several[..1]));
            expected += &(hits(&several, value) + &hits(&[changed], value) + &hits(&several[..1], value));
            assert_eq!(client.ask(sent.trim_end()), expected);
        }
    };
    check(&mut client, "first");
    // The copies in other zones, which are not waited for, have everything soon.
    let far = cluster.proxy("c");
    let mut far = Client::of(&far);
    for _ in 0..100 {
        if far.others("first").is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    cluster.kill(0, 1);
    check(&mut client, "first");
}

/// Replies to pipelined requests are sent together where they come soon after each other.
#[test]
fn a_stopped_node_holds_up_no_replies_before_its_own() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy_with("a", "1", "60s");
    let mut client = Client::of(&proxy);
    client.set_all("value");
    let mut of_slot = [0, 1].map(|slot| {
        let line = format!("STAT 0:slot {slot}\r\n");
        (0..KEYS).filter(|key| client.ask(&format!("stats route key{key}")).contains(&line)).collect::<Vec<usize>>()
    });
    let stopped = cluster.nodes[0][1].as_ref().expect("it runs");
    stopped.signal(Signal::SIGSTOP);
    let (before, asked) = (of_slot[0].split_off(of_slot[0].len() - 5), of_slot[1][0]);
    let sent: String = before.iter().chain([&asked, &before[0]]).map(|key| get(&[*key])).collect();
    client.0.write_all(sent.as_bytes()).expect("it reads");
    let expected: String = before.iter().map(|key| hits(&[*key], "value")).collect();
    let mut answer = vec![0; expected.len()];
    client.0.read_exact(&mut answer).expect("they come long before the stopped node's");
    assert_eq!(String::from_utf8_lossy(&answer), expected);
    stopped.signal(Signal::SIGCONT);
    let expected = hits(&[asked], "value") + &hits(&before[..1], "value");
    let mut answer = vec![0; expected.len()];
    client.0.read_exact(&mut answer).expect("they come");
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

/// The admin side gives a page 8 seconds, and these nodes would have more.
#[test]
fn stopped_nodes_hold_up_no_page_of_the_admin_side() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy_with("a", "1", "60s");
    let admin = admin_of(&proxy);
    assert_eq!(proxy.exchange("set key 0 0 1\r\nx\r\n"), "STORED\r\n");
    let nodes: Vec<&Node> = cluster.nodes.iter().flatten().flatten().collect();
    nodes.iter().for_each(|node| node.signal(Signal::SIGSTOP));
    for path in ["/metrics", "/proxy", "/stats"] {
        let text = page(&admin, path);
        assert!(text.starts_with("HTTP/1.0 200"), "{path}: {text}");
    }
    assert_eq!(metric(&admin, "cluster_node_up"), 6);
}

/// As one memcached does it: a client that counts meets no error because others count, too.
#[test]
fn many_clients_of_one_proxy_count_on_one_key() {
    const CLIENTS: usize = 8;
    const COUNTS: usize = 100;
    let cluster = Cluster::start();
    let proxy = cluster.proxy_with("a", "4", "20s");
    let mut client = Client::of(&proxy);
    assert_eq!(client.ask("set count 0 0 1\r\n0"), "STORED\r\n");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = Client::of(&proxy);
            scope.spawn(move || {
                for _ in 0..COUNTS {
                    let answer = client.ask("incr count 1");
                    assert!(answer.trim_end().parse::<usize>().is_ok(), "{answer}");
                }
            });
        }
    });
    assert_eq!(client.ask("get count"), format!("VALUE count 0 3\r\n{}\r\nEND\r\n", CLIENTS * COUNTS));
}

/// A look at what the copies hold wins no token, so that a change of a stale item does not meet its own looks.
#[test]
fn a_stale_item_is_changed_and_its_token_stays_to_be_won() {
    let cluster = Cluster::start();
    let proxy = cluster.proxy("a");
    let mut client = Client::of(&proxy);
    for number in 0..20 {
        let key = format!("stale{number}");
        assert_eq!(client.ask(&format!("set {key} 0 0 1\r\n5")), "STORED\r\n");
        assert_eq!(client.ask(&format!("md {key} I T60")), "HD\r\n");
        assert_eq!(client.ask(&format!("incr {key} 1")), "6\r\n");
        assert_eq!(client.ask(&format!("md {key} I T60")), "HD\r\n");
        assert_eq!(client.ask(&format!("append {key} 0 0 1\r\n0")), "STORED\r\n");
        assert_eq!(client.ask(&format!("md {key} I T60")), "HD\r\n");
        assert_eq!(client.ask(&format!("mg {key} v")), "VA 2 X W\r\n60\r\n");
    }
}
