//! `moneta job`: shows the jobs of a control plane, and tells them to pause, go on or end.

use std::fmt::Write as _;
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use moneta_link::{Control, ControlError};
use serde_json::{Value, json};

use super::safe;
use crate::outward;

/// How often a job is looked at that is watched.
const LOOK: Duration = Duration::from_secs(1);
/// How long a job may have no worker before that is said.
const WORKERLESS: Duration = Duration::from_secs(10);

/// The subcommand.
pub fn command() -> Command {
    let id = || Arg::new("id").value_name("JOB").required(true).help("Its name, as `moneta job list` has it");
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON");
    let why = || Arg::new("why").long("why").value_name("TEXT").default_value("").help("Why, for the audit");
    let steer = |name: &'static str, about: &'static str| Command::new(name).about(about).args([id(), why()]);
    Command::new("job")
        .about("Show, pause, resume and cancel the jobs of a control plane")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("list").about("All jobs, the latest first").arg(json()))
        .subcommand(
            Command::new("show")
                .about("A job with its tasks: who does them, and how far they are")
                .args([id(), json()]),
        )
        .subcommand(
            Command::new("watch")
                .about("Show a job as it goes, until it is over; the exit status is 1 unless it is done then")
                .arg(id()),
        )
        .subcommand(steer("pause", "Give out no task; workers write down how far they are, and stop"))
        .subcommand(steer("resume", "Go on with what is paused or has failed"))
        .subcommand(steer("cancel", "End it; what it has done stays"))
}

/// Runs it.
///
/// # Errors
/// If the control plane does not answer, or says no.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some((what, of)) = matches.subcommand() else { unreachable!("clap asks for one") };
    let control = of_command()?;
    let id = || of.get_one::<String>("id").context("clap asks for it");
    match what {
        "list" if of.get_flag("json") => println(&serde_json::to_string_pretty(&all(&control)?)?)?,
        "list" => println(table(&all(&control)?).trim_end())?,
        "show" if of.get_flag("json") => println(&serde_json::to_string_pretty(&one(&control, id()?)?)?)?,
        "show" => println(shown(&one(&control, id()?)?).trim_end())?,
        "watch" => return watch(&control, id()?),
        order => {
            let why = of.get_one::<String>("why").map_or("", String::as_str);
            let page = steer(&control, id()?, order, why)?;
            println(&format!("{} is {}", id()?, page["state"].as_str().unwrap_or("?")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn println(text: &str) -> anyhow::Result<()> {
    writeln!(stdout().lock(), "{text}").map_err(Into::into)
}

/// The control plane that this command was told of.
///
/// # Errors
/// If it was told of none.
pub fn of_command() -> anyhow::Result<Control> {
    outward::control_of_command().context("--control URL (or MONETA_CONTROL) says which control plane is asked")
}

/// A name for a job that no other has.
///
/// # Errors
/// If the system has no randomness.
pub fn new_id(kind: &str) -> anyhow::Result<String> {
    let random = getrandom::u32().map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(format!("{kind}-{random:08x}"))
}

/// Begins a job; one that is there already, and asks for the same, is left as it is.
///
/// # Errors
/// If the control plane does not answer, or says no.
pub fn begin(control: &Control, id: &str, asked: &Value) -> anyhow::Result<()> {
    control.put(&control.path(["jobs", id]), &asked.to_string()).context("the job does not begin")?;
    Ok(())
}

/// All jobs in short, the latest first.
///
/// # Errors
/// If the control plane does not answer, or says no.
pub fn all(control: &Control) -> anyhow::Result<Vec<Value>> {
    let page: Value = serde_json::from_str(&control.get(&control.path(["jobs"]))?)?;
    Ok(page["jobs"].as_array().cloned().unwrap_or_default())
}

/// A job with its tasks.
///
/// # Errors
/// If the control plane does not answer, or has no such job.
pub fn one(control: &Control, id: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&control.get(&control.path(["jobs", id]))?)?)
}

/// Tells a job to `pause`, `resume` or `cancel`; returns how it stands then.
///
/// # Errors
/// If the control plane does not answer, or says no.
pub fn steer(control: &Control, id: &str, order: &str, why: &str) -> anyhow::Result<Value> {
    let body = json!({ "order": order, "why": why }).to_string();
    Ok(serde_json::from_str(&control.post(&control.path(["jobs", id]), &body)?)?)
}

/// Shows a job line by line until it is over.
///
/// # Errors
/// If the control plane refuses; where it does not answer, it is asked again.
pub fn watch(control: &Control, id: &str) -> anyhow::Result<ExitCode> {
    let mut last = String::new();
    let (begun, mut has_worker) = (Instant::now(), false);
    loop {
        let read = control.get(&control.path(["jobs", id]));
        let page: Value = match read {
            Ok(text) => serde_json::from_str(&text)?,
            Err(ControlError::Unreachable(_) | ControlError::Refused { status: 500.., .. }) => {
                sleep(LOOK);
                continue;
            }
            Err(error) => bail!(error),
        };
        let text = shown(&page);
        for line in text.lines().filter(|line| !last.lines().any(|before| before == *line)) {
            println(line)?;
        }
        last = text;
        if !has_worker && begun.elapsed() >= WORKERLESS {
            has_worker = true;
            no_worker(&page).map_or(Ok(()), |words| println(&words))?;
        }
        match page["state"].as_str() {
            Some("done") => return Ok(ExitCode::SUCCESS),
            Some("cancelled" | "failed") => return Ok(ExitCode::FAILURE),
            _ => sleep(LOOK),
        }
    }
}

/// Said of a job of which no worker has taken a task.
fn no_worker(page: &Value) -> Option<String> {
    let page = &safe::page(page);
    let tasks = page["tasks"].as_array()?;
    if page["state"] != "running" || tasks.iter().any(|task| task["state"] != "waiting") {
        return None;
    }
    let volume = tasks.iter().find_map(|task| task["volume"].as_str());
    let volume = volume.map(|volume| format!(" with --volume {volume}")).unwrap_or_default();
    Some(format!("no worker has taken a task yet: is there one of the app {}{volume}?", word(page, "app")))
}

fn word<'a>(page: &'a Value, name: &str) -> &'a str {
    page[name].as_str().unwrap_or("")
}

fn table(jobs: &[Value]) -> String {
    let mut text = format!("{:<22} {:<12} {:<11} {:>9}  {}\n", "job", "app", "state", "done", "why");
    for job in jobs.iter().map(safe::page) {
        let job = &job;
        let done = format!("{}/{}", job["done"], job["tasks"]);
        let why = word(job, "why");
        let _ = writeln!(
            text,
            "{:<22} {:<12} {:<11} {done:>9}  {why}",
            word(job, "id"),
            word(job, "app"),
            word(job, "state")
        );
    }
    text
}

fn shown(job: &Value) -> String {
    let job = &safe::page(job);
    let mut text = format!("{} of the app {}: {}", word(job, "id"), word(job, "app"), word(job, "state"));
    for (before, name) in [(", ", "why"), (", begun by ", "by")] {
        if !word(job, name).is_empty() {
            let _ = write!(text, "{before}{}", word(job, name));
        }
    }
    text.push('\n');
    for task in job["tasks"].as_array().into_iter().flatten() {
        let mut state = word(task, "state").to_owned();
        if task["live"] == false {
            let seconds = task["seen_ms_ago"].as_u64().unwrap_or(0) / 1000;
            let _ = write!(state, ", silent for {seconds} s");
        }
        let _ = write!(text, "  {:<20} {state:<10}", word(task, "name"));
        if let Some(worker) = task["worker"].as_str().filter(|_| word(task, "state") == "running") {
            let _ = write!(text, " by {worker}");
        }
        let progress = if task["progress"].is_null() { &task["checkpoint"] } else { &task["progress"] };
        match progress {
            Value::Null => {}
            Value::Object(of) if of.contains_key("text") => {
                let _ = write!(text, " {}", word(progress, "text"));
            }
            other => {
                let _ = write!(text, " {other}");
            }
        }
        if !word(task, "why").is_empty() && word(task, "state") != "done" {
            let _ = write!(text, " ({})", word(task, "why"));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_shown_with_what_its_tasks_say() {
        let job = json!({ "id": "roll-1", "app": "default", "state": "running", "tasks": [
            { "name": "a0", "state": "done", "worker": "w", "checkpoint": { "held": 7 } },
            { "name": "a1", "state": "running", "worker": "w", "live": false, "seen_ms_ago": 12_345,
                "progress": { "text": "restarting" } },
            { "name": "a2", "state": "waiting", "why": "it does not come back" } ] });
        assert_eq!(
            shown(&job),
            "roll-1 of the app default: running\n  a0                   done       {\"held\":7}\n  \
             a1                   running, silent for 12 s by w restarting\n  a2                   waiting    (it does not come back)\n"
        );
    }
}
