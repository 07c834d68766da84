//! `moneta warm`: fills a replica with what another one holds, as a job of the control plane; `moneta worker` does its tasks.
//!
//! ```text
//!  direct        copy-a0 ─┐                                 via an archive  dump-a0 ──files──> fill-a0 ─┐
//!                copy-a1 ─┴─> compare                                       dump-a1 ──files──> fill-a1 ─┴─> compare ──> tidy
//! ```
//! The target takes writes alone from the job's begin on, in the same commit, and answers reads again with its end.

pub mod copies;
mod direct;
mod files;
pub mod watching;
pub mod worker;

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_bulk::RateConfig;
use moneta_link::Control;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::moving::RateArgs;
use super::{archives, job};

/// The kind of jobs without files.
const DIRECT: &str = "warm";
/// The kind of jobs by files, which takes workers with the volume.
const BY_FILES: &str = "warm-files";
/// How long a worker may be silent, in seconds.
const LEASE_S: u32 = 15;
/// Failures of a task that fail the job: a node that is restarted is away for a while.
const TRIES: u32 = 6;
/// In place of a replica's name: the one that holds the most.
const MOST: &str = "most-items";
/// In place of a directory: none.
const NO_FILES: &str = "direct";

/// What is warmed, and how.
#[derive(Debug, Args)]
struct WarmArgs {
    /// The app
    #[arg(long, value_name = "APP")]
    app: String,
    /// The replica whose items are taken, or most-items: the one that holds the most
    #[arg(long, value_name = "REPLICA")]
    from: String,
    /// The replica that is filled. It answers no reads until the job is done
    #[arg(long, value_name = "REPLICA")]
    to: String,
    /// `direct`, or where files go, as `moneta dump` writes them: a directory or an object store; workers need it as a --volume
    #[arg(long, value_name = "DIRECTORY|URL|direct", default_value = NO_FILES)]
    via: String,
    /// Of each source node
    #[command(flatten)]
    rate: RateArgs,
    /// Keys of a hundred that the target may lack in the end: of nodes in RAM, some are evicted meanwhile
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    may_lack: f64,
    /// Return at once, and do not show how it goes
    #[arg(long)]
    detach: bool,
}

/// What a job says to its workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The replica whose items are taken.
    from: String,
    /// The replica that is filled.
    to: String,
    /// Its slot whose node alone is filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<String>,
    /// The directory or the object store for files, if it goes by files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    via: Option<String>,
    /// Bytes a second of each source; 0: as fast as it goes.
    #[serde(default)]
    rate: u64,
    /// Items and deletes a second of each source; 0: as many as it goes.
    #[serde(default)]
    operations: u64,
    /// How many times what it is in quiet the p99 of online gets may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p99_limit: Option<f64>,
    /// Keys of a hundred that the target may lack.
    #[serde(default)]
    may_lack: f64,
}

impl Order {
    fn rate(&self) -> RateConfig {
        RateConfig { bytes: self.rate, operations: self.operations, p99_limit: self.p99_limit }
    }
}

/// The subcommand.
pub fn command() -> Command {
    let command = WarmArgs::augment_args(Command::new("warm"));
    command.about("Fill a replica with what another one holds, while both serve: a job, done by `moneta worker`").after_help(
        "The exit status is 1 unless the job is done. Ended, this command leaves the job as it is: moneta job show, pause, resume, \
         cancel. See docs/warming.md.",
    )
}

/// Begins the job, and shows it to its end.
///
/// # Errors
/// If the control plane does not answer, or there are no such replicas.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let args = WarmArgs::from_arg_matches(matches)?;
    let control = job::of_command()?;
    let path = control.path(["topologies", args.app.as_str()]);
    let text = control.get(&path).with_context(|| format!("the topology of the app {}", args.app))?;
    let topology: Value = serde_json::from_str(&text)?;
    let from = if args.from == MOST { fullest(&control, &args.app, &topology, &args.to)? } else { args.from.clone() };
    let slots = slots(&topology, &from)?;
    slots_of(&topology, &args.to)?;
    if from == args.to {
        bail!("the replica {from} would be filled from itself");
    }
    if !(0.0..=100.0).contains(&args.may_lack) {
        bail!("--may-lack is 0 to 100");
    }
    let via = (args.via != NO_FILES).then(|| archives::in_common(&args.via).context("--via")).transpose()?;
    let kind = if via.is_some() { BY_FILES } else { DIRECT };
    let RateConfig { bytes: rate, operations, p99_limit } = args.rate.config()?;
    let order = Order { from, to: args.to, slot: None, via, rate, operations, p99_limit, may_lack: args.may_lack };
    let id = job::new_id("warm")?;
    job::begin(&control, &id, &asked(kind, &args.app, &order, &slots))?;
    writeln!(stdout().lock(), "job {id}: {} into {}, by {} tasks", order.from, order.to, slots.len())?;
    if args.detach { Ok(ExitCode::SUCCESS) } else { job::watch(&control, &id) }
}

fn slots_of<'a>(topology: &'a Value, replica: &str) -> anyhow::Result<&'a Vec<Value>> {
    let replicas = topology["replicas"].as_array().context("the topology has no replicas")?;
    let found = replicas.iter().find(|known| known["name"] == replica);
    let names: Vec<&str> = replicas.iter().filter_map(|known| known["name"].as_str()).collect();
    let found = found.with_context(|| format!("there is no replica {replica}, but {}", names.join(", ")))?;
    found["slots"].as_array().context("the replica has no slots")
}

fn slots(topology: &Value, replica: &str) -> anyhow::Result<Vec<String>> {
    Ok(slots_of(topology, replica)?.iter().filter_map(|slot| slot["slot"].as_str().map(str::to_owned)).collect())
}

/// The replica whose holders say that they have the most items.
fn fullest(control: &Control, app: &str, topology: &Value, but: &str) -> anyhow::Result<String> {
    let page: Value = serde_json::from_str(&control.get(&control.path(["instances"]))?)?;
    let instances = page["instances"].as_array().context("the answer has no instances")?;
    let items = |slot: &Value| {
        let holder = instances.iter().find(|known| known["app"] == app && known["id"] == slot["holder"]);
        holder.and_then(|known| known["vitals"]["items"].as_u64()).unwrap_or(0)
    };
    let replicas = topology["replicas"].as_array().context("the topology has no replicas")?;
    let others = replicas.iter().filter(|replica| replica["name"] != but && replica["write_only"] != true);
    let held = others.filter_map(|replica| {
        let held: u64 = replica["slots"].as_array()?.iter().map(items).sum();
        Some((held, replica["name"].as_str()?.to_owned()))
    });
    let (held, name) = held.max_by_key(|(held, _)| *held).context("there is no other replica that is read")?;
    if held == 0 {
        bail!("no other replica says that it holds anything: name one by --from");
    }
    Ok(name)
}

/// The job, as the control plane takes it.
fn asked(kind: &str, app: &str, order: &Order, slots: &[String]) -> Value {
    let mut tasks = Vec::new();
    let mut ends = Vec::new();
    // A slot's name may be what a task's may not be.
    for (number, slot) in slots.iter().enumerate() {
        let params = json!({ "slot": slot, "part": number });
        if kind == DIRECT {
            tasks.push(json!({ "name": format!("copy-{number}"), "params": params }));
            ends.push(format!("copy-{number}"));
        } else {
            let (dump, fill) = (format!("dump-{number}"), format!("fill-{number}"));
            tasks.push(json!({ "name": dump, "params": params, "until": [fill], "volume": order.via }));
            tasks.push(json!({ "name": fill, "params": params, "volume": order.via }));
            ends.extend([dump, fill]);
        }
    }
    tasks.push(json!({ "name": "compare", "after": ends }));
    if kind == BY_FILES {
        tasks.push(json!({ "name": "tidy", "after": ["compare"], "cleans": true, "volume": order.via }));
    }
    let write_only = |on: bool| json!([{ "write_only": { "replica": order.to, "on": on } }]);
    json!({
        "kind": kind, "app": app, "params": order, "lease_s": LEASE_S, "tries": TRIES, "tasks": tasks,
        "at_begin": write_only(true), "when_done": write_only(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(via: Option<String>) -> Order {
        Order {
            from: "a".into(),
            to: "b".into(),
            slot: None,
            via,
            rate: 0,
            operations: 0,
            p99_limit: Some(1.5),
            may_lack: 1.0,
        }
    }

    #[test]
    fn jobs_are_such_as_the_control_plane_takes() {
        let slots = ["a0".to_owned(), "10.0.0.1:11211/a slot".to_owned()];
        for (kind, via, count) in [(DIRECT, None, 3), (BY_FILES, Some("/d".into()), 6)] {
            let order = order(via);
            let value = asked(kind, "feed", &order, &slots);
            let job = moneta_control::jobs::document::Job::read(value.to_string().as_bytes()).unwrap();
            assert_eq!(job.tasks.len(), count);
            assert_eq!(serde_json::from_value::<Order>(job.params).unwrap(), order);
        }
    }

    #[test]
    fn of_other_replicas_slots_are_those_of_the_topology() {
        let topology = json!({ "replicas": [{ "name": "a", "slots": [{ "slot": "a0" }, { "slot": "a1" }] }] });
        assert_eq!(slots(&topology, "a").unwrap(), ["a0", "a1"]);
        assert!(slots(&topology, "b").unwrap_err().to_string().contains("no replica b, but a"));
    }
}
