//! Guards the CAS values of a node without `--cluster`. With every engine they count up from 1, as memcached's do. Neither a stop
//! nor a kill makes one repeat or fall. To other nodes such a node keeps no versions.

mod common;

use common::Node;
use nix::sys::signal::Signal;

/// What one `gets` shows.
fn cas_of(node: &Node, key: &str) -> u64 {
    let reply = node.exchange(&format!("gets {key}\r\n"));
    let cas = reply.lines().next().and_then(|line| line.rsplit(' ').next()?.parse().ok());
    cas.unwrap_or_else(|| panic!("no CAS value in {reply:?}"))
}

/// Stores a key and tells its CAS value.
fn store(node: &Node, key: &str) -> u64 {
    assert_eq!(node.exchange(&format!("set {key} 0 0 1\r\nx\r\n")), "STORED\r\n");
    cas_of(node, key)
}

fn end(mut node: Node, signal: Signal) {
    node.signal(signal);
    node.wait();
}

/// The arguments of each kind of node that this build has, with what it keeps in `folder`.
fn nodes(folder: &str) -> Vec<Vec<String>> {
    let of = |arguments: String| arguments.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut nodes = vec![
        of("-m 64".into()),
        of(format!("-m 8 -I 64k --flash {folder}:24m --flash-region-size 256k --flash-flush-interval 10ms")),
        of(format!("-m 8 -I 64k --l1 none --flash {folder}/alone:24m --flash-region-size 256k")),
    ];
    if cfg!(feature = "lmdb") {
        nodes.push(of(format!("-m 8 -I 64k --l2 lmdb --lmdb {folder}/lmdb:64m")));
    }
    nodes
}

fn start(arguments: &[String]) -> Node {
    Node::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn cas_values_are_small_and_grow_with_each_write() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("alone")).expect("a folder");
    for arguments in nodes(folder.path().to_str().expect("a plain path")) {
        let node = start(&arguments);
        let mut last = 0;
        for _ in 0..200 {
            let cas = store(&node, "key");
            assert!(cas > last && cas < 1 << 20, "{arguments:?}: {cas} after {last}");
            last = cas;
        }
        assert_eq!(node.exchange(&format!("cas key 0 0 1 {}\r\ny\r\n", last - 1)), "EXISTS\r\n");
        assert_eq!(node.exchange(&format!("cas key 0 0 1 {last}\r\ny\r\n")), "STORED\r\n");
        let after = cas_of(&node, "key");
        assert!(after > last);
        assert_eq!(node.exchange("flush_all\r\nget key\r\n"), "OK\r\nEND\r\n");
        let flushed = store(&node, "key");
        assert!(flushed > after && flushed < 1 << 20, "{arguments:?}: {flushed} behind a flush");
    }
}

#[test]
fn no_end_of_the_node_makes_a_cas_value_come_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("alone")).expect("a folder");
    // RAM alone has no items after a restart, and may begin anew.
    for arguments in nodes(folder.path().to_str().expect("a plain path")).into_iter().skip(1) {
        let mut last = 0;
        for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL] {
            let node = start(&arguments);
            let (first, behind) = (store(&node, "one"), (0..50).fold(None, |_, _| Some(store(&node, "two"))));
            assert!(first > last, "{arguments:?}: {first} after {last}");
            last = behind.expect("some were stored");
            assert!(last < 1 << 32, "{arguments:?}: {last}");
            if signal == Signal::SIGTERM {
                end(node, signal);
                let node = start(&arguments);
                assert_eq!(cas_of(&node, "two"), last, "an item keeps its CAS value");
                let next = store(&node, "two");
                assert!(next > last && next < last + 1000, "{arguments:?}: behind a stop {next} follows {last}");
                last = next;
                end(node, Signal::SIGKILL);
            } else {
                end(node, signal);
            }
        }
    }
}

#[test]
fn to_other_nodes_it_keeps_no_versions() {
    let node = Node::start(&["-m", "64"]);
    assert_eq!(node.exchange("mv\r\n"), "ERROR\r\n");
    store(&node, "key");
    let refused = "SERVER_ERROR this store keeps no versions\r\n";
    let version = "859946405068800001";
    assert_eq!(node.exchange(&format!("ms key 1 V{version}\r\ny\r\n")), refused);
    assert_eq!(node.exchange(&format!("md key V{version}\r\n")), refused);
    assert_eq!(node.exchange(&format!("mf {version} 1\r\n")), refused);
    assert_eq!(node.exchange("get key\r\nmg key V\r\n"), "VALUE key 0 1\r\nx\r\nEND\r\nHD V0\r\n");
}

#[test]
fn a_folder_of_a_cluster_s_node_serves_a_lone_one_and_goes_on_above() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lone = &nodes(folder.path().to_str().expect("a plain path"))[1];
    let cluster = [&lone[..], &["--cluster".to_owned()]].concat();
    let node = start(&cluster);
    let version = store(&node, "kept");
    assert!(version > 1 << 57);
    end(node, Signal::SIGTERM);
    let node = start(lone);
    assert_eq!(cas_of(&node, "kept"), version);
    let grown = store(&node, "kept");
    assert!(grown > version);
    end(node, Signal::SIGKILL);
    let node = start(&cluster);
    assert!(store(&node, "kept") > grown);
}

#[test]
fn a_folder_of_a_lone_node_serves_one_of_several_copies() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lone = &nodes(folder.path().to_str().expect("a plain path"))[1];
    let node = start(lone);
    let counted = store(&node, "kept");
    store(&node, "replaced");
    end(node, Signal::SIGTERM);
    let node = start(&[&lone[..], &["--cluster".to_owned()]].concat());
    assert_eq!(cas_of(&node, "kept"), counted);
    assert_eq!(node.exchange("mg kept V\r\n"), "HD V0\r\n", "it counts as older than every version");
    let now = node.exchange("mv\r\n");
    assert!(now.starts_with("MV 2 "), "{now}");
    assert!(store(&node, "replaced") > 1 << 57);
}
