//! One of three nodes is unwell, each time the one that clients read from first: all of their requests succeed by the other two,
//! few are slow, and when it is well again it has everything.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::client::Client;
use crate::fleet::{Fleet, Proxy};
use crate::forwarder::Mode;

const KEYS: std::ops::Range<usize> = 0..40;
/// A request that meets a node that is unwell takes its time at most twice: to read and to write. Far more is let pass on a busy
/// machine.
const LONGEST: Duration = Duration::from_secs(20);
/// What no request takes that meets no such node.
const LONG: Duration = Duration::from_millis(900);

struct Day {
    fleet: Fleet,
    proxy: Proxy,
    client: Client,
}

impl Day {
    fn begin(more: &[&str]) -> Self {
        let fleet = Fleet::start();
        let proxy = fleet.proxy("a", more);
        let mut client = proxy.client();
        assert_eq!(client.round(KEYS), (KEYS.len(), KEYS.len()));
        client.slowest(LONG);
        Self { fleet, proxy, client }
    }

    /// Requests until the near node is ejected, and some after that. All succeed; at most `slow` of them are slow.
    fn is_endured(&mut self, slow: usize) {
        let began = Instant::now();
        while self.proxy.ejections("a") == 0.0 {
            assert!(began.elapsed() < Duration::from_secs(60), "it is never ejected: {}", self.proxy.process.log());
            assert_eq!(self.client.round(0..5), (5, 5));
        }
        for _ in 0..3 {
            assert_eq!(self.client.round(KEYS), (KEYS.len(), KEYS.len()), "two copies are left");
        }
        let (slowest, over) = self.client.slowest(LONG);
        assert!(slowest < LONGEST && over <= slow, "{over} slow requests, the slowest {slowest:?}");
    }

    /// What the proxy says while the node is away.
    fn is_seen(&self, state: &str) {
        assert!(!self.proxy.is_up("a") && self.proxy.is_up("b") && self.proxy.is_up("c"));
        assert!(self.proxy.metric("cluster_hints", "zone=\"a\"") >= 1.0);
        assert!(self.proxy.page("/proxy").contains(&format!("\"state\":\"{state}\"")), "{}", self.proxy.page("/proxy"));
        assert!(self.proxy.page("/readyz").contains("200 OK"), "two copies of all keys are left");
    }

    /// The node is well again.
    fn ends(mut self) {
        self.proxy.wait_until_whole();
        assert!(self.fleet.holds_all(0, &self.client), "the node has what it missed");
        assert!(self.fleet.holds_all(1, &self.client) && self.fleet.holds_all(2, &self.client));
        assert_eq!(self.client.round(KEYS), (KEYS.len(), KEYS.len()));
        assert_eq!(self.proxy.ejections("b") + self.proxy.ejections("c"), 0.0, "the others were well");
    }
}

#[test]
fn refused() {
    let mut day = Day::begin(&[]);
    day.fleet.kill(0);
    day.is_endured(10);
    day.is_seen("ejected");
    day.fleet.restart(0);
    day.ends();
}

#[test]
fn slow_by_a_second() {
    let mut day = Day::begin(&[]);
    day.fleet.forwarders[0].set(Mode::Late);
    // Until it is ejected each request takes a second: ten are enough to judge, and a probe of it may come back in between.
    day.is_endured(60);
    day.is_seen("slow");
    assert!(day.proxy.metric("cluster_node_slow_ejections_total", "zone=\"a\"") >= 1.0);
    assert!(day.proxy.metric("cluster_node_answer_seconds", "zone=\"a\"") > 0.5);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!day.proxy.is_up("a"), "probes that take a second do not bring it back");
    day.fleet.forwarders[0].set(Mode::Pass);
    day.ends();
}

#[test]
fn slow_where_it_cannot_be_spared() {
    let mut day = Day::begin(&["--ack", "all"]);
    day.fleet.forwarders[0].set(Mode::Late);
    for key in 0..6 {
        assert!(day.client.set(&format!("key{key}")), "all copies take it, one of them late");
    }
    std::thread::sleep(Duration::from_millis(1500));
    assert!(day.client.set("key0"));
    assert!(day.proxy.is_up("a") && day.proxy.ejections("a") == 0.0);
    day.fleet.forwarders[0].set(Mode::Pass);
    assert_eq!(day.client.round(KEYS), (KEYS.len(), KEYS.len()));
}

#[test]
fn silent() {
    let mut day = Day::begin(&[]);
    day.fleet.node(0).signal(Signal::SIGSTOP);
    day.is_endured(20);
    day.is_seen("ejected");
    assert!(day.proxy.metric("remote_errors_total", "kind=\"timeout\"") >= 1.0);
    day.fleet.node(0).signal(Signal::SIGCONT);
    day.ends();
}

#[test]
fn half_open() {
    let mut day = Day::begin(&[]);
    for _ in 0..2 {
        day.fleet.forwarders[0].half_open();
        for _ in 0..3 {
            assert_eq!(day.client.round(KEYS), (KEYS.len(), KEYS.len()));
        }
    }
    let (slowest, over) = day.client.slowest(LONG);
    assert!(slowest < LONGEST && over <= 20, "{over} slow requests, the slowest {slowest:?}");
    assert!(day.proxy.metric("remote_timeouts_total", "") >= 1.0, "the silence was noticed");
    day.ends();
}

#[test]
fn garbage() {
    let mut day = Day::begin(&[]);
    day.fleet.forwarders[0].set(Mode::Garbage);
    day.is_endured(20);
    day.is_seen("ejected");
    assert!(day.proxy.metric("remote_errors_total", "kind=\"unreachable\"") >= 1.0);
    day.fleet.forwarders[0].set(Mode::Pass);
    day.ends();
}

#[test]
fn gone_for_good() {
    let mut day = Day::begin(&[]);
    day.fleet.kill(0);
    day.is_endured(10);
    // An empty one takes its slot, at another address.
    let new = Fleet::start();
    let forwarder = crate::forwarder::Forwarder::to(new.addresses[0]);
    day.fleet.forwarders[0] = forwarder;
    day.fleet.write_topology(2, &crate::fleet::ZONES);
    day.proxy.process.wait_for(|| day.proxy.metric("cluster_epoch", "") == 2.0, "the topology is taken");
    day.proxy.wait_until_whole();
    assert_eq!(day.client.round(KEYS), (KEYS.len(), KEYS.len()));
    // What was written meanwhile came by hints, all else is read from other copies.
    assert!(new.holds_all(0, &day.client));
    drop(day);
}

#[test]
fn flapping() {
    let mut day = Day::begin(&[]);
    for turn in 0..20 {
        day.fleet.forwarders[0].set(if turn % 2 == 0 { Mode::Hangs } else { Mode::Pass });
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            assert_eq!(day.client.round(0..5), (5, 5));
        }
    }
    let (slowest, over) = day.client.slowest(LONG);
    assert!(slowest < LONGEST && over <= 20, "{over} slow requests, the slowest {slowest:?}");
    assert!(
        day.proxy.metric("remote_reconnects_total", "") + day.proxy.metric("remote_connect_failures_total", "") >= 1.0
    );
    day.ends();
}
