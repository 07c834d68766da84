//! Nodes and proxies of a control plane under test.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{Node, moneta};
use crate::support::Control;

/// What starts a node of the app `feed` in a zone, whose state is kept in `state`.
pub fn node_command(control: &Control, state: &Path, zone: &str) -> Command {
    let url = format!("http://{}", control.address);
    let state = state.display().to_string();
    let arguments = [
        "serve",
        "-p",
        "0",
        "--admin",
        "127.0.0.1:0",
        "--control",
        &url,
        "--app",
        "feed",
        "--zone",
        zone,
        "--state-dir",
        &state,
    ];
    moneta(&arguments)
}

/// A node of the app `feed` in a zone.
pub fn node(control: &Control, state: &Path, zone: &str) -> Node {
    Node::run(&mut node_command(control, state, zone))
}

/// The name of the instance that keeps its state there.
pub fn id(state: &Path) -> String {
    std::fs::read_to_string(state.join("instance")).expect("it has a name").trim().to_owned()
}

/// What the control plane has of an instance.
pub fn instance(control: &Control, id: &str) -> Value {
    let page = control.good("GET", "/v1/default/instances", &Value::Null);
    let all = page["instances"].as_array().expect("a list");
    all.iter().find(|instance| instance["id"] == id).cloned().unwrap_or_default()
}

/// Whether so many instances are up.
pub fn are_up(control: &Control, count: usize) -> bool {
    let page = control.good("GET", "/v1/default/instances", &Value::Null);
    let is_up =
        |instance: &&Value| instance["value"]["effective"] == "UP" && instance["acks"]["properties"]["at"].is_u64();
    page["instances"].as_array().expect("a list").iter().filter(is_up).count() == count
}

/// The value of a setting of a node, as `stats settings` has it.
pub fn setting(node: &Node, name: &str) -> String {
    let settings = node.exchange("stats settings\r\n");
    let line = settings.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")).map(str::to_owned));
    line.unwrap_or_default()
}
