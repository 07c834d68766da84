//! The bound on what waits for one node.

use std::io::Write;

use nix::sys::signal::Signal;

use crate::client::Client;
use crate::fleet::{Fleet, Proxy};

const KEYS: usize = 160;

/// Sends a read of each key at once; how many of the answers are hits, misses and errors.
fn read_all(proxy: &Proxy) -> [usize; 3] {
    let mut stream = crate::common::connect(proxy.process.address());
    let requests: String = (0..KEYS).map(|key| format!("mg key{key} v\r\n")).collect();
    stream.write_all(format!("{requests}quit\r\n").as_bytes()).expect("it reads");
    let mut answers = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answers).expect("it answers");
    let count = |start: &str| answers.lines().filter(|line| line.starts_with(start)).count();
    let counts = [count("VA "), count("EN"), count("SERVER_ERROR")];
    assert_eq!(counts.iter().sum::<usize>(), KEYS, "{answers}");
    counts
}

/// Keys with large values, and how often one is set.
const BIG: usize = 8;
const SETS: usize = 80;

fn set_all(client: &mut Client) {
    for key in 0..KEYS {
        assert!(client.set(&format!("key{key}")));
    }
}

/// Requests that found a node's queue full said that the node fails: so nodes that were well were ejected, and a burst over a
/// node that stood still left no copy to read from.
#[test]
fn a_full_queue_sends_reads_to_other_copies_and_ejects_none_that_is_well() {
    let fleet = Fleet::start();
    let proxy = fleet.proxy("a", &["--node-requests", "90", "--eject-after", "3"]);
    set_all(&mut proxy.client());
    fleet.node(0).signal(Signal::SIGSTOP);
    // Ninety wait for the near node until their time is up, the others go on at once, at no cost of the budget for second reads.
    for _ in 0..3 {
        assert_eq!(read_all(&proxy), [KEYS, 0, 0]);
    }
    assert!(proxy.metric("remote_errors_total", "kind=\"busy\"") >= 1.0);
    assert_eq!(proxy.ejections("b") + proxy.ejections("c"), 0.0);
    fleet.node(0).signal(Signal::SIGCONT);
    proxy.wait_until_whole();
}

#[test]
fn what_no_copy_has_room_for_is_an_error_and_never_a_miss() {
    let fleet = Fleet::start();
    let proxy = fleet.proxy("a", &["--node-requests", "4", "--eject-after", "3"]);
    let mut client = proxy.client();
    set_all(&mut client);
    for stopped in [false, true] {
        if stopped {
            fleet.node(0).signal(Signal::SIGSTOP);
        }
        for _ in 0..3 {
            let [hits, misses, _] = read_all(&proxy);
            assert!(hits >= 4 && misses == 0, "{hits} hits, {misses} misses");
        }
        assert_eq!(proxy.ejections("b") + proxy.ejections("c"), 0.0, "they are well");
        assert!((0..KEYS).all(|key| client.check(&format!("key{key}"))), "one at a time there is room");
    }
    fleet.node(0).signal(Signal::SIGCONT);
    proxy.wait_until_whole();
}

#[test]
fn writes_that_find_no_room_on_one_node_are_given_to_it_later() {
    let fleet = Fleet::start();
    let proxy = fleet.patient_proxy("c", "30s", &["--node-buffer", "1k"]);
    let mut client = proxy.client();
    fleet.node(0).signal(Signal::SIGSTOP);
    // More than the kernel takes for a node that reads nothing.
    let length = |turn: usize| 900_000 + turn;
    for turn in 0..SETS {
        let value = "x".repeat(length(turn));
        assert_eq!(client.ask(&format!("set big{} 0 0 {}\r\n{value}", turn % BIG, value.len())), "STORED\r\n");
    }
    assert!(proxy.metric("remote_errors_total", "kind=\"busy\"") >= 1.0);
    assert!(proxy.metric("cluster_hints", "zone=\"a\"") >= 1.0);
    assert_eq!(["a", "b", "c"].map(|zone| proxy.ejections(zone)), [0.0; 3]);
    fleet.node(0).signal(Signal::SIGCONT);
    proxy.wait_until_whole();
    for turn in SETS - BIG..SETS {
        let held = fleet.node(0).exchange(&format!("mg big{} s\r\n", turn % BIG));
        assert_eq!(held, format!("HD s{}\r\n", length(turn)), "the node has the last value");
    }
}
