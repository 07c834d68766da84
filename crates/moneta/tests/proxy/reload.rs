//! Rules of a proxy that change by SIGHUP, while a node is away.

use std::fs;

use nix::sys::signal::Signal;

use super::{Client, Cluster, Node, file};

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
