//! Of the control plane's own: its disk is full, its folder is lost, and a property that it hands on ends whoever takes it.

use std::path::Path;

use serde_json::{Value, json};

use super::{Fleet, TOPOLOGY, ZONES, all_up, clients_see_nothing, linked, proxy};
use crate::bad_days::limited;
use crate::common::{Node, Signal, moneta, steady_port, until};
use crate::ends::{fleet, page};
use crate::fleet::{id, setting};
use crate::support::{Control, try_ask};

#[test]
fn clients_see_no_error_while_the_disk_of_the_control_plane_is_full() {
    let folder = tempfile::tempdir().unwrap();
    // A ledger has its first length.
    Control::start(folder.path(), &[]).end();
    let control = limited(folder.path(), 192);
    let fleet = Fleet::start(&control, &format!("http://{}", control.address));
    let filler = json!({ "kind": "other", "renew_every_s": 300, "metadata": { "x": "x".repeat(15_000) } }).to_string();
    clients_see_nothing(&fleet.proxy, |more| {
        let fill = |number: u64| {
            let path = format!("/v1/default/instances/filler/i-{number}");
            try_ask(control.address, "PUT", &path, "", &filler).unwrap().0
        };
        assert!((0..2_000).any(|number| fill(number) == 503), "the disk is never full");
        more(100);
        assert!(fleet.is_up());
    });
}

/// A control plane at a port, on a folder.
fn control(port: u16, data: &Path) -> Control {
    let (listen, data) = (format!("127.0.0.1:{port}"), data.display().to_string());
    let control = Control::run(&mut moneta(&["control", "--listen", &listen, "--renew-every", "1", "--data", &data]));
    control.until_ready();
    control
}

#[test]
fn clients_see_no_error_when_the_control_plane_has_lost_its_folder_and_is_told_a_third_of_it_again() {
    let (folder, port) = (tempfile::tempdir().unwrap(), steady_port());
    let mut first = control(port, &folder.path().join("first"));
    let fleet = Fleet::start(&first, &format!("http://{}", first.address));
    first.kill();
    let second = control(port, &folder.path().join("second"));
    let create = |zones: &[&str]| {
        let replicas = zones.iter().map(|zone| json!({ "name": zone, "zone": zone, "slots": [format!("{zone}0")] }));
        json!({ "change": { "create": { "replicas": replicas.collect::<Vec<_>>() } } })
    };
    let instances = || page(second.address, "/v1/default/instances?app=app").unwrap_or_default();
    let proxy = || page(fleet.admin, "/proxy").unwrap_or_default()["apps"][0].clone();
    clients_see_nothing(&fleet.proxy, |more| {
        // Nothing is there, and all come back by themselves; the app has no topology, and is asked as before.
        until("all have registered again", || instances()["instances"].as_array().map_or(0, Vec::len) == 4);
        more(100);
        assert!(fleet.is_up());
        assert_eq!(second.ask("GET", TOPOLOGY, &Value::Null).0, 404);
        // An operator forgets two of three zones.
        second.good("POST", TOPOLOGY, &create(&ZONES[..1]));
        fleet.proxy.wait_for_log("the topology lost much at once: it waits for its confirmation");
        assert!(fleet.is_up(), "so much less is not believed at once");
        for zone in &ZONES[1..] {
            let replica = json!({ "name": zone, "zone": zone, "slots": [format!("{zone}0")], "write_only": false });
            second.good("POST", TOPOLOGY, &json!({ "change": { "add_replica": replica } }));
        }
        let epoch = |page: Value| page["epoch"].as_u64().unwrap_or_default();
        until("the proxy follows the new one", || {
            let document = page(second.address, TOPOLOGY).unwrap_or_default();
            epoch(proxy()) == epoch(document) && fleet.is_up()
        });
        more(100);
    });
    second.end();
}

#[test]
fn clients_see_no_error_when_a_property_ends_who_takes_it_at_each_start() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(&folder.path().join("data"), &[]);
    fleet(&control, &ZONES);
    let urls = format!("http://{}", control.address);
    let state = |zone: &str| folder.path().join(zone);
    let start = |zone: &str| {
        let kept = state(zone).display().to_string();
        let mut command = moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "--cluster", "--replica", zone]);
        command.args(linked(&urls, zone)).args(["--slot", &format!("{zone}0"), "--state-dir", &kept]);
        Node::run(&mut command)
    };
    let mut nodes = ZONES.map(start);
    let (proxy, admin) = proxy(&urls, |_| {});
    until("the proxy asks all nodes", || all_up(admin, &nodes));
    clients_see_nothing(&proxy, |more| {
        let first = format!("app:{}", id(&state("a")));
        let wanted =
            json!({ "scope": "app=app", "name": "max_connections", "value": 444, "instance": first, "soak_s": 600 });
        let rollout = control.good("POST", "/v1/default/rollouts", &wanted)["id"].as_u64().unwrap();
        let at =
            |what: &str| control.good("GET", &format!("/v1/default/rollouts/{rollout}"), &Value::Null)[what].clone();
        until("the first has it", || setting(&nodes[0], "maxconns") == "444");
        until("it was seen", || at("waits_for").as_str().is_some_and(|waits| waits.contains("s more;")));
        for _ in 0..3 {
            nodes[0].signal(Signal::SIGKILL);
            nodes[0].wait();
            nodes[0] = start("a");
            more(50);
        }
        until("it is held", || at("progress") == "held");
        assert!(nodes[1..].iter().all(|node| setting(node, "maxconns") != "444"), "it came to another");
        control.good("POST", &format!("/v1/default/rollouts/{rollout}"), &json!({ "wish": "abort" }));
        until("none has it", || nodes.iter().all(|node| setting(node, "maxconns") != "444"));
        until("the proxy asks all nodes", || all_up(admin, &nodes));
    });
    control.end();
}
