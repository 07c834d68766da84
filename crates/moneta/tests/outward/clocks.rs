//! A process whose wall clock is a day off takes good certificates for bad ones: connections that are open go on, new ones are refused
//! and it is said why, and all is well when the clock is.

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, SystemTime};

use moneta_certificates::Wanted;

use crate::common::clock::Clocks;
use crate::common::{Node, connect, steady_port};
use crate::files::{self, Files, metric};
use crate::{ask, node_command, nodes, proxy_command, put, shown, tcp, topology, up};

const DAY: i64 = 86_400;
const HIT: &str = "VALUE k 0 5\r\nvalue\r\nEND\r\n";
const HOUR: Duration = Duration::from_secs(3600);

/// A certificate that holds for two hours, of which one has passed.
fn issue_for_hours(files: &mut Files, name: &str) {
    let now = SystemTime::now();
    let wanted = Wanted { holds: Some((now - HOUR, now + HOUR)), ..Wanted::hosts(["127.0.0.1"]) };
    let issued = files.authority.issue(&wanted).expect("a certificate");
    put(files, name, &issued);
}

struct World {
    files: Files,
    folder: tempfile::TempDir,
    ports: [u16; 2],
}

impl World {
    fn new() -> Self {
        let mut files = Files::new();
        ["node", "proxy"].into_iter().for_each(|name| issue_for_hours(&mut files, name));
        let ports = [steady_port(), steady_port()];
        topology(&files, 1, &[("a", format!("127.0.0.1:{}", ports[0])), ("b", format!("127.0.0.1:{}", ports[1]))]);
        Self { files, folder: tempfile::tempdir().expect("a folder"), ports }
    }

    fn node_with(&self, number: usize, clock: impl FnOnce(&mut Command)) -> Node {
        let mut command = node_command(&self.files, "node", &format!("127.0.0.1:{}", self.ports[number]));
        clock(&mut command);
        Node::run(&mut command)
    }

    fn proxy_with(&self, clock: impl FnOnce(&mut Command)) -> Node {
        let mut command = proxy_command(&self.files);
        clock(command.args(shown(&self.files)));
        Node::run(&mut command)
    }

    fn trouble(&self, proxy: &Node) -> String {
        let own = format!("127.0.0.1:{}", self.ports[1]);
        let node = nodes(proxy).into_iter().find(|node| node["node"] == own.as_str()).unwrap_or_default();
        node["trouble"].as_str().unwrap_or("").to_owned()
    }
}

/// A client that reads through a proxy, on one connection.
struct Reader(TcpStream);

impl Reader {
    fn of(proxy: &Node) -> Self {
        proxy.wait_for(|| writes(proxy), "it does not write");
        Self(connect(tcp(proxy)))
    }

    /// Each of some hundred requests is answered.
    fn goes_on(&mut self) {
        for _ in 0..300 {
            files::ask(&mut self.0, b"get k\r\n", HIT.as_bytes());
        }
    }
}

/// Connections to nodes that were made again.
fn reconnects(proxy: &Node) -> u64 {
    let stats = ask(proxy, "stats proxy\r\n");
    let lines = stats.lines().filter(|line| line.starts_with("STAT remote_reconnects_total:"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn writes(proxy: &Node) -> bool {
    ask(proxy, "set k 0 0 5\r\nvalue\r\n") == "STORED\r\n"
}

#[test]
fn a_proxy_whose_clock_is_a_day_off_keeps_its_connections_and_says_why_it_makes_no_new_ones() {
    let world = World::new();
    let clock = Clocks::new(world.folder.path());
    let _a = world.node_with(0, |_| {});
    let mut b = Some(world.node_with(1, |_| {}));
    let proxy = world.proxy_with(|command| {
        clock.of(command, 0);
    });
    proxy.wait_for(|| up(&proxy) == 2, "both nodes are up");
    let mut reader = Reader::of(&proxy);
    for (ahead, why) in [(DAY, "expired"), (-DAY, "not valid yet")] {
        let connected = reconnects(&proxy);
        clock.set(ahead);
        // What nodes tell is from the future of one that is behind, which asks for their time at once.
        proxy.wait_for(|| ask(&proxy, "get k\r\n") == HIT, "it does not read again");
        reader.goes_on();
        assert_eq!((up(&proxy), reconnects(&proxy)), (2, connected), "connections that are open go on");
        drop(b.take());
        b = Some(world.node_with(1, |_| {}));
        proxy.wait_for(|| world.trouble(&proxy).contains(why), "it does not say why");
        clock.set(0);
        proxy.wait_for(|| up(&proxy) == 2 && world.trouble(&proxy).is_empty(), "it does not connect again");
        proxy.wait_for(|| writes(&proxy), "it does not write again");
        reader.goes_on();
    }
    drop(b);
}

#[test]
fn a_node_whose_clock_is_a_day_off_keeps_its_connections_and_tells_new_peers_why_it_refuses_them() {
    let world = World::new();
    let clock = Clocks::new(world.folder.path());
    let _a = world.node_with(0, |_| {});
    let b = world.node_with(1, |command| {
        clock.of(command, 0);
    });
    let first = world.proxy_with(|_| {});
    first.wait_for(|| up(&first) == 2, "both nodes are up");
    let mut reader = Reader::of(&first);
    for ahead in [DAY, -DAY] {
        let before = metric(&b, "tls_handshakes_total{result=\"certificate\"}");
        clock.set(ahead);
        reader.goes_on();
        assert_eq!(up(&first), 2, "connections that are open go on");
        let second = world.proxy_with(|_| {});
        second.wait_for(|| world.trouble(&second).contains("CertificateExpired"), "it does not hear why");
        assert!(metric(&b, "tls_handshakes_total{result=\"certificate\"}") > before, "it is counted");
        let mut other = Reader::of(&second);
        other.goes_on();
        clock.set(0);
        second.wait_for(|| up(&second) == 2 && world.trouble(&second).is_empty(), "it does not let them in again");
        for proxy in [&first, &second] {
            proxy.wait_for(|| writes(proxy), "it does not write again");
        }
        reader.goes_on();
        other.goes_on();
    }
}
