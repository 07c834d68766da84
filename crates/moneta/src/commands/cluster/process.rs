//! The processes of a cluster for trying: started in the background, found by their files of process numbers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::admin;
use super::certificates::Certificates;
use super::plan::{Plan, Process, TOPOLOGY};
use super::plane::Plane;
use super::traces::{last_line, pid_of};
use super::users::Users;
use crate::drain;

/// How long a process may take to be ready, or to end: a node that reads its SSD tier takes a while.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

fn file(dir: &Path, process: &Process, extension: &str) -> PathBuf {
    dir.join(format!("{}.{extension}", process.name))
}

/// The file with the process's number.
pub fn pid_file(dir: &Path, process: &Process) -> PathBuf {
    file(dir, process, "pid")
}

/// The process's number, if it runs.
pub fn pid(dir: &Path, process: &Process) -> Option<Pid> {
    let path = pid_file(dir, process);
    pid_of(&path, &path)
}

/// Starts it, and waits until it listens.
pub fn start(dir: &Path, plan: &Plan, process: &Process) -> anyhow::Result<()> {
    let log = file(dir, process, "log");
    let open = || File::options().create(true).append(true).open(&log).with_context(|| log.display().to_string());
    let pid_file = pid_file(dir, process);
    // Of one that was killed.
    let _ = fs::remove_file(&pid_file);

    let mut command = Command::new(std::env::current_exe().context("the program has no path")?);
    // The environment's options are for the command that the user runs.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MONETA_")) {
        command.env_remove(name);
    }
    command.arg(if process.proxy { "proxy" } else { "serve" }).arg("--daemon").arg("--pidfile").arg(&pid_file);
    command.args(["--listen", "127.0.0.1", "--threads", "1", "--port", &process.port.to_string()]);
    command.args(["--admin", &process.admin_address(), "--writer-id", &process.writer.to_string()]);
    if plan.region > 0 {
        command.args(["--region-id", &plan.region.to_string(), "--region", &plan.region_name()]);
    }
    let plane = Plane::of(dir, plan);
    command.args(plane.iter().flat_map(|plane| plane.options(process)));
    if process.proxy {
        if plane.is_none() {
            command.arg("--topology").arg(dir.join(TOPOLOGY)).args(["--zone", &process.zone]);
        }
        command.arg("--hint-dir").arg(file(dir, process, "hints"));
    } else {
        let tier = format!("{}:{}", file(dir, process, "ssd").display(), plan.sizes.flash);
        command.args(["--cluster", "--memory", &plan.sizes.memory, "--flash", &tier]);
        if plane.is_none() {
            command.arg("--catch-up").arg(dir.join(TOPOLOGY));
        }
    }
    if plan.tls {
        command.args(Certificates::of(dir).options(process));
    }
    if plan.users {
        command.args(Users(dir).options(process));
    }
    let status = command.stdin(Stdio::null()).stdout(open()?).stderr(open()?).status()?;
    if !status.success() {
        bail!("{} does not start: {}", process.name, last_line(&log));
    }
    Ok(())
}

/// Waits until it says that it is ready, or waits as a spare.
pub fn wait_until_ready(dir: &Path, process: &Process) -> anyhow::Result<()> {
    let from = Instant::now();
    loop {
        // One that is drained serves; one whose slot another process has is not ready until that is gone.
        let is_drained = |ready: &admin::Ready| ready.notes.iter().any(|note| note.starts_with(drain::NOTE));
        let is_as_it_can_be = |ready: &admin::Ready| ready.ready || ready.is_spare() || is_drained(ready);
        if admin::ready(&process.admin_address()).is_ok_and(|ready| is_as_it_can_be(&ready)) {
            return Ok(());
        }
        let log = file(dir, process, "log");
        if pid(dir, process).is_none() {
            bail!("{} has ended: {}", process.name, last_line(&log));
        }
        if from.elapsed() > PATIENCE {
            bail!("{} is not ready after {PATIENCE:?}; its log is {}", process.name, log.display());
        }
        sleep(POLL);
    }
}

/// Ends it, and waits for that.
pub fn stop(dir: &Path, process: &Process, running: Pid) -> anyhow::Result<()> {
    tell(process, running)?;
    wait_for_end(dir, process, running)
}

/// Tells it to end.
pub fn tell(process: &Process, running: Pid) -> anyhow::Result<()> {
    kill(running, Signal::SIGTERM).with_context(|| format!("{} cannot be told to end", process.name))
}

/// Waits for the end of one that was told to.
pub fn wait_for_end(dir: &Path, process: &Process, running: Pid) -> anyhow::Result<()> {
    let from = Instant::now();
    while pid(dir, process).is_some() || holds_files(running) {
        if from.elapsed() > PATIENCE {
            bail!("{} (process {running}) has not ended after {PATIENCE:?}", process.name);
        }
        sleep(POLL);
    }
    // One that was killed in between leaves it.
    let _ = fs::remove_file(pid_file(dir, process));
    Ok(())
}

/// Whether a process may still have files open, and so locks: until it is gone, or waits for its parent alone.
fn holds_files(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
