//! What clients of running proxies see on bad days of the control plane: nothing. Without it nodes and proxies go on with what they
//! know; with a wrong wall clock nothing that they are told changes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use moneta_cluster_client::{Ack, Client, Set};
use serde_json::{Value, json};

use crate::common::clock::{at, wrong_clock};
use crate::common::{Node, Signal, moneta, steady_port, until};
use crate::ends::{fleet, load, page, state_at};
use crate::etcd::Etcd;
use crate::support::{Answering, Control, Over, try_ask};

mod by_etcd;
mod by_ledger;

const TOPOLOGY: &str = "/v1/default/topologies/app";
pub const ZONES: [&str; 3] = ["a", "b", "c"];
const DAY: i64 = 86_400;

fn member(etcd: &Etcd) -> Control {
    member_at(&etcd.urls())
}

/// A member of the control plane on these members of etcd.
pub fn member_at(etcd: &str) -> Control {
    let arguments = ["control", "--listen", "127.0.0.1:0", "--renew-every", "1", "--etcd", etcd];
    let control = Control::run(&mut moneta(&arguments));
    control.until_ready();
    control
}

/// Where members are, as `--control` takes it.
pub fn urls(members: &[Control]) -> String {
    members.iter().map(|member| format!("http://{}", member.address)).collect::<Vec<_>>().join(",")
}

/// Arguments of a process of the app, which follows these members.
fn linked(urls: &str, zone: &str) -> Vec<String> {
    ["--control", urls, "--app", "app", "--zone", zone].map(str::to_owned).into()
}

pub fn node(urls: &str, zone: &str, clock: impl FnOnce(&mut std::process::Command)) -> Node {
    let mut command = moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "--cluster", "--replica", zone]);
    clock(command.args(linked(urls, zone)).args(["--slot", &format!("{zone}0")]));
    Node::run(&mut command)
}

/// A proxy in zone `a`, and its admin port.
pub fn proxy(urls: &str, clock: impl FnOnce(&mut std::process::Command)) -> (Node, SocketAddr) {
    let admin = format!("127.0.0.1:{}", steady_port());
    let mut command = moneta(&["proxy", "-p", "0", "--admin", &admin, "--topology", "control:app"]);
    // On a machine that is busy with other tests a node that answers late is no fault of the control plane.
    command.args(["--node-timeout", "10s"]);
    clock(command.args(linked(urls, "a")));
    (Node::run(&mut command), admin.parse().unwrap())
}

/// So many nodes are up, as a proxy sees it.
pub fn all_up(admin: SocketAddr, nodes: &[Node]) -> bool {
    nodes.iter().all(|node| state_at(admin, node.address()).is_some_and(|one| one["state"] == "up"))
}

/// A node in each zone, and a proxy, of an app that this makes.
pub struct Fleet {
    pub nodes: [Node; 3],
    pub proxy: Node,
    pub admin: SocketAddr,
}

impl Fleet {
    /// They follow the members at `urls`, of which this is one.
    pub fn start(control: &Control, urls: &str) -> Self {
        fleet(control, &ZONES);
        for url in urls.split(',') {
            let member = url.trim_start_matches("http://").parse().expect("an address");
            until("each member knows the app", || page(member, TOPOLOGY).is_some_and(|page| page["epoch"].is_u64()));
        }
        let nodes = ZONES.map(|zone| node(urls, zone, |_| {}));
        let (proxy, admin) = proxy(urls, |_| {});
        let fleet = Self { nodes, proxy, admin };
        until("the proxy asks all nodes", || fleet.is_up());
        fleet
    }

    /// The proxy asks all nodes.
    pub fn is_up(&self) -> bool {
        all_up(self.admin, &self.nodes)
    }

    /// Makes a change, and waits until the proxy has it.
    pub fn hears_of(&self, control: &Control, weight: u64) {
        let change = json!({ "change": { "weight": { "replica": "a", "slot": "a0", "weight": weight } } });
        let mut epoch = None;
        until("a change is made", || {
            let made = try_ask(control.address, "POST", TOPOLOGY, "", &change.to_string());
            // One of which the answer was lost is made all the same, and refused again as it changes nothing.
            let is_made = made.is_some_and(|(status, _)| status == 200 || status == 409);
            epoch = page(control.address, TOPOLOGY).and_then(|page| page["epoch"].as_u64());
            is_made && epoch.is_some()
        });
        until("the proxy hears of it", || {
            page(self.admin, "/proxy").and_then(|page| page["apps"][0]["epoch"].as_u64()) >= epoch
        });
    }
}

/// Nobody was taken to be away.
pub fn none_was_away(control: &Control) {
    let acts = control.good("GET", "/v1/default/audit?limit=1000", &Value::Null);
    assert!(!acts["acts"].as_array().unwrap().iter().any(|act| act["what"] == "away"), "{acts}");
}

/// What instances are at a control plane: those that are away, and all.
fn away(control: &Control) -> (usize, usize) {
    let page = page(control.address, "/v1/default/instances").unwrap_or_default();
    let all = page["instances"].as_array().map(Vec::as_slice).unwrap_or_default();
    (all.iter().filter(|one| one["state"] == "away").count(), all.len())
}

/// Sets and reads through a proxy while `days` go by, and asserts that no answer is an error.
pub fn clients_see_nothing(proxy: &Node, days: impl FnOnce(&dyn Fn(u64))) {
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        let loading = scope.spawn(|| load(proxy.address(), &is_over, &rounds));
        let more = |count: u64| {
            let before = rounds.load(Ordering::Relaxed);
            until("requests are answered", || {
                assert!(!loading.is_finished(), "the client has ended");
                rounds.load(Ordering::Relaxed) >= before + count
            });
        };
        more(100);
        days(&more);
        more(100);
        drop(over);
        assert_eq!(loading.join().unwrap(), 0, "errors that a client has seen");
    });
}

/// etcd stands still, is gone, and the control plane with it: for `gone` each.
fn without_etcd(gone: Duration) {
    let mut etcd = Etcd::start(1);
    let mut members = [member(&etcd), member(&etcd)];
    let fleet = Fleet::start(&members[0], &urls(&members));
    let status = |control: &Control| {
        try_ask(control.address, "GET", "/v1/default/instances", "", "").map_or(0, |(status, _)| status)
    };
    clients_see_nothing(&fleet.proxy, |more| {
        etcd.signal(0, Signal::SIGSTOP);
        until("members refuse", || members.iter().all(|member| status(member) == 503));
        sleep(gone);
        more(100);
        etcd.signal(0, Signal::SIGCONT);
        until("members are in step again", || members.iter().all(|member| status(member) == 200));
        etcd.kill(0);
        until("members refuse again", || members.iter().all(|member| status(member) == 503));
        sleep(gone);
        more(100);
        // A topology that is known is enough to go on; a control plane that is gone as well changes nothing.
        members[0].kill();
        more(100);
        assert!(fleet.is_up(), "the proxy goes on with all nodes");
        etcd.begin(0);
        until("the other member is in step again", || status(&members[1]) == 200);
        until("no instance is away", || away(&members[1]) == (0, 4));
        // And it is followed again: a change arrives.
        fleet.hears_of(&members[1], 7);
        more(100);
    });
    none_was_away(&members[1]);
    let [_, other] = members;
    other.end();
}

#[test]
fn clients_see_no_error_while_etcd_stands_still_and_is_gone() {
    without_etcd(Duration::ZERO);
}

#[test]
#[ignore = "etcd is away for a minute, twice: make test-control"]
fn clients_see_no_error_while_etcd_is_away_for_a_minute() {
    without_etcd(Duration::from_secs(60));
}

#[test]
fn a_wall_clock_that_is_a_day_off_makes_nobody_away_and_clients_see_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let library = wrong_clock(folder.path());
    // The clocks of the control plane, of a node, and of the proxy: each is a day ahead once, behind once, and right once.
    let days = [[DAY, -DAY, 0], [-DAY, 0, DAY], [0, DAY, -DAY]];
    for (turn, [of_control, of_node, of_proxy]) in days.into_iter().enumerate() {
        let data = folder.path().join(turn.to_string());
        let start = |ahead: i64| {
            let data = data.display().to_string();
            let mut command = moneta(&["control", "--listen", "127.0.0.1:0", "--renew-every", "1", "--data", &data]);
            let control = Control::run(at(&mut command, &library, ahead));
            control.until_ready();
            control
        };
        let control = start(of_control);
        fleet(&control, &ZONES);
        let urls = format!("http://{}", control.address);
        let set = |ahead: i64| {
            let library = &library;
            move |command: &mut std::process::Command| {
                at(command, library, ahead);
            }
        };
        let nodes = [node(&urls, "a", set(0)), node(&urls, "b", set(of_node)), node(&urls, "c", set(0))];
        let (proxy, admin) = proxy(&urls, set(of_proxy));
        until("the proxy asks all nodes", || all_up(admin, &nodes));
        clients_see_nothing(&proxy, |more| {
            let seen = |control: &Control| {
                let page = page(control.address, "/v1/status").unwrap_or_default();
                (page["suspect"].clone(), page["away"].clone(), page["protection"].clone())
            };
            // Longer than three renewals.
            for _ in 0..5 {
                sleep(Duration::from_secs(1));
                more(10);
                assert_eq!(away(&control), (0, 4), "clocks {turn}: {:?}", seen(&control));
            }
            // A change is told whatever the time is.
            let before = control.good("GET", "/v1/default/topologies/app", &Value::Null)["epoch"].clone();
            control.good("POST", "/v1/default/topologies/app", &json!({ "change": { "drain": { "zone": "b" } } }));
            until("the proxy hears of it", || {
                page(admin, "/proxy").is_some_and(|page| page["apps"][0]["epoch"].as_u64() > before.as_u64())
            });
        });
        control.end();
    }
}

#[test]
fn half_of_all_fall_silent_at_once_and_clients_see_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let fleet = Fleet::start(&control, &format!("http://{}", control.address));
    // Alive, but not one renewal comes.
    let silent: Vec<Answering> = (0..4).map(|_| Answering::start()).collect();
    for (number, one) in silent.iter().enumerate() {
        let record = json!({ "kind": "other", "renew_every_s": 1, "addresses": { "cache": one.address } });
        control.good("PUT", &format!("/v1/default/instances/app/silent-{number}"), &record);
    }
    clients_see_nothing(&fleet.proxy, |more| {
        let is_protected =
            || page(control.address, "/v1/default/status").is_some_and(|page| page["protection"] == true);
        until("too many renewals are missing", is_protected);
        // Longer than two probes take.
        for _ in 0..5 {
            sleep(Duration::from_secs(1));
            more(10);
            assert_eq!(away(&control), (0, 8));
        }
        assert!(fleet.is_up());
    });
    control.end();
}

#[test]
fn the_rust_client_follows_a_control_plane_and_goes_on_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut control = Control::start(folder.path(), &[]);
    fleet(&control, &ZONES);
    let urls = format!("http://{}", control.address);
    let [gone, b, c] = ZONES.map(|zone| node(&urls, zone, |_| {}));
    until("each slot has its node", || holders(&control).len() == 3);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let builder = Client::builder("app").topology_control(vec![urls.parse().unwrap()], "default").zone("a");
    let client = runtime.block_on(builder.ack(Ack::All).node_timeout(Duration::from_secs(10)).connect()).unwrap();
    let set = |value: &str| runtime.block_on(client.set("k", value, Set::default()));
    set("one").expect("stored");
    // Another node takes a slot: only who follows the control plane finds it.
    let was = holders(&control);
    drop(gone);
    let next = node(&urls, "a", |_| {});
    until("it has the slot", || {
        let now = holders(&control);
        now.len() == 3 && now != was
    });
    until("it takes writes", || set("two").is_ok() && next.exchange("get k\r\n").contains("two"));
    control.kill();
    set("three").expect("stored without the control plane");
    drop((b, c));
}

/// Who holds the slots.
fn holders(control: &Control) -> Vec<String> {
    let document = page(control.address, "/v1/default/topologies/app").unwrap_or_default();
    let slots = document["replicas"].as_array().into_iter().flatten();
    let slots = slots.flat_map(|replica| replica["slots"].as_array().cloned().unwrap_or_default());
    slots.filter_map(|slot| slot["holder"].as_str().map(str::to_owned)).collect()
}
