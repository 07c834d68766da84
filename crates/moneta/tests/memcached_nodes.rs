//! `moneta proxy` over real memcacheds, and over a mixture of both while a fleet moves.

mod common;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use common::{Memcached, Node, PATIENCE, file, moneta, until};

const ZONES: [&str; 3] = ["a", "b", "c"];

fn exchange(memcached: &Memcached, requests: &str) -> String {
    common::exchange(common::connect_unix(memcached.path()).expect("it accepts"), requests)
}

struct Fleet {
    nodes: Vec<Memcached>,
    folder: tempfile::TempDir,
}

impl Fleet {
    /// One memcached in each of so many zones.
    fn start(zones: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let node = |zone: &str| Memcached::start_at(folder.path().join(format!("{zone}.sock")), &["-t", "1"]);
        let nodes: Vec<Memcached> = ZONES[..zones].iter().map(|zone| node(zone)).collect();
        let fleet = Self { nodes, folder };
        let addresses: Vec<String> = fleet.nodes.iter().map(|node| node.path().display().to_string()).collect();
        fleet.write_topology(1, &addresses);
        fleet
    }

    fn write_topology(&self, epoch: u32, addresses: &[String]) {
        let mut text = format!("epoch = {epoch}\n");
        for (zone, address) in ZONES.iter().zip(addresses) {
            let _ = write!(text, "[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={address}\"]\n");
        }
        let new = file(self.folder.path(), "topology.new", &text);
        std::fs::rename(new, self.topology()).expect("the file can be renamed");
    }

    fn topology(&self) -> PathBuf {
        self.folder.path().join("topology.toml")
    }

    fn proxy(&self, zone: &str, more: &[&str]) -> Node {
        let topology = self.topology();
        let arguments = ["--topology", topology.to_str().expect("plain"), "--zone", zone, "--threads", "1"];
        let timeout = if more.contains(&"--node-timeout") { &[][..] } else { &["--node-timeout", "5s"] };
        Node::run(moneta(&["proxy", "-p", "0", "--admin", "off"]).args(arguments).args(timeout).args(more))
    }

    /// All memcacheds answer so.
    fn all(&self, request: &str, expected: &str) {
        for node in self.nodes.iter().filter(|node| node.runs()) {
            until(&format!("{}: {request:?} is not {expected:?}", node.path().display()), || {
                exchange(node, request) == expected
            });
        }
    }
}

fn hit(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}

/// The CAS value in an answer to `gets`.
fn cas(answer: &str) -> u64 {
    let words: Vec<&str> = answer.lines().next().expect("a line").split(' ').collect();
    words[4].parse().expect("a CAS value")
}

#[test]
fn memcacheds_are_written_in_all_zones_and_read_in_the_near_one() {
    let mut fleet = Fleet::start(3);
    // What clients have written before there was a proxy.
    for node in &fleet.nodes {
        exchange(node, "set before 0 0 3\r\nold\r\nset number 0 0 1\r\n5\r\n");
    }
    let (a, b) = (fleet.proxy("a", &[]), fleet.proxy("b", &["--eject-after", "1"]));
    // The first thing that a proxy is asked may depend on what is there.
    assert_eq!(b.exchange("add before 0 0 1\r\nx\r\n"), "NOT_STORED\r\n");
    assert_eq!(a.exchange("get before\r\n"), hit("before", "old"));
    assert_eq!(a.exchange("set key 0 0 5\r\nvalue\r\n"), "STORED\r\n");
    fleet.all("get key\r\n", &hit("key", "value"));
    assert_eq!(a.exchange("incr number 2\r\n"), "7\r\n");
    assert_eq!(b.exchange("incr number 2\r\n"), "9\r\n");
    assert_eq!(b.exchange("incr nothing 2\r\n"), "NOT_FOUND\r\n");
    fleet.all("get number\r\n", &hit("number", "9"));
    for (key, add, again) in [("lock1", &a, &b), ("lock2", &b, &a), ("lock3", &a, &b)] {
        assert_eq!(add.exchange(&format!("add {key} 0 60 1\r\nx\r\n")), "STORED\r\n");
        assert_eq!(again.exchange(&format!("add {key} 0 60 1\r\ny\r\n")), "NOT_STORED\r\n");
        fleet.all(&format!("get {key}\r\n"), &hit(key, "x"));
    }
    assert_eq!(a.exchange("append key 0 0 1\r\n!\r\n"), "STORED\r\n");
    fleet.all("get key\r\n", &hit("key", "value!"));

    // CAS values are the near copy's, and compare with the home's all the same.
    for key in ["cas1", "cas2", "cas3", "cas4"] {
        exchange(&fleet.nodes[0], "set other 0 0 1\r\nx\r\n");
        assert_eq!(a.exchange(&format!("set {key} 0 0 1\r\n1\r\n")), "STORED\r\n");
        fleet.all(&format!("get {key}\r\n"), &hit(key, "1"));
        let known = cas(&b.exchange(&format!("gets {key}\r\n")));
        assert_eq!(b.exchange(&format!("cas {key} 0 0 1 {known}\r\n2\r\n")), "STORED\r\n");
        assert_eq!(b.exchange(&format!("cas {key} 0 0 1 {known}\r\n3\r\n")), "EXISTS\r\n");
        fleet.all(&format!("get {key}\r\n"), &hit(key, "2"));
    }

    // So are those that a touch shows.
    for key in ["gats1", "gats2", "gats3", "gats4"] {
        exchange(&fleet.nodes[1], "set other 0 0 1\r\nx\r\n");
        assert_eq!(b.exchange(&format!("set {key} 0 0 1\r\n1\r\n")), "STORED\r\n");
        fleet.all(&format!("get {key}\r\n"), &hit(key, "1"));
        let known = cas(&b.exchange(&format!("gats 100 {key}\r\n")));
        assert_eq!(cas(&b.exchange(&format!("gets {key}\r\n"))), known);
        assert_eq!(b.exchange(&format!("cas {key} 0 0 1 {known}\r\n2\r\n")), "STORED\r\n");
    }

    // And those that a change tells.
    for key in ["told1", "told2", "told3", "told4"] {
        exchange(&fleet.nodes[2], "set other 0 0 1\r\nx\r\n");
        let told = |answer: String| answer.trim().strip_prefix("HD c").and_then(|cas| cas.parse().ok());
        let added: Option<u64> = told(b.exchange(&format!("ms {key} 1 ME c\r\n1\r\n")));
        assert_eq!(Some(cas(&b.exchange(&format!("gets {key}\r\n")))), added, "{key}");
        let counted = told(b.exchange(&format!("ma {key} c\r\n"))).expect("a CAS value");
        assert_eq!(b.exchange(&format!("ms {key} 1 C{counted}\r\n7\r\n")), "HD\r\n", "{key}");
    }

    assert_eq!(b.exchange("touch key 100\r\n"), "TOUCHED\r\n");
    for node in &fleet.nodes {
        let left = exchange(node, "mg key t\r\n");
        assert!(left.starts_with("HD t9") || left.starts_with("HD t100"), "{left}");
    }
    assert_eq!(a.exchange("delete key\r\n"), "DELETED\r\n");
    fleet.all("get key\r\n", "END\r\n");

    // One goes, and comes back empty.
    fleet.nodes[1].kill();
    for _ in 0..3 {
        assert_eq!(b.exchange("get number\r\n"), hit("number", "9"));
    }
    assert_eq!(b.exchange("set while 0 0 2\r\nup\r\n"), "STORED\r\n");
    fleet.nodes[1].run();
    until("the node is not given what it missed", || exchange(&fleet.nodes[1], "get while\r\n") == hit("while", "up"));
    until("the node is not filled by reads", || {
        b.exchange("get number\r\n") == hit("number", "9")
            && exchange(&fleet.nodes[1], "get number\r\n") == hit("number", "9")
    });
    assert_eq!(a.exchange("flush_all\r\n"), "OK\r\n");
    fleet.all("get number\r\n", "END\r\n");
}

/// Changes are made on one copy, and the others are told: also one that does not answer, once it is back, and one that only takes
/// writes.
#[test]
fn a_copy_that_was_away_is_told_of_changes() {
    let fleet = Fleet::start(3);
    let proxy = fleet.proxy("b", &["--node-timeout", "300ms", "--eject-after", "1"]);
    // Homes differ by key.
    let keys: Vec<String> = (0..6).map(|key| format!("key{key}")).collect();
    for key in &keys {
        assert_eq!(proxy.exchange(&format!("set {key} 0 0 1\r\n1\r\n")), "STORED\r\n");
        fleet.all(&format!("get {key}\r\n"), &hit(key, "1"));
    }
    fleet.nodes[2].process().stop();
    assert_eq!(proxy.exchange("set other 0 0 1\r\n1\r\n"), "STORED\r\n");
    proxy.wait_for_log("it is not asked until");
    for key in &keys {
        assert_eq!(proxy.exchange(&format!("incr {key} 1\r\n")), "2\r\n");
        assert_eq!(proxy.exchange(&format!("append {key} 0 0 1\r\n0\r\n")), "STORED\r\n");
    }
    fleet.nodes[2].process().cont();
    for key in &keys {
        fleet.all(&format!("get {key}\r\n"), &hit(key, "20"));
        assert_eq!(proxy.exchange(&format!("incr {key} 1\r\n")), "21\r\n");
        fleet.all(&format!("get {key}\r\n"), &hit(key, "21"));
    }
}

#[test]
fn a_copy_that_is_filled_is_told_of_changes() {
    let fleet = Fleet::start(3);
    let text = std::fs::read_to_string(fleet.topology()).expect("it is there");
    let (rest, last) = text.split_at(text.rfind("[[replica]]").expect("three of them"));
    file(fleet.folder.path(), "topology.toml", &format!("{rest}{last}write_only = true\n"));
    let proxy = fleet.proxy("a", &[]);
    for key in ["key1", "key2", "key3"] {
        assert_eq!(proxy.exchange(&format!("set {key} 0 0 1\r\n1\r\nincr {key} 1\r\n")), "STORED\r\n2\r\n");
        fleet.all(&format!("get {key}\r\n"), &hit(key, "2"));
    }
}

/// A read whose first answer asks for another request sends that at once. If each waited for a timer, of seconds where nodes have
/// so long a time, a client's connection would run into its minute.
#[test]
fn the_second_request_of_a_read_waits_for_no_timer() {
    const KEYS: usize = 300;
    let fleet = Fleet::start(3);
    let proxy = fleet.proxy("a", &["--node-timeout", "1m", "--retry-budget", "100"]);
    let each = |request: &dyn Fn(usize) -> String, expected: &dyn Fn(usize) -> String| {
        let mut client = BufReader::new(proxy.connect());
        let from = Instant::now();
        for number in 0..KEYS {
            client.get_mut().write_all(request(number).as_bytes()).expect("it reads");
            let (expected, mut answer) = (expected(number), String::new());
            while answer.len() < expected.len() {
                assert!(client.read_line(&mut answer).expect("it answers") > 0, "closed");
            }
            assert_eq!(answer, expected);
            assert!(from.elapsed() < PATIENCE, "read {number} still waits");
        }
    };
    let get = |number: usize| format!("get key{number}\r\n");
    let value = |number: usize| hit(&format!("key{number}"), "1");
    each(&|number| format!("set key{number} 0 0 1\r\n1\r\n"), &|_| "STORED\r\n".into());
    for number in 0..KEYS {
        fleet.all(&format!("get key{number}\r\n"), &value(number));
    }
    // Stale ones: the recache that the proxy has won by reading is given back to the node.
    each(&|number| format!("md key{number} I T600\r\n"), &|_| "HD\r\n".into());
    each(&get, &value);
    // The near copy has lost them: another one is asked.
    assert_eq!(exchange(&fleet.nodes[0], "flush_all\r\n"), "OK\r\n");
    each(&get, &value);
}

/// One copy of a pool of servers, as behind twemproxy: all of memcached is there.
#[test]
fn one_copy_is_as_memcached_itself() {
    let fleet = Fleet::start(1);
    let proxy = fleet.proxy("a", &[]);
    assert_eq!(proxy.exchange("mg token N30 v t\r\n"), "VA 0 t30 W\r\n\r\n");
    assert_eq!(proxy.exchange("mg token v\r\n"), exchange(&fleet.nodes[0], "mg token v\r\n"));
    assert_eq!(proxy.exchange("set k 7 0 1\r\n1\r\nprepend k 0 0 1\r\n0\r\n"), "STORED\r\nSTORED\r\n");
    assert_eq!(proxy.exchange("get k\r\n"), "VALUE k 7 2\r\n01\r\nEND\r\n");
    let known = cas(&proxy.exchange("gets k\r\n"));
    assert_eq!(proxy.exchange(&format!("cas k 7 0 1 {known}\r\n5\r\nincr k 3\r\n")), "STORED\r\n8\r\n");
    assert_eq!(proxy.exchange("gat 100 k\r\n"), "VALUE k 7 1\r\n8\r\nEND\r\n");
    assert_eq!(proxy.exchange("md k I T30\r\nmg k v\r\nmg k v\r\n"), "HD\r\nVA 1 X W\r\n8\r\nVA 1 Z X\r\n8\r\n");
    assert_eq!(proxy.exchange("ma n N0 J5 v\r\nma n v\r\n"), "VA 1\r\n5\r\nVA 1\r\n6\r\n");
}

/// libmemcached's test of what clients rely on.
#[test]
fn memccapable_passes_over_three_memcacheds() {
    let fleet = Fleet::start(3);
    let proxy = fleet.proxy("a", &[]);
    let port = proxy.address().port().to_string();
    // Some of its tests wait for a second of the clock, and fail where the machine is slow.
    let mut said = String::new();
    for _ in 0..5 {
        let mut command = Command::new("memccapable");
        let output = command.args(["-h", "127.0.0.1", "-p", &port]).output();
        let output = output.expect("it is in Debian's package libmemcached-tools: `make test` installs it");
        said = String::from_utf8_lossy(&output.stdout).into_owned();
        if said.contains("All tests passed") {
            return;
        }
    }
    panic!("{said}");
}

/// A fleet moves zone by zone: its memcacheds are replaced by Moneta nodes, and clients notice nothing.
#[test]
fn a_fleet_moves_from_memcached_zone_by_zone() {
    let fleet = Fleet::start(3);
    let proxy = fleet.proxy("b", &[]);
    let keys: Vec<String> = (0..50).map(|key| format!("key{key}")).collect();
    for key in &keys {
        assert_eq!(proxy.exchange(&format!("set {key} 0 0 1\r\n1\r\n")), "STORED\r\n");
    }
    let mut addresses: Vec<String> = fleet.nodes.iter().map(|node| node.path().display().to_string()).collect();
    let mut moved = Vec::new();
    for zone in 0..ZONES.len() {
        let writer = (zone + 1).to_string();
        let node = Node::start(&["--cluster", "--writer-id", &writer, "--threads", "1", "-m", "64"]);
        addresses[zone] = node.address().to_string();
        fleet.write_topology(zone as u32 + 2, &addresses);
        proxy.wait_for_topology(zone as u32 + 2);
        for (number, key) in keys.iter().enumerate() {
            let expected = (zone + 1).to_string();
            assert_eq!(proxy.exchange(&format!("get {key}\r\n")), hit(key, &expected), "zone {zone}");
            assert_eq!(
                proxy.exchange(&format!("incr {key} 1\r\n")),
                format!("{}\r\n", zone + 2),
                "zone {zone}, {number}"
            );
        }
        moved.push(node);
    }
    // Nothing is left of memcached, and all copies agree.
    drop(fleet.nodes);
    for key in &keys {
        for node in &moved {
            node.wait_for(|| node.exchange(&format!("get {key}\r\n")) == hit(key, "4"), "a copy lacks the last change");
        }
    }
}

/// A proxy logs in before it speaks meta: to a memcached and a node with `-Y`, and to a node with `-S`.
#[test]
fn a_proxy_logs_in_to_nodes_with_memcacheds_passwords() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = |name: &str, text: &str| {
        let path = file(folder.path(), name, text);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        path
    };
    let (users, login) = (secret("users", "ann:secret\n"), secret("login", "ann:secret\n"));
    let wrong = secret("wrong", "ann:secreT\n");
    let memcached = Memcached::start_at(folder.path().join("a.sock"), &["-t", "1", "-Y", &users]);
    let of_node = ["--cluster", "--threads", "1", "-m", "16m", "-Y", &users];
    let by_text = Node::start(&[&of_node[..], &["--writer-id", "1"]].concat());
    let by_sasl = Node::start(&[&of_node[..], &["--writer-id", "2", "-S"]].concat());
    let addresses =
        [memcached.path().display().to_string(), by_text.address().to_string(), by_sasl.address().to_string()];
    let replica =
        |(zone, address): (&str, String)| format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={address}\"]\n");
    let topology: String = ZONES.into_iter().zip(addresses).map(replica).collect();
    let topology = file(folder.path(), "topology.toml", &format!("epoch = 1\n{topology}"));
    let proxy = |login: &str| {
        let of_proxy = ["proxy", "-p", "0", "--admin", "off", "--threads", "1", "--ack", "all", "--node-timeout", "5s"];
        Node::run(moneta(&of_proxy).args(["--topology", &topology, "--zone", "c", "--login-file", login]))
    };
    // Of each protocol, one item.
    let known = proxy(&login);
    let binary_set = b"\x80\x01\0\x01\x08\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0b3";
    until("all three take what is set", || known.exchange("set t 0 0 1\r\n1\r\n") == "STORED\r\n");
    assert_eq!(known.exchange("ms m 1\r\n2\r\nmg m v\r\nget t\r\n"), format!("HD\r\nVA 1\r\n2\r\n{}", hit("t", "1")));
    let mut stream = known.connect();
    stream.write_all(binary_set).expect("it reads");
    let mut answer = [0; 24];
    std::io::Read::read_exact(&mut stream, &mut answer).expect("it answers");
    assert_eq!(answer[6..8], [0, 0]);
    // With `all` each copy had them before they were answered.
    let log_in = "set x 0 0 10\r\nann secret\r\n";
    let own = format!("{log_in}get t\r\nget m\r\nget b\r\n");
    let has = format!("STORED\r\n{}{}{}", hit("t", "1"), hit("m", "2"), hit("b", "3"));
    assert_eq!(exchange(&memcached, &own), has);
    assert_eq!(by_text.exchange(&own), has);
    assert_eq!(by_sasl.exchange(&own), has);
    // One with another secret is refused by each.
    let stranger = proxy(&wrong);
    assert!(stranger.exchange("get t\r\n").starts_with("SERVER_ERROR"));
    let refused = || stranger.log().matches("refuses the log-in").count();
    stranger.wait_for(|| refused() >= 3, "a node lets it in");
}

/// What a node is, is its server's to say: another one may take its address.
#[test]
fn a_node_s_address_goes_from_moneta_to_memcached_and_back() {
    let mut fleet = Fleet::start(3);
    let path = fleet.nodes[0].path().to_owned();
    let moneta_there = || {
        let _ = std::fs::remove_file(&path);
        let path = path.to_str().expect("plain");
        Node::run(&mut moneta(&["serve", "-s", path, "--admin", "off", "--cluster", "--threads", "1", "-m", "64"]))
    };
    let there = |request: &str| common::exchange(common::connect_unix(&path).expect("it accepts"), request);
    fleet.nodes[0].kill();
    let node = moneta_there();
    let proxy = fleet.proxy("a", &[]);
    assert_eq!(proxy.exchange("set k 0 0 1\r\n1\r\n"), "STORED\r\n");
    until("the node has it", || there("get k\r\n") == hit("k", "1"));
    // By version, as a node of Moneta takes it.
    assert!(there("mg k c\r\n").trim().len() > "HD c1234567890".len());
    drop(node);
    fleet.nodes[0].run();
    let arrives = |value: &str| {
        until("writes arrive", || {
            assert_eq!(proxy.exchange(&format!("set k 0 0 1\r\n{value}\r\n")), "STORED\r\n", "two copies are left");
            there("get k\r\n") == hit("k", value)
        });
    };
    arrives("2");
    assert_eq!(proxy.exchange("delete k\r\n"), "DELETED\r\n");
    until("deletes arrive", || there("get k\r\n") == "END\r\n");
    fleet.nodes[0].kill();
    let node = moneta_there();
    arrives("3");
    // It is asked by version again after a while, and knows then what is newer.
    until("it takes versions", || {
        assert_eq!(proxy.exchange("set l 0 0 1\r\n1\r\n"), "STORED\r\n");
        let cas = |text: &str| text.trim().rsplit('c').next().and_then(|cas| cas.parse::<u64>().ok());
        cas(&there("mg l c\r\n")).is_some_and(|known| known == self::cas(&proxy.exchange("gets l\r\n")))
    });
    drop(node);
}

#[test]
fn an_empty_moneta_node_is_filled_from_a_memcached_by_what_is_read() {
    let fleet = Fleet::start(1);
    let arguments = ["--cluster", "--writer-id", "1", "--threads", "1", "-m", "64"];
    let node = Node::run(moneta(&["serve", "-p", "0", "--admin", "off"]).args(arguments));
    fleet.write_topology(1, &[fleet.nodes[0].path().display().to_string(), node.address().to_string()]);
    let proxy = fleet.proxy("b", &["--ack", "one", "--retry-budget", "100"]);
    assert_eq!(exchange(&fleet.nodes[0], "set k 5 600 3\r\nold\r\nset l 0 0 3\r\nold\r\n"), "STORED\r\nSTORED\r\n");
    // In its first half second the node creates nothing that came from elsewhere.
    until("the node is filled", || {
        assert_eq!(proxy.exchange("get k\r\n"), "VALUE k 5 3\r\nold\r\nEND\r\n");
        node.exchange("get k\r\n") == "VALUE k 5 3\r\nold\r\nEND\r\n"
    });
    let left = node.exchange("mg k t\r\n");
    let left: u32 = left.trim().strip_prefix("HD t").and_then(|left| left.parse().ok()).expect("a time to live");
    assert!((1..=600).contains(&left), "{left}");
    // What was filled is older than any write.
    assert_eq!(proxy.exchange("get l\r\n"), "VALUE l 0 3\r\nold\r\nEND\r\n");
    assert_eq!(proxy.exchange("set l 0 0 3\r\nnew\r\nget l\r\n"), "STORED\r\nVALUE l 0 3\r\nnew\r\nEND\r\n");
    until("the node has the write", || node.exchange("get l\r\n") == "VALUE l 0 3\r\nnew\r\nEND\r\n");
}

/// What a client is told that it has changed is there, however many others do the same.
#[test]
fn cas_loops_of_many_clients_lose_nothing() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 50;
    let fleet = Fleet::start(3);
    let proxy = fleet.proxy("a", &[]);
    // Homes differ by key: some have theirs far from the proxy.
    let keys = ["count1", "count2", "count3"];
    for key in keys {
        assert_eq!(proxy.exchange(&format!("set {key} 0 0 1\r\n0\r\n")), "STORED\r\n");
    }
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for key in keys {
                    (0..ROUNDS).for_each(|_| count(&proxy, key));
                }
            });
        }
    });
    for key in keys {
        assert_eq!(proxy.exchange(&format!("get {key}\r\n")), hit(key, &(CLIENTS * ROUNDS).to_string()), "{key}");
    }
}

/// Adds one by `gets` and `cas`.
fn count(proxy: &Node, key: &str) {
    let from = Instant::now();
    loop {
        let read = proxy.exchange(&format!("gets {key}\r\n"));
        let number: usize = read.lines().nth(1).and_then(|value| value.parse().ok()).expect("a number");
        let next = (number + 1).to_string();
        let answer = proxy.exchange(&format!("cas {key} 0 0 {} {}\r\n{next}\r\n", next.len(), cas(&read)));
        if answer == "STORED\r\n" {
            return;
        }
        assert_eq!(answer, "EXISTS\r\n");
        assert!(from.elapsed() < PATIENCE, "others are always faster");
    }
}
