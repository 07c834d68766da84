//! Guards SIGHUP: what can change does, what cannot is named, and a mistake changes nothing.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Node, file, moneta, printed};
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
    let path = file(folder.path(), "moneta.toml", "backlog = 50\n");
    let node = Node::start(&["--config", &path]);
    fs::write(&path, "backlog = 60\n[[listener]]\naddress = \"127.0.0.1:0\"\n").unwrap();
    reload(&node, RELOADED);
    for option in ["backlog", "listener"] {
        let named = node.log().lines().any(|line| line.contains("only after a restart") && line.contains(option));
        assert!(named, "{option}: {}", node.log());
    }
    assert!(node.exchange("stats settings\r\n").contains("STAT tcp_backlog 50\r\n"));
}

/// What a connection reads until it is closed.
fn rest(mut connection: TcpStream) -> String {
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("it is closed in order");
    text
}

#[test]
fn more_connections_are_admitted_and_idle_ones_closed_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "max_connections = 1\n");
    let node = Node::start(&["--config", &path]);
    let mut first = node.connect();
    first.write_all(b"mn\r\n").unwrap();
    let mut answer = [0; 4];
    first.read_exact(&mut answer).unwrap();
    assert_eq!(rest(node.connect()), "ERROR Too many open connections\r\n");

    fs::write(&path, "max_connections = 2\nidle_timeout = \"1s\"\n").unwrap();
    reload(&node, RELOADED);
    let settings = node.exchange("stats settings\r\n");
    for line in ["STAT maxconns 2\r\n", "STAT idle_timeout 1\r\n"] {
        assert!(settings.contains(line), "{line} in {settings}");
    }
    // It was open before, and says nothing any more; its worker had no reason to turn.
    assert_eq!(rest(first), "");
    assert!(!node.log().contains("only after a restart"), "{}", node.log());
}

#[test]
fn what_clients_may_do_changes_for_those_that_are_connected() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "");
    let mut node = Node::start(&["--config", &path]);
    assert_eq!(node.exchange("flush_all\r\n"), "OK\r\n");
    let mut connected = node.connect();
    let mut ask = |request: &str, answer: &str| {
        connected.write_all(request.as_bytes()).unwrap();
        let mut said = vec![0; answer.len()];
        connected.read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8_lossy(&said), answer);
    };
    ask("shutdown\r\n", "ERROR: shutdown not enabled\r\n");
    let switches = "disable_flush_all = true\ndisable_dumping = true\ndisable_watch = true\nenable_shutdown = true\n";
    fs::write(&path, switches).unwrap();
    reload(&node, RELOADED);
    ask("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n");
    ask("lru_crawler metadump all\r\n", "ERROR metadump not allowed\r\n");
    ask("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
    fs::write(&path, "enable_shutdown = true\n").unwrap();
    node.signal(Signal::SIGHUP);
    node.wait_for(|| node.log().matches(RELOADED).count() == 2, "it reloads again");
    ask("flush_all\r\n", "OK\r\n");
    assert!(!node.log().contains("only after a restart"), "{}", node.log());
    connected.write_all(b"shutdown\r\n").unwrap();
    assert!(node.wait().success());
}

/// The keys of the options of a node that the reference says to change on SIGHUP, but for files of certificates and of users with
/// rights, which have tests of their own.
fn live() -> BTreeSet<String> {
    const ELSEWHERE: [&str; 2] = ["Proxy\n", "TLS\n"];
    let reference = printed(&mut moneta(&["config", "--reference"]));
    let of_node = reference.split("\n## ").filter(|section| !ELSEWHERE.iter().any(|name| section.starts_with(name)));
    let options = of_node.flat_map(|section| section.split("\n### ").skip(1));
    let live = options.filter(|option| option.split("\n\n").nth(1).is_some_and(|line| line.ends_with("reload")));
    live.filter_map(|option| option.lines().next()).filter(|key| *key != "users").map(str::to_owned).collect()
}

#[test]
fn every_option_that_the_reference_says_to_change_changes() {
    let folder = tempfile::tempdir().unwrap();
    let users = file(folder.path(), "users", "ann:pass\n");
    let path = file(folder.path(), "moneta.toml", &format!("auth_file = \"{users}\"\n"));
    let other = file(folder.path(), "others", "bob:pass\n");
    let changed = [
        ("address_bytes", "\"99m\"".into()),
        ("address_connections", "99".into()),
        ("address_operations", "99".into()),
        ("auth_file", format!("\"{other}\"")),
        ("client_memory", "\"99m\"".into()),
        ("disable_dumping", "true".into()),
        ("disable_flush_all", "true".into()),
        ("disable_watch", "true".into()),
        ("drain_timeout", "\"9s\"".into()),
        ("dump_timeout", "\"9s\"".into()),
        ("enable_shutdown", "true".into()),
        ("hot_keys", "\"off\"".into()),
        ("idle_timeout", "\"900s\"".into()),
        ("lame_duck", "\"1s\"".into()),
        ("log_level", "\"debug\"".into()),
        ("login_attempts", "9".into()),
        ("login_failures", "9".into()),
        ("login_timeout", "\"9s\"".into()),
        ("max_bytes", "\"99m\"".into()),
        ("max_connections", "99".into()),
        ("max_operations", "99".into()),
        ("memory", "\"99m\"".into()),
        ("miss_curve", "\"off\"".into()),
        ("output_limit", "\"99k\"".into()),
        ("slow_log_bytes", "\"99k\"".into()),
        ("slow_log_time", "\"99ms\"".into()),
        ("verbose", "1".into()),
    ];
    let told = changed.iter().map(|(key, _)| (*key).to_owned());
    assert_eq!(told.collect::<BTreeSet<_>>(), live());
    let node = Node::start(&["--config", &path]);
    let lines: Vec<String> = changed.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    fs::write(&path, lines.concat()).unwrap();
    reload(&node, RELOADED);
    let log = node.log();
    assert!(!log.contains("only after a restart"), "{log}");
    // Ten have a line each, and one line has the others.
    let more = log.lines().find(|line| line.contains("more changed")).expect("it is told");
    let named = |key: &str| log.lines().any(|line| line.contains("changed") && line.contains(key));
    assert!(more.contains(&format!("more={}", changed.len() - 10)), "{more}");
    assert!(changed.iter().all(|(key, _)| named(key)), "{log}");
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
