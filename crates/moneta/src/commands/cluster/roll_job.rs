//! `moneta cluster roll` as a job of the control plane: a task a node, one after the other, done by the command itself.
//!
//! The folder is locked by the command, so that no other one rolls it: under its one name it takes a task that it had when it was
//! killed at once, and not after a lease.

use std::cell::Cell;
use std::io::{Write, stdout};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail};
use moneta_link::worker::{End, Held, Word, Worker};
use moneta_link::{Control, ControlError};
use serde_json::json;

use super::plan::{APP, Plan};
use super::plane::Plane;
use super::process;
use super::roll::{Before, Member, Owner, RollArgs, restart, roll};
use crate::commands::job;

const KIND: &str = "roll";
/// How long the command may be silent, in seconds.
const LEASE_S: u64 = 10;
/// How often it is looked whether a job goes on.
const LOOK: Duration = Duration::from_millis(500);

/// Restarts the nodes of a cluster for trying, by the folder that it is in.
///
/// # Errors
/// If a process is not ready before another one is restarted, does not end, or does not come back.
pub fn of_folder(args: &RollArgs, dir: &Path, plan: &Plan) -> anyhow::Result<()> {
    let nodes = plan.processes.iter().filter(|process| !process.proxy).map(|process| Member {
        name: process.name.clone(),
        admin: process.admin_address(),
        restart: Box::new(move || {
            if let Some(running) = process::pid(dir, process) {
                process::stop(dir, process, running)?;
            }
            process::start(dir, plan, process)
        }),
    });
    let proxies = plan.processes.iter().filter(|process| process.proxy).map(|process| process.admin_address());
    let (nodes, proxies) = (nodes.collect::<Vec<_>>(), proxies.collect::<Vec<_>>());
    match Plane::of(dir, plan).filter(|plane| plane.pid().is_some()) {
        Some(plane) => as_job(plane.control()?, &nodes, &proxies, args),
        None => roll(&nodes, &proxies, args),
    }
}

/// Restarts all nodes: as a job that is open, or a new one.
///
/// # Errors
/// If a node does not come back, or the job is cancelled. The job stays, and the next command goes on with it.
fn as_job(control: Control, members: &[Member<'_>], proxies: &[String], args: &RollArgs) -> anyhow::Result<()> {
    let control = Arc::new(control);
    let id = begin(&control, members, args)?;
    let worker = Worker {
        control: Arc::clone(&control),
        name: KIND.into(),
        kinds: vec![KIND.into()],
        volumes: Vec::new(),
        app: None,
        job: Some(id),
    };
    let id = worker.job.as_deref().unwrap_or_default();
    let mut told = None;
    loop {
        let claimed = match worker.claim() {
            Ok(claimed) => claimed,
            // It comes back, or its operator ends this.
            Err(ControlError::Unreachable(_) | ControlError::Refused { status: 500.., .. }) => {
                tell_once(&mut told, "the control plane does not answer: waiting for it")?;
                sleep(LOOK);
                continue;
            }
            Err(error) => return Err(error).context("the control plane gives no task"),
        };
        if let Some(held) = claimed {
            told = None;
            work(held, members, proxies, args)?;
            continue;
        }
        let Ok(page) = job::one(&control, id) else {
            sleep(LOOK);
            continue;
        };
        match page["state"].as_str() {
            Some("done") => break,
            Some("failed") => bail!("{}", page["why"].as_str().unwrap_or_default()),
            Some("cancelling" | "cancelled") => bail!("the job {id} was cancelled"),
            Some("paused") => {
                tell_once(&mut told, &format!("paused; it goes on with `moneta job resume {id}`"))?;
            }
            _ => {}
        }
        sleep(LOOK);
    }
    writeln!(stdout().lock(), "{} nodes restarted", members.len())?;
    Ok(())
}

fn tell_once(told: &mut Option<String>, text: &str) -> anyhow::Result<()> {
    if told.as_deref() != Some(text) {
        writeln!(stdout().lock(), "{text}")?;
        *told = Some(text.to_owned());
    }
    Ok(())
}

/// The job that is open, which failed before perhaps, or a new one; its id.
fn begin(control: &Control, members: &[Member<'_>], args: &RollArgs) -> anyhow::Result<String> {
    for page in job::all(control)? {
        let id = page["id"].as_str().unwrap_or_default();
        let state = page["state"].as_str().unwrap_or_default();
        if page["kind"] != KIND || page["app"] != APP || matches!(state, "done" | "cancelled" | "cancelling") {
            continue;
        }
        if args.anew {
            job::steer(control, id, "cancel", "begun anew")?;
            continue;
        }
        writeln!(
            stdout().lock(),
            "going on with the job {id}, which is {state}; --anew would begin with the first node"
        )?;
        if state == "failed" {
            job::steer(control, id, "resume", "moneta cluster roll")?;
        }
        return Ok(id.to_owned());
    }
    let mut before: Vec<&str> = Vec::new();
    let mut tasks = Vec::new();
    for member in members {
        tasks.push(json!({ "name": member.name, "after": before }));
        before = vec![&member.name];
    }
    // What does not come back is not tried once more by itself: someone looks first.
    let asked = json!({ "kind": KIND, "app": APP, "lease_s": LEASE_S, "tries": 1, "tasks": tasks });
    let id = job::new_id(KIND)?;
    job::begin(control, &id, &asked)?;
    writeln!(stdout().lock(), "job {id}: moneta job show {id} --control {}", control.name())?;
    Ok(id)
}

/// Restarts the node of a task.
fn work(held: Held, members: &[Member<'_>], proxies: &[String], args: &RollArgs) -> anyhow::Result<()> {
    let Some(member) = members.iter().find(|member| member.name == held.given.task) else {
        let why = format!("{} is no node of this folder", held.given.task);
        held.end(&End::Failed(why.clone()), || false)?;
        bail!("{why}");
    };
    let owner = ByJob { held: &held, is_begun: Cell::new(false) };
    let restarted = restart(member, members, proxies, args, &owner);
    let end = match &restarted {
        Ok(true) => End::Done,
        Ok(false) => End::Released,
        Err(error) => End::Failed(format!("{error:#}")),
    };
    held.end(&end, || restarted.is_err())?;
    restarted.map(drop)
}

/// The task as the owner of the restart.
struct ByJob<'a> {
    held: &'a Held,
    is_begun: Cell<bool>,
}

impl Owner for ByJob<'_> {
    fn known(&self) -> Option<Before> {
        serde_json::from_value(self.held.given.checkpoint.clone()).ok()
    }

    fn restarts(&self, before: Before) -> anyhow::Result<bool> {
        // Of a node that is down, that it is being restarted must be known to whoever goes on; and nobody else may be at it.
        let word = self.held.checkpoint(&json!(before), || false).context("the control plane takes no checkpoint")?;
        let may = word == Word::Go && self.held.is_sure();
        self.is_begun.set(may);
        if may {
            self.held.progress(json!({ "text": "restarting" }));
        }
        Ok(may)
    }

    fn waits(&self, what: &str) {
        let text: String = what.chars().take(200).collect();
        let is_begun = self.is_begun.get() || self.known().is_some();
        self.held.progress(json!({ "text": text, "restarted": is_begun }));
    }

    fn is_stopped(&self) -> bool {
        self.held.word() != Word::Go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_of_a_node_is_read_again() {
        let text = r#"{"started":1732550000.25,"held":7}"#;
        let before: Before = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(text).unwrap(), json!(before));
        assert!(serde_json::from_value::<Before>(serde_json::Value::Null).is_err());
    }
}
