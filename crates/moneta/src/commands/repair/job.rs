//! A repair as a job of the control plane: begun by `moneta repair --app`, done by `moneta worker`.
//!
//! The job has one task. Its checkpoint holds the progress and the findings: the worker that takes it over continues from there.

use std::io::{self, Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use moneta_cluster::sources::{GuardConfig, Guarded, TopologySource};
use moneta_link::worker::{End, Held, Word};
use moneta_link::{ControlSource, ControlUrl, Epochs};
use moneta_repair::done::Done;
use moneta_repair::{Goal, RepairConfig, Report, Watch};
use moneta_store::Clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::args::RepairArgs;
use super::pair::Pair;
use super::words::in_words;
use crate::commands::job;
use crate::{outward, proxy};

/// The kind of these jobs.
pub const REPAIR: &str = "repair";
/// How long a worker may be silent, in seconds.
const LEASE_S: u32 = 15;
/// Failures that fail the job: a node that is restarted is away for a while.
const TRIES: u32 = 6;

/// What a job says to its worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    /// The replica that is compared.
    a: String,
    /// The other one.
    b: String,
    /// Servers of the control plane that has the other one's topology; none: it is of the same one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    to_control: Vec<String>,
    /// What was made then or later, in milliseconds since the Unix epoch; 0: all.
    #[serde(default)]
    since: u64,
    /// What was made less than so many seconds ago is left out.
    lag: u64,
    /// In how many buckets.
    buckets: u32,
    /// Only keys that begin so.
    #[serde(default)]
    prefix: String,
    /// Keys a second; 0: no bound.
    #[serde(default)]
    rate: u64,
}

impl Order {
    fn of(args: &RepairArgs) -> Self {
        Self {
            a: args.a.clone(),
            b: args.b.clone(),
            to_control: args.to_control.iter().map(ToString::to_string).collect(),
            since: args.since_moment().unwrap_or(0),
            lag: args.lag,
            buckets: args.buckets,
            prefix: args.prefix.clone(),
            rate: args.rate,
        }
    }

    /// Whether both repair the same, since whenever.
    fn is_like(&self, other: &Self) -> bool {
        *self == Self { since: self.since, ..other.clone() } && (self.since == 0) == (other.since == 0)
    }

    /// Whether a repair like this one looks at all that the other one is to look at.
    fn covers(&self, other: &Self) -> bool {
        self.is_like(other) && self.since <= other.since
    }
}

/// What a worker keeps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Checkpoint {
    /// For people.
    text: String,
    done: Option<Done>,
    report: Report,
}

/// Begins the job, and shows it to its end. One of the same that is open, and looks as far back, is gone on with; in place of
/// one that has failed another is begun, which looks back as far as that one did.
///
/// # Errors
/// If the control plane does not answer, or refuses.
pub fn begin(args: &RepairArgs, app: &str) -> anyhow::Result<ExitCode> {
    let control = job::of_command()?;
    let mut order = Order::of(args);
    for page in job::all(&control)? {
        let id = page["id"].as_str().unwrap_or_default();
        let state = page["state"].as_str().unwrap_or_default();
        if page["kind"] != REPAIR || page["app"] != app || matches!(state, "done" | "cancelled" | "cancelling") {
            continue;
        }
        let before: Option<Order> = serde_json::from_value(job::one(&control, id)?["params"].clone()).ok();
        let Some(before) = before.filter(|before| before.is_like(&order)) else { continue };
        if state == "failed" {
            order.since = order.since.min(before.since);
            job::steer(&control, id, "cancel", "begun anew")?;
            writeln!(stdout().lock(), "the job {id} has failed: begun anew, as far back as that")?;
            continue;
        }
        if !before.covers(&order) {
            writeln!(stdout().lock(), "job {id}, which is {state}, does not look as far back: another one is begun")?;
            continue;
        }
        writeln!(stdout().lock(), "job {id}, which is {state}, repairs the same")?;
        return if args.detach { Ok(ExitCode::SUCCESS) } else { job::watch(&control, id) };
    }
    let id = job::new_id(REPAIR)?;
    let asked = json!({
        "kind": REPAIR, "app": app, "params": order, "lease_s": LEASE_S, "tries": TRIES, "tasks": [{ "name": REPAIR }],
    });
    job::begin(&control, &id, &asked)?;
    writeln!(stdout().lock(), "job {id}: {} and {} of the app {app}", order.a, order.b)?;
    if args.detach { Ok(ExitCode::SUCCESS) } else { job::watch(&control, &id) }
}

/// Does the task of such a job.
///
/// # Errors
/// If a node tells no digest, the job is not understood, or keys could not be repaired as a node failed.
pub fn work(held: &Held, stop: &dyn Fn() -> bool) -> anyhow::Result<End> {
    let order: Order = serde_json::from_value(held.given.params.clone()).context("the job is not understood")?;
    // One of another build begins anew.
    let before: Checkpoint = serde_json::from_value(held.given.checkpoint.clone()).unwrap_or_default();
    let config = RepairConfig {
        goal: if order.since == 0 { Goal::Full } else { Goal::Since(order.since) },
        lag: Duration::from_secs(order.lag),
        buckets: order.buckets,
        prefix: order.prefix.clone(),
        rate: order.rate,
        only_looks: false,
        takes_rollbacks: order.to_control.is_empty(),
        done: before.done,
    };
    let pair = pair(&order, &held.given.app)?;
    let ended = moneta_repair::repair(&pair.a, &pair.b, &config, &Working { held, stop, before: &before.report });
    pair.close();
    let found = ended?;
    if !found.done {
        return Ok(End::Released);
    }
    let report = found.after(&before.report);
    let text = in_words(&report, false).replace('\n', "; ");
    held.checkpoint(&json!(Checkpoint { text, done: None, report }), stop)?;
    if found.failed > 0 {
        bail!("{} keys are not repaired, as a node failed", found.failed);
    }
    Ok(End::Done)
}

/// Both sides as their topologies are now.
fn pair(order: &Order, app: &str) -> anyhow::Result<Pair> {
    let here = proxy::topology(&format!("control:{app}"))?;
    let outward = outward::of_command();
    let clock = Arc::new(Clock::system());
    if order.to_control.is_empty() {
        return Pair::of_copies(&here, &order.a, &order.b, &outward, &clock);
    }
    let urls = order.to_control.iter().map(|url| url.parse()).collect::<Result<Vec<ControlUrl>, _>>();
    let control = outward::control_at(&urls.context("to_control")?);
    let source = Box::new(ControlSource::new(Arc::new(control), app, Epochs::default())?) as Box<dyn TopologySource>;
    let there = Guarded::new(source, GuardConfig::default()).first(proxy::FIRST).context("to_control")?;
    Pair::of_regions((&here, Some(&order.a)), (&there, Some(&order.b)), &outward, &clock)
}

struct Working<'a> {
    held: &'a Held,
    stop: &'a dyn Fn() -> bool,
    /// What others found before.
    before: &'a Report,
}

impl Watch for Working<'_> {
    fn note(&self, text: &str) {
        self.held.progress(json!({ "text": text }));
    }

    fn should_stop(&self) -> bool {
        self.held.word() != Word::Go || (self.stop)()
    }

    fn keep(&self, done: Option<&Done>, report: &Report) -> io::Result<()> {
        // Its end is told with all that was found.
        let Some(done) = done else { return Ok(()) };
        let report = report.after(self.before);
        let text =
            format!("{} keys repaired; buckets up to {} of {}", report.repaired(), done.below, done.span.buckets);
        let kept: Value = json!(Checkpoint { text, done: Some(done.clone()), report });
        self.held.progress(json!({ "text": kept["text"] }));
        match self.held.checkpoint(&kept, || self.should_stop()) {
            Ok(_) => Ok(()),
            // The next one goes on at the checkpoint of before.
            Err(_) if self.should_stop() => Ok(()),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_alike_that_differ_in_since_when_alone() {
        let order = |a: &str, since| Order {
            a: a.to_owned(),
            b: "b".to_owned(),
            to_control: Vec::new(),
            since,
            lag: 30,
            buckets: 4096,
            prefix: String::new(),
            rate: 0,
        };
        assert!(order("a", 5).is_like(&order("a", 9)) && order("a", 0).is_like(&order("a", 0)));
        assert!(!order("a", 5).is_like(&order("c", 5)) && !order("a", 0).is_like(&order("a", 9)));
        assert!(order("a", 5).covers(&order("a", 9)) && order("a", 5).covers(&order("a", 5)));
        assert!(!order("a", 9).covers(&order("a", 5)) && !order("a", 5).covers(&order("c", 9)));
    }
}
