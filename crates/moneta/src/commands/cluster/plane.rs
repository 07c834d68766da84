//! The control plane of a cluster for trying: one process, whose ledger is in the cluster's folder.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_link::{Control, ControlError, ControlUrl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::admin;
use super::certificates::Certificates;
use super::plan::{APP, CONTROL as NAME, HOST, Plan, Process};
use super::traces::{last_line, pid_of};
use super::users::Users;
use crate::outward;

/// How often processes renew, in seconds: what has ended is to be seen soon.
const RENEW_EVERY: &str = "5";
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A control plane on a port of this machine.
pub struct Plane<'a> {
    dir: &'a Path,
    port: u16,
    tls: bool,
}

impl<'a> Plane<'a> {
    /// The one of a plan, if it has one: plans of older builds have none.
    pub fn of(dir: &'a Path, plan: &Plan) -> Option<Self> {
        plan.control.map(|port| Self { dir, port, tls: plan.tls })
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("{HOST}:{}", self.port)
    }

    /// How it is asked.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address())
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.dir.join(format!("{NAME}.{extension}"))
    }

    /// The folder of its ledger, which no other process was started with.
    fn data(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// Its process number, if it runs.
    pub fn pid(&self) -> Option<Pid> {
        pid_of(&self.file("pid"), &self.data())
    }

    /// Starts it if it does not run, and waits until it is ready and has the topology of the plan's nodes.
    pub fn start(&self, plan: &Plan) -> anyhow::Result<()> {
        let mut child = if self.pid().is_none() { Some(self.spawn()?) } else { None };
        // One that has just been started may have no arguments yet, as the kernel tells: it is asked for by its parent.
        let mut has_ended = || match &mut child {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_some()),
            None => self.pid().is_none(),
        };
        let from = Instant::now();
        while !admin::ready(&self.address()).is_ok_and(|ready| ready.ready) {
            if has_ended() {
                bail!("{NAME} has ended: {}", last_line(&self.file("log")));
            }
            if from.elapsed() > PATIENCE {
                bail!("{NAME} is not ready after {PATIENCE:?}; its log is {}", self.file("log").display());
            }
            sleep(POLL);
        }
        self.create(plan)
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = self.file("log");
        let open = || File::options().create(true).append(true).open(&log).with_context(|| log.display().to_string());
        let mut command = Command::new(std::env::current_exe().context("the program has no path")?);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MONETA_")) {
            command.env_remove(name);
        }
        command.args([NAME, "--listen", &self.address(), "--renew-every", RENEW_EVERY]);
        command.arg("--data").arg(self.data());
        if self.tls {
            command.args(Certificates::of(self.dir).of_control()).args(Users(self.dir).of_control());
        }
        // Of its own group, so that it does not end with what is typed at this command.
        let child = command.stdin(Stdio::null()).stdout(open()?).stderr(open()?).process_group(0).spawn()?;
        let pid_file = self.file("pid");
        fs::write(&pid_file, format!("{}\n", child.id())).with_context(|| pid_file.display().to_string())?;
        Ok(child)
    }

    /// Makes the topology, unless there is one: slots by name, which the nodes take when they register.
    fn create(&self, plan: &Plan) -> anyhow::Result<()> {
        let control = self.control()?;
        let path = control.path(["topologies", APP]);
        match control.get(&path) {
            Ok(_) => return Ok(()),
            Err(ControlError::Refused { status: 404, .. }) => {}
            Err(error) => return Err(error).context("the control plane does not say its topology"),
        }
        let zones = plan.zones();
        let slots = |zone: &str| -> Vec<&str> {
            let nodes = plan.processes.iter().filter(|process| !process.proxy && process.zone == zone);
            nodes.map(|process| process.name.as_str()).collect()
        };
        let replicas: Vec<Value> =
            zones.iter().map(|zone| json!({"name": zone, "zone": zone, "slots": slots(zone)})).collect();
        let body = json!({"why": "moneta cluster up", "change": {"create": {"replicas": replicas}}});
        control.post(&path, &body.to_string()).context("the control plane takes no topology")?;
        Ok(())
    }

    /// Asks it.
    pub fn control(&self) -> anyhow::Result<Control> {
        let url: ControlUrl = self.url().parse()?;
        Ok(Control::new(&[url], &outward::of_command(), "default"))
    }

    /// The options of a process that takes everything from it.
    pub fn options(&self, process: &Process) -> Vec<OsString> {
        let state = self.dir.join(format!("{}.state", process.name));
        let mut options: Vec<OsString> =
            ["--control", &self.url(), "--app", APP, "--zone", &process.zone].map(OsString::from).into();
        options.extend(["--state-dir".into(), state.into_os_string()]);
        let topology = format!("control:{APP}");
        let own = match process.proxy {
            true => vec!["--topology", &topology],
            false => vec!["--replica", &process.zone, "--slot", &process.name, "--catch-up", &topology],
        };
        options.extend(own.into_iter().map(OsString::from));
        options
    }

    /// What it knows of the processes, a line: how many have which status, and the epoch of the topology.
    pub fn summary(&self) -> anyhow::Result<String> {
        let control = self.control()?;
        let read = |path: &str| -> anyhow::Result<Value> { Ok(serde_json::from_str(&control.get(path)?)?) };
        let epoch = read(&control.path(["topologies", APP]))?["epoch"].clone();
        let instances = read(&control.path(["instances"]))?;
        let mut by_status = std::collections::BTreeMap::<String, usize>::new();
        for instance in instances["instances"].as_array().into_iter().flatten() {
            let status = match instance["state"].as_str() {
                Some(state @ ("suspect" | "away")) => state,
                _ => instance["value"]["effective"].as_str().or(instance["value"]["status"].as_str()).unwrap_or("?"),
            };
            *by_status.entry(status.to_owned()).or_default() += 1;
        }
        let counts: Vec<String> = by_status.iter().map(|(status, count)| format!("{count} {status}")).collect();
        let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        Ok(format!("epoch {epoch}, instances: {counts}"))
    }

    /// Ends it, if it runs.
    pub fn stop(&self) -> anyhow::Result<bool> {
        let Some(pid) = self.pid() else { return Ok(false) };
        kill(pid, Signal::SIGTERM).with_context(|| format!("{NAME} cannot be told to end"))?;
        let from = Instant::now();
        while self.pid().is_some() {
            if from.elapsed() > PATIENCE {
                bail!("{NAME} (process {pid}) has not ended after {PATIENCE:?}");
            }
            sleep(POLL);
        }
        let _ = fs::remove_file(self.file("pid"));
        Ok(true)
    }
}
