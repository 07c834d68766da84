//! Rules of a proxy that change by SIGHUP, while a node is away.

use std::fs;

use nix::sys::signal::Signal;

use super::{Client, Cluster, Node, file, moneta};

/// Sends SIGHUP and waits until the log has said `times` times that the options are in force.
fn reload(proxy: &Node, times: usize) {
    proxy.signal(Signal::SIGHUP);
    proxy.wait_for(|| proxy.log().matches("reloaded").count() == times, "it reloads");
}

#[test]
fn the_rules_of_reads_and_writes_change_without_a_restart() {
    let mut cluster = Cluster::start();
    let options = file(cluster.folder.path(), "proxy.toml", "ack = \"quorum\"\nread_fallback = \"miss\"\n");
    let proxy = cluster.proxy_of("a", &["--config", &options]);
    let mut client = Client::of(&proxy);
    assert_eq!(client.ask("set k 0 0 1\r\nv"), "STORED\r\n");
    assert_eq!(client.ask("get k"), "VALUE k 0 1\r\nv\r\nEND\r\n");

    (0..2).for_each(|slot| cluster.kill(2, slot));
    assert_eq!(client.ask("set k 0 0 1\r\nw"), "STORED\r\n", "two of three are enough");
    let rules = "ack = \"all\"\nread_fallback = \"none\"\neject_after = 1000\neject_share = 50\neject_slow = 0\n\
         eject_slow_times = 9\neject_slow_requests = 99\nretry_budget = 7\nhint_rate = 77\n";
    fs::write(&options, rules).expect("a file");
    reload(&proxy, 1);
    assert!(!proxy.log().contains("only after a restart"), "{}", proxy.log());
    let refused = client.ask("set k 0 0 1\r\nx");
    assert!(refused.starts_with("SERVER_ERROR"), "all are wanted, and one is away: {refused}");

    fs::write(&options, "ack = \"one\"\n").expect("a file");
    reload(&proxy, 2);
    assert_eq!(client.ask("set k 0 0 1\r\ny"), "STORED\r\n");
    assert_eq!(client.ask("get k"), "VALUE k 0 1\r\ny\r\nEND\r\n");
}

#[test]
fn reads_go_to_no_other_copy_once_that_is_forbidden() {
    let mut cluster = Cluster::start();
    let options = file(cluster.folder.path(), "proxy.toml", "");
    let proxy = cluster.proxy_of("a", &["--config", &options]);
    let mut client = Client::of(&proxy);
    assert_eq!(client.ask("set k 0 0 1\r\nv"), "STORED\r\n");
    (0..2).for_each(|slot| cluster.kill(0, slot));
    assert_eq!(client.ask("get k"), "VALUE k 0 1\r\nv\r\nEND\r\n", "another zone answers");
    fs::write(&options, "read_fallback = \"none\"\n").expect("a file");
    reload(&proxy, 1);
    let answer = client.ask("get k");
    assert!(!answer.contains("VALUE"), "no other zone is asked: {answer}");
}

#[test]
fn flushes_are_forbidden_and_allowed_again() {
    let cluster = Cluster::start();
    let options = file(cluster.folder.path(), "proxy.toml", "");
    let proxy = cluster.proxy_of("a", &["--config", &options]);
    let mut client = Client::of(&proxy);
    assert_eq!(client.ask("flush_all"), "OK\r\n");
    fs::write(&options, "disable_flush_all = true\n").expect("a file");
    reload(&proxy, 1);
    assert_eq!(client.ask("flush_all"), "CLIENT_ERROR flush_all not allowed\r\n");
    fs::write(&options, "").expect("a file");
    reload(&proxy, 2);
    assert_eq!(client.ask("flush_all"), "OK\r\n");
    assert!(!proxy.log().contains("only after a restart"), "{}", proxy.log());
}

/// The nodes hang, so that only the time-out ends the read.
#[test]
fn requests_wait_for_nodes_as_long_as_is_said_now() {
    let cluster = Cluster::start();
    let rules = "read_fallback = \"none\"\neject_after = 1000\neject_slow = 0\n";
    let options = file(cluster.folder.path(), "proxy.toml", &format!("{rules}node_timeout = \"60s\"\n"));
    // The other tests' proxies have the time as a flag, which wins over a file.
    let topology = cluster.folder.path().join("topology.toml");
    let topology = topology.to_str().expect("plain");
    let arguments = ["proxy", "-p", "0", "--admin", "off", "--threads", "1", "--zone", "a", "--topology", topology];
    let proxy = Node::run(moneta(&arguments).args(["--config", &options]));
    let mut client = Client::of(&proxy);
    assert_eq!(client.ask("set k 0 0 1\r\nv"), "STORED\r\n");
    let near = || cluster.nodes[0].iter().flatten();
    near().for_each(|node| node.signal(Signal::SIGSTOP));
    fs::write(&options, format!("{rules}node_timeout = \"300ms\"\n")).expect("a file");
    reload(&proxy, 1);
    let answer = client.ask("get k");
    near().for_each(|node| node.signal(Signal::SIGCONT));
    assert!(answer.contains(" within 300ms"), "{answer}");
}
