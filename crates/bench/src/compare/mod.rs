//! Two servers in turn on the same load: A B A B …, so that what drifts on the machine touches both alike.

mod nodes;
mod pairs;
mod round;
mod summary;

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

pub use nodes::{NodeSettings, Nodes};
pub use pairs::Paired;
pub use round::{Figure, Run, Side};
pub use summary::{Comparison, Metric};

use crate::affinity::pin_this_thread;
use crate::capacity;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{self, Plan, Rate};
use crate::replay::{self, ReplayPlan};
use crate::schedule::Arrivals;
use crate::server::{Origin, Server};
use crate::workload::Workload;

/// What is measured on each.
#[derive(Debug)]
pub enum Job {
    /// A load.
    Load {
        /// The load.
        plan: Plan,
        /// Whether every key is set before.
        fill: bool,
        /// Instead of the plan's rate: this fraction of A's rate in a closed loop, measured first, and how it is spaced.
        rate_from_peak: Option<(f64, Arrivals)>,
    },
    /// How many items fit.
    Capacity(Arc<Workload>),
    /// A replay.
    Replay(Box<ReplayPlan>),
}

/// How the servers take turns.
#[derive(Debug)]
pub struct Settings {
    /// The servers, A first.
    pub sides: [Side; 2],
    /// Nodes behind them, where they are proxies.
    pub nodes: Option<NodeSettings>,
    /// How often each is measured.
    pub rounds: usize,
    /// Whether the servers are started once instead of fresh for every round.
    pub keep: bool,
    /// CPUs of the servers.
    pub server_cpus: Vec<usize>,
    /// CPUs of the client.
    pub client_cpus: Vec<usize>,
    /// What `{memory}` in their command lines stands for.
    pub memory: Option<u64>,
    /// Whether it is told which round runs.
    pub progress: bool,
}

/// Runs all rounds.
///
/// # Errors
/// What goes wrong with a server, [`BenchError::Mismatch`] at the first wrong value, or [`BenchError::Interrupted`].
pub fn run(settings: &Settings, job: Job) -> Result<Comparison> {
    pin_this_thread(&settings.client_cpus)?;
    let nodes = settings.nodes.as_ref().map(Nodes::start).transpose()?;
    let origins = match &nodes {
        Some(nodes) => [nodes.name_in(&settings.sides[0].origin)?, nodes.name_in(&settings.sides[1].origin)?],
        None => settings.sides.each_ref().map(|side| side.origin.clone()),
    };
    let mut kept = [None, None];
    let (job, peak) = settle_rate(settings, &origins[0], job, &mut kept)?;
    let mut runs = Vec::new();
    for round in 1..=settings.rounds {
        for (side, kept) in kept.iter_mut().enumerate() {
            interrupt::check()?;
            if settings.progress {
                eprintln!("round {round} of {}: {}", settings.rounds, settings.sides[side].name);
            }
            let fresh = kept.is_none();
            let server = match kept.take() {
                Some(server) => server,
                None => open(settings, &origins[side])?,
            };
            let (figures, detail) = measure(&job, &server, fresh)?;
            runs.push(Run { side, round, figures, detail });
            if settings.keep {
                *kept = Some(server);
            }
        }
    }
    Ok(Comparison::new(&settings.sides, peak, runs))
}

fn open(settings: &Settings, origin: &Origin) -> Result<Server> {
    Server::open(origin, settings.memory, &settings.server_cpus)
}

/// Measures A's rate in a closed loop if the load's rate is to be a fraction of it; that rate is handed back too.
fn settle_rate(
    settings: &Settings,
    origin: &Origin,
    job: Job,
    kept: &mut [Option<Server>; 2],
) -> Result<(Job, Option<f64>)> {
    let Job::Load { mut plan, fill, rate_from_peak: Some((fraction, arrivals)) } = job else { return Ok((job, None)) };
    if settings.progress {
        eprintln!("peak rate of {}", settings.sides[0].name);
    }
    let server = open(settings, origin)?;
    plan.rate = None;
    if fill {
        load::fill(&plan, server.address())?;
    }
    let peak = load::run(&plan, server.address(), server.process())?.requests_per_second;
    plan.rate = Some(Rate { per_second: peak * fraction, arrivals, sleeps: false });
    if settings.keep {
        kept[0] = Some(server);
    }
    Ok((Job::Load { plan, fill, rate_from_peak: None }, Some(peak)))
}

fn measure(job: &Job, server: &Server, fresh: bool) -> Result<(Vec<Figure>, Value)> {
    match job {
        Job::Load { plan, fill, .. } => {
            if *fill && fresh {
                load::fill(plan, server.address())?;
            }
            let outcome = load::run(plan, server.address(), server.process())?;
            outcome.check()?;
            Ok((load_figures(&outcome), json(&outcome)?))
        }
        Job::Capacity(workload) => {
            let capacity = capacity::run(workload, server.address(), server.process())?;
            Ok((capacity_figures(&capacity), json(&capacity)?))
        }
        Job::Replay(plan) => {
            let replayed = replay::run(plan, server.address(), server.process())?;
            replayed.check()?;
            Ok((replay_figures(&replayed), json(&replayed)?))
        }
    }
}

fn json(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| BenchError::system("write a result as JSON", error))
}

const MIB: f64 = 1024.0 * 1024.0;

fn load_figures(outcome: &load::Outcome) -> Vec<Figure> {
    let figure = |name, unit, value| Figure { name, unit, value };
    let mut figures = vec![
        figure("throughput", "requests/s", outcome.requests_per_second),
        figure("p50", "µs", outcome.latency.p50),
        figure("p99", "µs", outcome.latency.p99),
        figure("p99.9", "µs", outcome.latency.p999),
        figure("max", "µs", outcome.latency.max),
    ];
    if let Some(server) = &outcome.server {
        figures.extend([
            figure("server CPU per request", "µs", server.cpu_per_request),
            figure("server CPU, user part", "µs", server.cpu_per_request * (1.0 - server.system_share)),
            figure("server CPU in use", "cores", server.cpu_cores),
            figure("resident memory", "MiB", server.memory.resident as f64 / MIB),
            figure("resident memory, peak", "MiB", server.memory.peak as f64 / MIB),
        ]);
    }
    figures.push(figure("hits", "keys", outcome.tally.hits as f64));
    figures.push(figure("misses", "keys", outcome.tally.misses as f64));
    figures.push(figure("errors", "requests", outcome.tally.failed as f64));
    figures
}

fn capacity_figures(capacity: &capacity::Capacity) -> Vec<Figure> {
    let mut figures =
        vec![Figure { name: "items before the first eviction", unit: "items", value: capacity.items as f64 }];
    if let Some(memory) = capacity.memory {
        let resident = memory.resident as f64;
        figures.push(Figure { name: "resident memory", unit: "MiB", value: resident / MIB });
        figures.push(Figure {
            name: "resident memory per item",
            unit: "B",
            value: resident / capacity.items.max(1) as f64,
        });
    }
    figures
}

fn replay_figures(replayed: &replay::Replayed) -> Vec<Figure> {
    let mut figures = vec![
        Figure { name: "misses", unit: "reads", value: replayed.tally.misses as f64 },
        Figure { name: "miss ratio", unit: "", value: replayed.miss_ratio },
        Figure { name: "errors", unit: "requests", value: replayed.tally.failed as f64 },
        Figure { name: "latest request", unit: "s", value: replayed.latest },
    ];
    if let Some(memory) = replayed.memory {
        figures.push(Figure { name: "resident memory", unit: "MiB", value: memory.resident as f64 / MIB });
    }
    figures
}
