//! What a proxy tells of its apps: where a key goes, and how the nodes are.

use moneta_cluster::{Agreement, App, Apps, NodeStatus};
use moneta_server::config::Door;
use moneta_server::node::Routes;
use serde_json::{Value, json};

/// The apps of this process.
pub struct Routing {
    apps: Apps,
}

impl Routing {
    /// Tells of `apps`.
    pub fn new(apps: Apps) -> Self {
        Self { apps }
    }
}

impl Routes for Routing {
    fn app(&self, door: Door, key: &[u8]) -> Option<&str> {
        self.apps.of(door, key).map(|(app, _)| app.name())
    }

    fn apps_behind(&self, door: Door) -> Vec<&str> {
        self.apps.behind(door).map(App::name).collect()
    }

    fn route(&self, door: Door, key: &[u8]) -> Vec<(String, String)> {
        let Some((app, key)) = self.apps.of(door, key) else { return vec![("app".into(), "none".into())] };
        let copies = app.cluster.route(key);
        let mut told = vec![
            ("app".into(), app.name().to_owned()),
            ("key".into(), String::from_utf8_lossy(key).into_owned()),
            ("copies".into(), copies.len().to_string()),
        ];
        for (number, copy) in copies.iter().enumerate() {
            let node = &copy.node;
            let state = match (state(node), copy.lacks_write) {
                ("up", true) => "lacks_write",
                (state, _) => state,
            };
            let fields = [
                ("zone", node.zone.as_str()),
                ("replica", &node.replica),
                ("slot", &node.slot),
                ("node", &node.address),
                ("reads", if node.write_only { "no" } else { "yes" }),
                ("state", state),
            ];
            told.extend(fields.map(|(name, value)| (format!("{number}:{name}"), value.to_owned())));
        }
        told
    }

    fn status(&self) -> Value {
        json!({ "apps": self.apps.all().iter().map(status).collect::<Vec<_>>() })
    }
}

/// Whether a node is asked, in a word.
fn state(node: &NodeStatus) -> &'static str {
    match node {
        NodeStatus { slow: true, .. } => "slow",
        NodeStatus { up: false, .. } => "ejected",
        NodeStatus { behind: true, .. } => "catching_up",
        NodeStatus { leaving: true, .. } => "leaving",
        NodeStatus { flush_pending: true, .. } => "flush_pending",
        _ => "up",
    }
}

fn status(app: &App) -> Value {
    let status = app.cluster.status();
    let prefix = app.prefix.as_ref().map(|prefix| String::from_utf8_lossy(prefix).into_owned());
    let nodes: Vec<Value> = status.nodes.iter().map(of_node).collect();
    json!({
        "app": status.app,
        "prefix": prefix,
        "epoch": status.epoch,
        "topology": match status.agreement {
            Agreement::Agrees => None,
            other => Some(other.to_string()),
        },
        "source_failure": status.source_failure.as_deref(),
        "nodes": nodes,
    })
}

fn of_node(node: &NodeStatus) -> Value {
    json!({
        "zone": node.zone,
        "replica": node.replica,
        "slot": node.slot,
        "node": node.address,
        "write_only": node.write_only,
        "state": state(node),
        "trouble": node.trouble,
        "ejected_since": node.ejected_since.map(|millis| millis / 1000),
        "ejections": node.ejections,
        "answer_ms": node.answer_time.map(|time| time.as_secs_f64() * 1e3),
        "from_the_future": node.future,
        "failures_in_a_row": node.failures,
        "connections": node.traffic.connections,
        "requests": node.traffic.requests,
        "in_flight": node.traffic.in_flight,
        "errors": node.traffic.errors,
        "hints": node.hints,
        "hint_bytes": node.hint_bytes,
        "in_doubt": node.in_doubt,
        "doubt_failure": node.doubt_failure.as_deref(),
    })
}
