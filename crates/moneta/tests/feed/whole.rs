//! What a reader must not pass over: large items, what the node that it writes to lost beside it, and what has expired.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Node, moneta, printed};
use crate::{PATIENCE, admin_of, ends_alike, feed, feed_to, node};

/// Waits until `holds`.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never came true: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Both nodes take items of 4 MiB: what lies between them does, too. An item that was not copied took what was older with it.
#[test]
fn items_as_large_as_both_nodes_take_are_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let large = ["-I", "4m", "-m", "64m"];
    let ((source, admin), (target, _)) = (node("1", &large), node("2", &large));
    let value = "v".repeat(3 << 20);
    source.exchange("set k0 0 0 5\r\nsmall\r\nset k1 0 0 5\r\nolder\r\n");
    let _reader = feed(&admin, &target, &folder.path().join("cursor"));
    ends_alike(&source, &target);
    source.exchange(&format!("set k1 0 0 {}\r\n{value}\r\n", value.len()));
    ends_alike(&source, &target);
}

/// A reader runs beside the node that it writes to, and both are killed: that node has lost what it took last, and the file of
/// the reader does not say that it was told.
#[test]
fn what_a_node_lost_that_was_killed_with_its_reader_is_told_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().join("tier").display());
    let socket = folder.path().join("socket").display().to_string();
    let start = || {
        let listens = ["serve", "-p", "0", "--listen", "127.0.0.1", "--unix-socket", &socket, "--admin", "off"];
        // Nothing comes to its device while the test lasts.
        let is = ["--cluster", "--writer-id", "2", "--flash", &flash, "--flash-flush-interval", "1m"];
        Node::run(&mut moneta(&[&listens[..], &is].concat()))
    };
    let (source, admin) = node("1", &[]);
    let sets: String = (0..20).map(|key| format!("set k{key} 0 0 3\r\n{key:03}\r\n")).collect();
    source.exchange(&sets);
    let killed = start();
    let cursor = folder.path().join("cursor");
    let reader = feed_to(&admin, &socket, &cursor);
    ends_alike(&source, &killed);
    drop((reader, killed));
    let back = start();
    let _reader = feed_to(&admin, &socket, &cursor);
    ends_alike(&source, &back);
}

/// An item is told as deleted once it has expired, under the version just below its own: that is of another region, where the
/// item was written by writer 0.
#[test]
fn what_has_expired_is_told_to_readers_of_its_region() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().display());
    for more in [&["--flash", &flash][..], &[]] {
        let node = Node::start(&[&["--cluster", "--region-id", "1"], more].concat());
        let admin = admin_of(&node);
        node.exchange("set k 0 1 5\r\nvalue\r\nset other 0 0 5\r\nvalue\r\n");
        let told = |region: &str| printed(&mut moneta(&["feed", &admin, "--from", "1h", "--region", region]));
        until("it expires", || node.exchange("get k\r\n") == "END\r\n");
        let of_region = told("1");
        assert!(of_region.contains("delete k ") && of_region.contains("set other "), "{of_region}");
        assert!(!told("2").contains(" k "), "it is of no other");
    }
}
