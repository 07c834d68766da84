//! What clients may ask of nodes and proxies without commands of operators, what these need of each other, and what a proxy tells
//! of its nodes: real processes.

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Node, connect, connect_unix, exchange, file, moneta};

const ZONES: [&str; 3] = ["a", "b", "c"];
/// nginx's memc module reads an answer into this much, unless told otherwise.
const MEMC_BUFFER: usize = 4096;
/// How long copies may take to agree.
const PATIENCE: Duration = Duration::from_secs(30);

/// Three zones of a node without commands of operators, and a proxy.
struct Cluster {
    proxy: Node,
    _nodes: Vec<Node>,
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = |zone: &str| folder.path().join(format!("{zone}.sock")).to_str().expect("plain").to_owned();
        let node = |zone: &&str| {
            let fixed = [
                "serve",
                "--admin",
                "off",
                "--cluster",
                "--threads",
                "1",
                "-m",
                "64",
                "--admin-commands",
                "none",
                "-s",
            ];
            Node::run(moneta(&fixed).arg(socket(zone)))
        };
        let nodes = ZONES.iter().map(node).collect();
        let replica = |zone: &&str| format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={}\"]\n", socket(zone));
        let text: String = std::iter::once("epoch = 1\n".to_owned()).chain(ZONES.iter().map(replica)).collect();
        let topology = file(folder.path(), "topology.toml", &text);
        let arguments =
            ["proxy", "-p", "0", "--admin", "off", "--threads", "1", "--zone", "a", "--topology", &topology];
        Self { proxy: Node::run(&mut moneta(&arguments)), _nodes: nodes, folder }
    }

    fn of_node(&self, zone: &str, requests: &str) -> String {
        ask_at(&self.folder.path().join(format!("{zone}.sock")), requests)
    }
}

fn ask_at(socket: &Path, requests: &str) -> String {
    exchange(connect_unix(socket).expect("the node accepts"), requests)
}

/// A node that has just started creates nothing for half a second that came from elsewhere.
fn set(cluster: &Cluster, key: &str) {
    let start = Instant::now();
    while !ZONES.iter().all(|zone| cluster.of_node(zone, &format!("get {key}\r\n")).starts_with("VALUE ")) {
        assert_eq!(cluster.proxy.exchange(&format!("set {key} 0 0 1\r\nx\r\n")), "STORED\r\n");
        assert!(start.elapsed() < PATIENCE, "a copy never has {key}");
        sleep(Duration::from_millis(50));
    }
}

/// Without this a flush through a proxy fails on every node that follows SECURITY.md, and a copy whose hints overflowed is never
/// asked again.
#[test]
fn a_flush_through_a_proxy_reaches_nodes_that_obey_no_operators() {
    let cluster = Cluster::start();
    set(&cluster, "k");
    assert_eq!(cluster.of_node("a", "flush_all\r\n"), "CLIENT_ERROR flush_all not allowed\r\n");
    assert_eq!(cluster.proxy.exchange("flush_all\r\nget k\r\n"), "OK\r\nEND\r\n");
    for zone in ZONES {
        assert_eq!(cluster.of_node(zone, "get k\r\n"), "END\r\n", "zone {zone}");
    }
}

#[test]
fn statistics_that_cost_others_are_for_operators() {
    let cluster = Cluster::start();
    for (request, name) in [
        ("stats conns", "stats conns"),
        ("stats detail dump", "stats detail"),
        ("stats detail on", "stats detail"),
        ("stats reset", "stats reset"),
        ("lru_crawler disable", "lru_crawler disable"),
        ("shutdown", "shutdown"),
    ] {
        let answer = cluster.of_node("a", &format!("{request}\r\n"));
        let expected = match request {
            "shutdown" => "ERROR: shutdown not enabled\r\n".to_owned(),
            _ => format!("CLIENT_ERROR {name} not allowed\r\n"),
        };
        assert_eq!(answer, expected, "{request}");
    }
    assert!(cluster.of_node("a", "stats\r\n").contains("STAT curr_items 0\r\n"));
    assert!(cluster.of_node("a", "stats settings\r\n").ends_with("END\r\n"));
}

#[test]
fn a_proxy_tells_what_clients_read_of_statistics() {
    let cluster = Cluster::start();
    set(&cluster, "k");
    let ask = |request: &str| cluster.proxy.exchange(&format!("{request}\r\n"));

    let general = ask("stats");
    assert!(general.len() < MEMC_BUFFER, "{} bytes: {general}", general.len());
    assert!(!general.contains("cluster_"), "{general}");
    for name in ["pid", "version", "curr_items", "cmd_get", "get_hits", "limit_maxbytes", "threads"] {
        assert!(general.contains(&format!("STAT {name} ")), "{name} in {general}");
    }
    let own = ask("stats proxy");
    assert!(own.contains("STAT cluster_node_up:") && own.ends_with("END\r\n"), "{own}");
    assert_eq!(cluster.of_node("a", "stats proxy\r\n"), "ERROR\r\n");

    // Of the near copy, which has one item.
    let items = ask("stats items");
    assert!(items.starts_with("STAT items:1:number 1\r\n") && items.ends_with("END\r\n"), "{items}");
    let slabs = ask("stats slabs");
    for line in ["STAT 1:used_chunks 1\r\n", "STAT active_slabs 1\r\n", "STAT 1:chunk_size "] {
        assert!(slabs.contains(line), "{line} in {slabs}");
    }
    assert_eq!(ask("cache_memlimit 100"), "SERVER_ERROR a proxy holds no items: set the limit of its nodes\r\n");
}

#[test]
fn a_proxy_whose_nodes_are_away_says_so_of_what_they_hold() {
    let cluster = Cluster::start();
    let Cluster { proxy, _nodes: nodes, folder: _folder } = cluster;
    drop(nodes);
    let mut client = connect(proxy.address());
    client.write_all(b"stats items\r\nstats slabs\r\nmn\r\nquit\r\n").expect("it reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it answers");
    let unheard = "SERVER_ERROR no copy told what it holds: not all nodes of any one answer\r\n";
    assert_eq!(answer, format!("{unheard}{unheard}MN\r\n"));
}
