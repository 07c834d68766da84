//! A node that starts empty under its slot's name fills itself, and serves meanwhile.

use std::path::Path;

use super::common::{Node, Signal, file, moneta, steady_port, until};
use super::{items, send, sets};

const KEYS: u32 = 2000;

/// A node of the cluster, by its place in the topology.
fn start(number: usize, port: u16, topology: &str, more: &[&str]) -> Node {
    let (port, writer) = (port.to_string(), number.to_string());
    let own = ["serve", "-p", &port, "--admin", "127.0.0.1:0", "--cluster", "--writer-id", &writer, "--threads", "1"];
    Node::run(moneta(&own).args(["--catch-up", topology]).args(more))
}

#[test]
fn a_node_that_starts_empty_has_the_items_of_its_slot_again_and_none_of_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let listen: Vec<u16> = (0..5).map(|_| moneta_testkit::process::steady_port()).collect();
    let addresses: Vec<String> = listen.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let replica = |name: &str, zone: &str, nodes: &[String]| {
        let nodes: Vec<String> = nodes.iter().enumerate().map(|(slot, node)| format!("\"s{slot}={node}\"")).collect();
        format!("\n[[replica]]\nname = \"{name}\"\nzone = \"{zone}\"\nnodes = [{}]\n", nodes.join(", "))
    };
    let text = format!(
        "epoch = 1\nring = \"slots\"\n{}{}",
        replica("a", "a", &addresses[..2]),
        replica("b", "b", &addresses[2..])
    );
    let topology = file(folder.path(), "topology.toml", &text);
    let start = |number: usize, more: &[&str]| start(number, listen[number], &topology, more);
    let ring = |nodes: &[String]| {
        let node = |(slot, address): (usize, &String)| moneta_cluster::topology::Node {
            slot: format!("s{slot}"),
            address: address.parse().expect("an address"),
            admin: None,
            weight: 1,
        };
        let nodes: Vec<_> = nodes.iter().enumerate().map(node).collect();
        moneta_cluster::Ring::new(moneta_cluster::RingKind::Slots, &nodes).expect("it is one")
    };
    let (ring_a, ring_b) = (ring(&addresses[..2]), ring(&addresses[2..]));
    let sources: Vec<Node> = (0..2).map(|number| start(number, &[])).collect();
    for key in 0..KEYS {
        let key = format!("k{key}");
        sources[ring_a.node(key.as_bytes())].exchange(&format!("set {key} 3 0 {}\r\n{key}\r\n", key.len()));
    }
    let own: Vec<String> =
        (0..KEYS).map(|key| format!("k{key}")).filter(|key| ring_b.node(key.as_bytes()) == 1).collect();
    let filled = start(3, &["--fill-from", "a"]);
    // Clients write and delete from its start on: what is older does not come through.
    filled.exchange(&format!("set {} 0 0 5\r\nnewer\r\ndelete {}\r\n", own[0], own[1]));
    until("it is filled", || filled.log().contains("the node is filled"));
    assert!(filled.exchange(&format!("get {}\r\n", own[0])).contains("newer"));
    assert_eq!(filled.exchange(&format!("get {}\r\n", own[1])), "END\r\n");
    let hits = own[2..].iter().filter(|key| filled.exchange(&format!("get {key}\r\n")).starts_with("VALUE")).count();
    assert_eq!(hits, own.len() - 2, "of the keys of its slot");
    assert!(items(&filled) <= own.len() as u64, "it has none of another slot");
}

/// The file of a topology: a replica of one node in each of two zones.
fn two_zones(folder: &Path, listen: [u16; 2]) -> String {
    let replicas = listen.iter().zip(["a", "b"]).map(|(port, name)| {
        format!("\n[[replica]]\nname = \"{name}\"\nzone = \"{name}\"\nnodes = [\"s0=127.0.0.1:{port}\"]\n")
    });
    file(folder, "topology.toml", &format!("epoch = 1\nring = \"slots\"\n{}", replicas.collect::<String>()))
}

#[test]
fn a_node_that_is_killed_half_filled_is_filled_by_its_next_start_and_one_that_was_filled_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let listen = [steady_port(), steady_port()];
    let topology = two_zones(folder.path(), listen);
    let start = |number: usize, more: &[&str]| start(number, listen[number], &topology, more);
    let source = start(0, &[]);
    send(source.connect(), &sets(0..KEYS));
    let tier = format!("{}:200m", folder.path().join("tier").display());
    let state = folder.path().join("state").display().to_string();
    let node = |rate: &str| {
        let fill = ["--fill-from", "a", "--fill-rate", rate, "--state-dir", &state];
        start(1, &[&["--flash", &tier, "--flash-durability", "every-write"], &fill[..]].concat())
    };
    let killed = node("40k");
    until("it has some", || items(&killed) > 100);
    assert!(items(&killed) < u64::from(KEYS), "it is killed half filled");
    killed.signal(Signal::SIGKILL);
    drop(killed);
    let mut filled = node("100m");
    until("it has all", || items(&filled) == u64::from(KEYS));
    filled.wait_for_log("the node is filled");
    // What was evicted or deleted there does not come back by a restart.
    filled.exchange("delete k1\r\n");
    filled.signal(Signal::SIGTERM);
    filled.wait();
    let again = node("100m");
    again.wait_for(|| again.exchange("get k2\r\n").starts_with("VALUE"), "it has its items");
    assert!(!again.log().contains("the node is being filled"), "{}", again.log());
    assert!(!folder.path().join("state/unfilled").exists());
}

/// What a client of a proxy sees, also once the copy is gone that the node was filled from.
#[test]
#[ignore = "a fill that is slow enough to be seen takes 20 s: make test-warm"]
fn clients_of_a_proxy_hit_before_while_and_after_a_node_fills_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let listen = [steady_port(), steady_port()];
    let topology = two_zones(folder.path(), listen);
    let start = |number: usize, more: &[&str]| start(number, listen[number], &topology, more);
    let (source, emptied) = (start(0, &[]), start(1, &[]));
    let is = ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", &topology, "--zone", "b"];
    let proxy = Node::run(&mut moneta(&is));
    // Of every so many keys; most are not read before the node is filled, since what is read through a proxy, that fills it with.
    let hits = |step: usize| {
        let gets: String = (0..KEYS).step_by(step).map(|key| format!("get k{key}\r\n")).collect();
        proxy.exchange(&gets).matches("VALUE ").count()
    };
    send(proxy.connect(), &sets(0..KEYS));
    until("both have all", || [&source, &emptied].iter().all(|node| items(node) == u64::from(KEYS)));
    assert_eq!(hits(20), KEYS as usize / 20);
    emptied.signal(Signal::SIGKILL);
    drop(emptied);
    let filled = start(1, &["--fill-from", "a", "--fill-rate", "100k"]);
    until("no read waits for the node", || hits(20) == KEYS as usize / 20);
    filled.wait_for_log("the node is filled");
    drop(source);
    let least = KEYS as usize * 99 / 100;
    until("the node alone has 99 of 100", || hits(1) >= least);
}
