//! Clocks that are wrong, and names that mean nothing any more.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::clock::{at, wrong_clock};
use crate::common::{Node, moneta};
use crate::fleet::{Fleet, Proxy, ZONES};

const HOUR: i64 = 3600;

#[test]
fn a_proxy_whose_clock_is_an_hour_off() {
    let fleet = Fleet::start();
    let folder = tempfile::tempdir().expect("a folder");
    let library = wrong_clock(folder.path());
    let right = fleet.proxy("b", &[]);
    for ahead in [HOUR, -HOUR] {
        let topology = fleet.folder.path().join("topology.toml");
        let topology = topology.to_str().expect("plain");
        let arguments = ["--topology", topology, "--zone", "a", "--threads", "1", "--node-timeout", "1500ms"];
        let mut command = moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0"]);
        let wrong = Proxy::run(at(&mut command, &library, ahead).args(arguments));
        // It goes by its nodes' clocks as soon as it has asked them.
        let offset = || wrong.metric("cluster_clock_offset_seconds", "");
        wrong.process.wait_for(|| (offset() + ahead as f64).abs() < 60.0, "the proxy goes by the nodes' clocks");
        let (mut first, mut second) = (wrong.client(), right.client());
        for round in 0..30 {
            let key = format!("shared{}", round % 3);
            // Each takes turns to write what the other wrote before: the later write wins, whatever the clock of its proxy.
            let (writer, reader) = if round % 2 == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
            assert!(writer.set(&key), "its versions are taken");
            reader.learn(writer, &key);
            assert!(writer.check(&key));
            let shows = |reader: &mut crate::client::Client| {
                let answer = reader.ask(&format!("get {key}"));
                reader.fits(&key, &answer)
            };
            // The copy near to the other proxy may take it a moment later.
            let began = Instant::now();
            while !shows(reader) {
                assert!(began.elapsed() < Duration::from_secs(60), "the other proxy never shows {key}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // Lives are counted by the same clock.
        assert_eq!(first.ask("set short 0 100 1\r\nx"), "STORED\r\n");
        assert_eq!(second.ask("set short 0 100 1\r\nx"), "STORED\r\n");
        let left = first.ask("mg short t");
        let left: i64 = left.trim().strip_prefix("HD t").expect("it lives").parse().expect("seconds");
        assert!((1..=100).contains(&left), "{left}");
        assert_eq!(ZONES.map(|zone| wrong.ejections(zone)), [0.0; 3]);
    }
}

#[test]
fn a_node_whose_clock_is_an_hour_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = wrong_clock(folder.path());
    let node = |number: usize, ahead: i64| {
        let writer = (number + 1).to_string();
        let arguments = ["--cluster", "--writer-id", &writer, "--threads", "1", "-m", "64"];
        let mut command = moneta(&["serve", "-p", "0", "--admin", "off"]);
        Some(Node::run(at(&mut command, &library, ahead).args(arguments)))
    };
    for ahead in [HOUR, -HOUR] {
        let fleet = Fleet::of(vec![node(0, 0), node(1, ahead), node(2, 0)]);
        let (near, far) = (fleet.proxy("a", &[]), fleet.proxy("b", &[]));
        // The median of three is right. A node that is behind refuses what is ahead of its clock; two copies take it.
        let mut client = near.client();
        for turn in 0..4 {
            client.move_to([&near, &far][turn % 2].process.address());
            for key in (0..20).map(|key| format!("key{key}")) {
                assert!(client.set(&key), "two copies take it");
                assert!(client.check(&key), "a client reads what it wrote");
            }
        }
        assert!(client.keys().iter().all(|key| client.check(key)));
        assert!([0, 2].iter().all(|&node| fleet.holds_all(node, &client)), "two copies have it");
        for proxy in [&near, &far] {
            assert!(
                proxy.metric("cluster_clock_offset_seconds", "").abs() < 60.0,
                "one wrong clock of three moves none"
            );
            assert_eq!(ZONES.map(|zone| proxy.ejections(zone)), [0.0; 3], "a node with a wrong clock is asked");
        }
    }
}

#[test]
fn names_are_gone() {
    let fleet = Fleet::start();
    let hints = fleet.folder.path().join("hints-dns");
    std::fs::create_dir(&hints).expect("a folder");
    let arguments = ["--zone", "a", "--threads", "1", "--topology", "dns:a=moneta-nodes.invalid", "--hint-dir"];
    let run = |command: &mut Command| {
        let command = command.args(arguments).arg(&hints).args(["--node-timeout", "1500ms"]);
        Proxy::run(command)
    };
    // What an earlier run has kept of its names.
    std::fs::copy(fleet.folder.path().join("topology.toml"), hints.join("default.topology.toml")).expect("a copy");
    let proxy = run(&mut moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0"]));
    let mut client = proxy.client();
    assert_eq!(client.round(0..40), (40, 40), "it serves with the last topology that was good");
    let source = |name: &str| proxy.metric(&format!("cluster_source_{name}"), "");
    proxy
        .process
        .wait_for(|| source("up") == 0.0 && source("failures_total") >= 1.0, "metrics tell that names are gone");
    assert_eq!(client.round(0..40), (40, 40));
    assert_eq!(ZONES.map(|zone| proxy.ejections(zone)), [0.0; 3]);
}
