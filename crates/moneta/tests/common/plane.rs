//! A control plane on one file, as a process, and what tests ask it.

use std::path::Path;

use moneta_link::{Control, ControlUrl};
use moneta_net::{Endpoint, HttpClient, Outward};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Node, PATIENCE, Process, moneta, steady_port, until};

/// A control plane that can be killed and started again at its port. Instances renew every second.
pub struct Plane {
    /// Also for what processes keep.
    pub folder: TempDir,
    port: u16,
    process: Option<Process>,
}

impl Plane {
    pub fn start() -> Self {
        let mut plane = Self { folder: tempfile::tempdir().unwrap(), port: steady_port(), process: None };
        plane.again();
        plane
    }

    pub fn again(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = moneta(&["control", "--listen", &listen, "--renew-every", "1", "--data"]);
        let process = Process::start(command.arg(self.folder.path().join("control")));
        process.until("the control plane is ready", || ready(&listen).is_some_and(|page| page["ready"] == true));
        self.process = Some(process);
    }

    pub fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn control(&self) -> Control {
        let url: ControlUrl = self.url().parse().unwrap();
        Control::new(&[url], &Outward::default(), "default")
    }

    /// What it says at a path; `Null` if it refuses or does not answer.
    pub fn get(&self, path: &[&str]) -> Value {
        let control = self.control();
        let page = control.get(&control.path(path.iter().copied()));
        page.map_or(Value::Null, |page| serde_json::from_str(&page).unwrap())
    }

    /// Changes the topology of the app `app`.
    pub fn change(&self, change: &Value) {
        let control = self.control();
        let body = json!({ "why": "a test", "change": change }).to_string();
        // More patient than processes are: on a machine that is busy with other tests a commit may wait for the disk.
        let endpoint = Outward::default().to(format!("127.0.0.1:{}", self.port).parse().unwrap()).patient(PATIENCE);
        let answer = HttpClient::new(endpoint).post(&control.path(["topologies", "app"]), &body).unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text().unwrap_or_default());
    }

    pub fn topology(&self) -> Value {
        self.get(&["topologies", "app"])
    }

    /// The instances by their slots, with all that is said of them.
    pub fn instances(&self) -> Vec<Value> {
        self.get(&["instances"])["instances"].as_array().cloned().unwrap_or_default()
    }

    pub fn job(&self, id: &str) -> Value {
        self.get(&["jobs", id])
    }

    /// A node that is to hold a slot.
    pub fn starts(&self, (replica, slot): (&str, &str), state: &Path, more: &[&str]) -> Node {
        let (url, state) = (self.url(), state.display().to_string());
        let place = ["--cluster", "--app", "app", "--replica", replica, "--slot", slot, "--zone", replica];
        let control = ["--control", &url, "--state-dir", &state, "--threads", "1"];
        Node::start(&[&place[..], &control, more].concat())
    }

    /// The same, once it holds it.
    pub fn node(&self, replica: &str, slot: &str, more: &[&str]) -> Node {
        let node = self.starts((replica, slot), &self.folder.path().join(format!("{slot}.state")), more);
        let address = node.address().to_string();
        until("it holds its slot", || self.topology().to_string().contains(&address));
        node
    }

    pub fn proxy(&self, state: &Path) -> Node {
        self.proxy_in("a", state)
    }

    /// One in a zone.
    pub fn proxy_in(&self, zone: &str, state: &Path) -> Node {
        let arguments =
            ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", "control:app", "--zone", zone, "--app", "app"];
        let mut command = moneta(&arguments);
        Node::run(command.args(["--control", &self.url(), "--state-dir"]).arg(state))
    }
}

/// What `/readyz` says at an admin address.
pub fn ready(admin: &str) -> Option<Value> {
    let endpoint = Endpoint::new(admin.parse().ok()?).patient(PATIENCE);
    serde_json::from_str(&HttpClient::new(endpoint).get("/readyz").send().ok()?.text().ok()?).ok()
}
