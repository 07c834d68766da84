//! Rollouts on real nodes. The silent failures guarded against: a value that does harm and comes to all, a rollout that a kill of the
//! control plane ends or begins anew, and one that is aborted and stays.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Node, Signal, moneta, printed, until};
use crate::fleet::{are_up, id, node, node_command, setting};
use crate::support::Control;

const NOTHING: Value = Value::Null;

/// Four nodes in two zones, with the folders of their state.
fn nodes(control: &Control, folder: &Path) -> Vec<(Node, std::path::PathBuf)> {
    let zones = ["a", "a", "b", "b"].iter().enumerate();
    let nodes = zones.map(|(number, zone)| {
        let state = folder.join(format!("state-{number}"));
        (node(control, &state, zone), state)
    });
    let nodes = nodes.collect();
    until("all are up", || are_up(control, 4));
    nodes
}

fn begin(control: &Control, more: &Value) -> u64 {
    let mut wanted = json!({ "scope": "app=feed", "name": "max_connections", "value": 600, "soak_s": 1 });
    wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    control.good("POST", "/v1/default/rollouts", &wanted)["id"].as_u64().expect("a number")
}

fn rollout(control: &Control, id: u64) -> Value {
    control.good("GET", &format!("/v1/default/rollouts/{id}"), &NOTHING)
}

/// How many have the value.
fn count(nodes: &[(Node, std::path::PathBuf)], value: &str) -> usize {
    nodes.iter().filter(|(node, _)| setting(node, "maxconns") == value).count()
}

#[test]
fn a_value_comes_to_one_to_a_zone_and_to_all_over_a_kill_of_the_control_plane() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut control = Control::start(&data, &[]);
    let nodes = nodes(&control, folder.path());
    control.good("PUT", "/v1/default/properties/app=feed/max_connections", &json!({ "value": 500 }));
    let first = format!("feed:{}", id(&nodes[2].1));
    let number = begin(&control, &json!({ "instance": first, "manual": true }));
    let stages = json!([{ "instance": first }, { "zone": "b" }, "all"]);
    assert_eq!(rollout(&control, number)["stages"], stages);
    until("the first stage passes", || rollout(&control, number)["progress"] == "waiting");
    assert_eq!((setting(&nodes[2].0, "maxconns").as_str(), count(&nodes, "500")), ("600", 3));
    // Nothing else changes it meanwhile.
    let set = control.ask("PUT", "/v1/default/properties/app=feed/max_connections", &json!({ "value": 7 }));
    assert!(set.0 == 409 && set.1["error"].as_str().unwrap().contains("under way"), "{set:?}");
    let again = json!({ "scope": "app=feed", "name": "max_connections", "value": 8 });
    assert_eq!(control.ask("POST", "/v1/default/rollouts", &again).0, 409);
    let wish = |control: &Control, wish: &str| {
        let (status, answer) = control.ask("POST", &format!("/v1/default/rollouts/{number}"), &json!({ "wish": wish }));
        assert_eq!(status, 200, "{answer}");
    };
    wish(&control, "continue");
    // Killed in the middle of a stage; nodes go on with what they have, and the rollout where it was.
    let address = control.address.to_string();
    control.kill();
    assert!(count(&nodes, "500") >= 2);
    let mut command =
        moneta(&["control", "--renew-every", "1", "--listen", &address, "--data", &data.display().to_string()]);
    let control = Control::run(&mut command);
    control.until_ready();
    until("the second stage passes", || {
        rollout(&control, number)["progress"] == "waiting" && rollout(&control, number)["stage"] == 1
    });
    assert_eq!((count(&nodes, "600"), count(&nodes, "500")), (2, 2));
    wish(&control, "continue");
    until("it is done", || rollout(&control, number)["progress"] == "done");
    until("all have it", || count(&nodes, "600") == 4);
    let one = control.good("GET", "/v1/default/properties/app=feed/max_connections", &NOTHING);
    assert_eq!((&one["value"], &one["next"], &one["version"]), (&json!(600), &NOTHING, &json!(2)));
    let url = format!("http://{}", control.address);
    let said = printed(&mut moneta(&["property", "rollout", "status", "--control", &url]));
    assert!(
        said.starts_with(&format!("rollout {number}: max_connections of app=feed from 500 to 600: done\n")),
        "{said}"
    );
    control.end();
}

#[test]
fn what_crashes_the_first_comes_to_no_other_and_goes_when_it_is_aborted() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(&folder.path().join("data"), &[]);
    let mut nodes = nodes(&control, folder.path());
    let first = format!("feed:{}", id(&nodes[0].1));
    let number = begin(&control, &json!({ "instance": first, "soak_s": 600, "value": 444 }));
    until("the first has it", || setting(&nodes[0].0, "maxconns") == "444");
    // It crashes, and what keeps it running starts it again.
    until("it was seen", || {
        rollout(&control, number)["waits_for"].as_str().is_some_and(|waits| waits.contains("s more;"))
    });
    nodes[0].0.signal(Signal::SIGKILL);
    nodes[0].0.wait();
    nodes[0].0 = Node::run(&mut node_command(&control, &nodes[0].1, "a"));
    until("it is held", || rollout(&control, number)["progress"] == "held");
    let held = rollout(&control, number);
    assert!(held["held"].as_str().unwrap().contains("has restarted") && held["stage"] == 0, "{held}");
    assert_eq!(count(&nodes[1..], "444"), 0);
    let url = format!("http://{}", control.address);
    let said = printed(&mut moneta(&[
        "property",
        "rollout",
        "abort",
        &number.to_string(),
        "--control",
        &url,
        "--why",
        "it crashed",
    ]));
    assert!(said.contains(": aborted"), "{said}");
    until("none has it", || count(&nodes, "444") == 0);
    assert_eq!(control.ask("GET", "/v1/default/properties/app=feed/max_connections", &NOTHING).0, 404);
    assert_eq!(control.ask("POST", &format!("/v1/default/rollouts/{number}"), &json!({ "wish": "continue" })).0, 409);
    control.end();
}

#[test]
fn what_makes_the_first_err_or_falls_silent_is_taken_back_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(&folder.path().join("data"), &[]);
    let nodes = nodes(&control, folder.path());
    let first = format!("feed:{}", id(&nodes[1].1));
    let back = |value: u64| json!({ "instance": first, "soak_s": 600, "value": value, "back": true });
    let number = begin(&control, &back(444));
    until("the first has it", || setting(&nodes[1].0, "maxconns") == "444");
    until("it was seen", || {
        rollout(&control, number)["waits_for"].as_str().is_some_and(|waits| waits.contains("s more;"))
    });
    // Its clients see errors: values that are too large.
    let large = format!("set k 0 0 {}\r\n{}\r\n", 2 << 20, "x".repeat(2 << 20));
    until("it is taken back", || {
        for _ in 0..5 {
            assert!(nodes[1].0.exchange(&large).contains("SERVER_ERROR object too large"));
        }
        rollout(&control, number)["progress"] == "rolled_back"
    });
    let said = rollout(&control, number)["held"].as_str().unwrap().to_owned();
    assert!(said.contains("errors: "), "{said}");
    until("none has it", || count(&nodes, "444") == 0);
    // Another one falls silent.
    let number = begin(&control, &back(445));
    until("the first has it", || setting(&nodes[1].0, "maxconns") == "445");
    nodes[1].0.signal(Signal::SIGSTOP);
    until("it is taken back", || rollout(&control, number)["progress"] == "rolled_back");
    let said = rollout(&control, number)["held"].as_str().unwrap().to_owned();
    assert!(said.contains("is silent") || said.contains("is down"), "{said}");
    nodes[1].0.signal(Signal::SIGCONT);
    until("none has it", || count(&nodes, "445") == 0);
    // What one refuses is no news to the others either: the option is none of this process.
    assert_eq!(
        control.ask("POST", "/v1/default/rollouts", &json!({ "scope": "app=other", "name": "ack", "value": "all" })).0,
        409
    );
    control.end();
}
