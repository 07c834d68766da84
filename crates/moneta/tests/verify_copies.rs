//! `moneta verify` of copies: through proxies, which list the keys of their near copy, and by a topology, node by node.
//!
//! Guards against the worst answer that a comparison can give: "Equal", where nothing was compared.

mod common;

use std::path::Path;
use std::process::Output;

use common::{Node, file, moneta, output, steady_port};

const KEYS: usize = 120;

struct Copies {
    /// Two of zone a, then two of zone b.
    nodes: Vec<Node>,
    proxies: [Node; 2],
    topology: String,
    _folder: tempfile::TempDir,
}

fn node(writer: usize, arguments: &[&str]) -> Node {
    let writer = writer.to_string();
    let mut command =
        moneta(&["serve", "-p", &steady_port().to_string(), "--admin", "off", "--threads", "1", "-m", "64"]);
    Node::run(command.args(["--cluster", "--writer-id", &writer]).args(arguments))
}

fn topology(folder: &Path, nodes: &[Node]) -> String {
    // Slots have other names in each zone, as `moneta cluster up` writes them: a key's node has another place in each copy.
    let slot = |number: usize| format!("\"{}-{}={}\"", ["a", "b"][number / 2], number % 2, nodes[number].address());
    let zone = |first: usize| {
        let zone = ["a", "b"][first / 2];
        format!("[[replica]]\nzone = \"{zone}\"\nnodes = [{}, {}]\n", slot(first), slot(first + 1))
    };
    file(folder, "topology.toml", &format!("epoch = 1\n{}{}", zone(0), zone(2)))
}

fn proxy(zone: &str, topology: &str) -> Node {
    let arguments = ["proxy", "-p", "0", "--admin", "off", "--threads", "1", "--topology", topology, "--zone", zone];
    Node::run(moneta(&arguments).args(["--ack", "all"]))
}

fn copies(arguments: &[&str]) -> Copies {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes: Vec<Node> = (0..4).map(|number| node(number, arguments)).collect();
    let topology = topology(folder.path(), &nodes);
    let proxies = ["a", "b"].map(|zone| proxy(zone, &topology));
    let sets: String = (0..KEYS).map(|key| format!("set key:{key} 0 0 5\r\nvalue\r\n")).collect();
    assert_eq!(proxies[0].exchange(&sets), "STORED\r\n".repeat(KEYS));
    Copies { nodes, proxies, topology, _folder: folder }
}

/// What a run prints on standard output and error, and its status.
fn verify(arguments: &[&str]) -> (String, String, Option<i32>) {
    let mut command = moneta(&["verify", "--settle", "0.1", "--timeout", "60"]);
    let Output { status, stdout, stderr } = output(command.args(arguments));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(stdout), text(stderr), status.code())
}

#[test]
fn proxies_list_the_keys_of_their_near_copy() {
    let copies = copies(&[]);
    let proxies = &copies.proxies;
    let dump = proxies[0].exchange("lru_crawler metadump all\r\n");
    let mut keys: Vec<&str> = dump.lines().filter_map(|line| line.strip_prefix("key=")?.split(' ').next()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((keys.len(), dump.matches("key=").count()), (KEYS, KEYS), "{dump}");
    assert!(dump.starts_with("OK\r\n") && dump.ends_with("END\r\n"), "{dump}");

    let [a, b] = proxies.each_ref().map(|proxy| proxy.address().to_string());
    let (report, errors, status) = verify(&[&a, &b]);
    assert_eq!((status, &*errors), (Some(0), ""), "{report}");
    let listed = format!("listed by A{:>25}", KEYS);
    assert!(report.contains(&listed) && report.contains(&format!("compared{:>28}", KEYS)), "{report}");
}

#[test]
fn a_list_that_cannot_be_had_is_an_error() {
    let copies = copies(&["--disable-dumping"]);
    let proxies = &copies.proxies;
    let dump = proxies[0].exchange("lru_crawler metadump all\r\n");
    assert!(dump.contains("SERVER_ERROR") && !dump.contains("END"), "{dump}");
    let [a, b] = proxies.each_ref().map(|proxy| proxy.address().to_string());
    let (report, errors, status) = verify(&[&a, &b]);
    assert_eq!(status, Some(2), "{report}");
    assert!((report + &errors).contains("lists no keys"), "{errors}");
}

#[test]
fn copies_are_compared_by_their_topology() {
    let copies = copies(&[]);
    let Copies { nodes, topology, .. } = &copies;
    let of = ["--topology", topology, "a", "b"];
    let (report, errors, status) = verify(&of);
    assert_eq!((status, &*errors), (Some(0), ""), "{report}");
    assert!(report.contains(&format!("compared{:>28}", KEYS)), "{report}");
    assert!(report.contains("A  a (2 nodes, "), "{report}");

    // Each of b's nodes loses some keys, and has one that its ring does not name.
    let deletes: String = (0..30).map(|key| format!("delete key:{key}\r\n")).collect();
    let lost: usize = nodes[2..].iter().map(|node| node.exchange(&deletes).matches("DELETED").count()).sum();
    assert_eq!(lost, 30);
    let names = ["stray:0", "stray:1", "stray:2", "stray:3", "stray:4", "stray:5", "stray:6", "stray:7"];
    let strays: String = names.map(|name| format!("set {name} 0 0 1\r\nx\r\n")).concat();
    nodes[2..].iter().for_each(|node| drop(node.exchange(&strays)));
    let (report, errors, status) = verify(&of);
    assert_eq!((status, &*errors), (Some(1), ""), "{report}");
    for (name, number) in [("only in A", 30), ("only in B", 8), ("on nodes without readers", 8)] {
        let line = format!("  {name:22}{number:>12}");
        assert!(report.contains(&line), "{line:?} is not in {report}");
    }

    // By version: what was deleted later on b is deleted on a, and what only b has comes to a.
    let (report, errors, status) = verify(&[&of[..], &["--repair", "newer"]].concat());
    assert_eq!((status, &*errors), (Some(0), ""), "{report}");
    let (report, _, status) = verify(&of);
    assert_eq!(status, Some(0), "{report}");
    assert!(report.contains(&format!("compared{:>28}", KEYS - 30 + 8)), "{report}");
}

#[test]
fn what_is_no_copy_or_would_outrank_clients_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[[replica]]\nzone = \"a\"\nnodes = [\"h:1\"]\n[[replica]]\nzone = \"b\"\nnodes = [\"h:2\"]\n";
    let topology = file(folder.path(), "topology.toml", text);
    let (_, errors, status) = verify(&["--topology", &topology, "a", "c"]);
    assert_eq!((status, &*errors), (Some(2), "moneta: the topology has no replica \"c\": it has a, b\n"));
    let (_, errors, status) = verify(&["--topology", &topology, "a", "b", "--repair", "a-to-b"]);
    assert_eq!(status, Some(2));
    assert!(errors.contains("the direction is `newer`"), "{errors}");
}
