//! Guards SIGHUP: what can change does, what cannot is named, and a mistake changes nothing.

mod common;

use std::fs;

use common::{Node, file};
use nix::sys::signal::Signal;

const RELOADED: &str = "reloaded";
const MIB: u64 = 1 << 20;

/// Sends SIGHUP and waits until the log says `until`.
fn reload(node: &Node, until: &str) {
    node.signal(Signal::SIGHUP);
    node.wait_for_log(until);
}

/// The limit on memory as the node tells it, bytes.
fn limit(node: &Node) -> u64 {
    let stats = node.exchange("stats\r\n");
    let line = stats.lines().find_map(|line| line.strip_prefix("STAT limit_maxbytes ")).expect("stats say the limit");
    line.parse().expect("it is a number")
}

fn log_in(password: &str) -> String {
    let value = format!("ann {password}");
    format!("set auth 0 0 {}\r\n{value}\r\nset k 0 0 1\r\nv\r\n", value.len())
}

#[test]
fn the_file_of_users_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "users", "ann:old\n");
    let node = Node::start(&["-Y", &path]);
    assert_eq!(node.exchange(&log_in("old")), "STORED\r\nSTORED\r\n");
    assert!(node.exchange(&log_in("new")).starts_with("CLIENT_ERROR"), "a wrong password is refused");

    fs::write(&path, "ann:new\n").unwrap();
    reload(&node, RELOADED);
    assert_eq!(node.exchange(&log_in("new")), "STORED\r\nSTORED\r\n");
    assert!(node.exchange(&log_in("old")).starts_with("CLIENT_ERROR"), "the old password is gone");
}

#[test]
fn a_broken_file_of_users_leaves_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "users", "ann:old\n");
    let node = Node::start(&["-Y", &path]);
    fs::write(&path, "nonsense\n").unwrap();
    reload(&node, "reload refused, nothing changed");
    assert!(node.log().contains("line 1"), "{}", node.log());
    assert_eq!(node.exchange(&log_in("old")), "STORED\r\nSTORED\r\n");
}

#[test]
fn the_log_level_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "log_level = \"info\"\n");
    let node = Node::start(&["--config", &path]);
    fs::write(&path, "log_level = \"warn\"\nthreads = 2\n").unwrap();
    reload(&node, "only after a restart");
    let log = node.log();
    assert!(log.contains("changed, but takes effect only after a restart"), "warnings are still logged: {log}");
    assert!(!log.contains(RELOADED), "information no longer is: {log}");

    fs::write(&path, "log_level = \"info\"\n").unwrap();
    reload(&node, RELOADED);
    assert!(node.log().contains("log_level"), "the change is named: {}", node.log());
}

#[test]
fn a_client_changes_how_much_is_logged() {
    let node = Node::start(&[]);
    assert_eq!(node.exchange("verbosity 1\r\n"), "OK\r\n");
    // This connection is told of, and the next, which turns it off again.
    node.exchange("mn\r\n");
    assert_eq!(node.exchange("verbosity 0\r\n"), "OK\r\n");
    node.exchange("mn\r\n");
    reload(&node, RELOADED);
    assert_eq!(node.log().matches(" opened ").count(), 2, "{}", node.log());
    assert!(node.exchange("stats settings\r\n").contains("STAT verbosity 0\r\n"));
}

#[test]
fn the_memory_limit_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "memory = 64\n");
    let node = Node::start(&["--config", &path]);
    assert!(limit(&node) <= 64 * MIB, "{}", limit(&node));
    fs::write(&path, "memory = 128\n").unwrap();
    reload(&node, RELOADED);
    assert!(limit(&node) > 100 * MIB, "{}", limit(&node));
}

#[test]
fn a_limit_that_a_client_has_set_outlives_a_reload() {
    let node = Node::start(&["-m", "64"]);
    assert_eq!(node.exchange("cache_memlimit 128\r\n"), "OK\r\n");
    reload(&node, RELOADED);
    assert!(limit(&node) > 100 * MIB, "{}", limit(&node));
}

#[test]
fn what_needs_a_restart_is_named_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "max_connections = 50\n");
    let node = Node::start(&["--config", &path]);
    fs::write(&path, "max_connections = 60\n[[listener]]\naddress = \"127.0.0.1:0\"\n").unwrap();
    reload(&node, RELOADED);
    for option in ["max_connections", "listener"] {
        let named = node.log().lines().any(|line| line.contains("only after a restart") && line.contains(option));
        assert!(named, "{option}: {}", node.log());
    }
    assert!(node.exchange("stats settings\r\n").contains("STAT maxconns 50\r\n"));
}

#[test]
fn a_mistake_in_the_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "memory = 64\n");
    let node = Node::start(&["--config", &path]);
    fs::write(&path, "memory = 128\nthreads = 0\n").unwrap();
    reload(&node, "reload refused, nothing changed");
    assert!(node.log().contains("moneta.toml:2"), "the place is named: {}", node.log());
    assert!(limit(&node) <= 64 * MIB, "{}", limit(&node));
}

#[test]
fn a_flag_still_wins_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "");
    let node = Node::start(&["--config", &path, "-m", "64"]);
    fs::write(&path, "memory = 128\n").unwrap();
    reload(&node, RELOADED);
    assert!(limit(&node) <= 64 * MIB, "{}", limit(&node));
}
