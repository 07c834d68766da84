//! `moneta bench compare`.

use std::sync::Arc;

use clap::Args;

use super::load_args::LoadArgs;
use super::output_args::OutputArgs;
use super::replay_args::TraceArgs;
use super::target_args::{CpuList, cpu_list};
use crate::compare::{self, Job, NodeSettings, Settings, Side};
use crate::error::{BenchError, Result};
use crate::server::Origin;

/// Rounds of a load.
const LOAD_ROUNDS: usize = 5;
/// Rounds of a replay or a capacity test, which vary little from run to run.
const COUNTING_ROUNDS: usize = 1;

/// Two servers in turn.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The first server: a command line with {port} or {socket}, such as 'memcached -p {port} -m {memory}', or an address
    #[arg(long, value_name = "SERVER")]
    a: Origin,
    /// The second server
    #[arg(long, value_name = "SERVER")]
    b: Origin,
    /// A node behind both, which are proxies then: a command line with {port} or {socket}, and {number} where each is to have
    /// another; or an address, which may be given again. The proxies' command lines name the nodes: {topology} or {zones} is a
    /// file for moneta proxy, with all of them in one zone or a third in each of zone0 to zone2; {twemproxy} and {mcrouter} are
    /// such programs' files. {node} alone is the first node, without a proxy
    #[arg(long, value_name = "SERVER", conflicts_with_all = ["capacity", "replay"])]
    node: Vec<Origin>,
    /// How many nodes are started
    #[arg(long, value_name = "N", default_value_t = 1, requires = "node", value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: u32,
    /// CPUs of nodes started here [default: those of the client]
    #[arg(long, value_name = "LIST", requires = "node", value_parser = cpu_list)]
    node_cpus: Option<CpuList>,
    /// A's name in the table
    #[arg(long, value_name = "NAME")]
    name_a: Option<String>,
    /// B's name in the table
    #[arg(long, value_name = "NAME")]
    name_b: Option<String>,
    /// How often each server is measured [default: 5; 1 for --capacity and --replay]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Start and fill the servers once instead of fresh for every round
    #[arg(long)]
    keep: bool,
    /// CPUs of servers started here
    #[arg(long, value_name = "LIST", default_value = "0", value_parser = cpu_list)]
    server_cpus: CpuList,
    /// CPUs of the client
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = cpu_list)]
    client_cpus: CpuList,
    /// What {memory} in the command lines stands for, in MiB
    #[arg(long, short, value_name = "MIB")]
    memory: Option<u64>,
    /// Open loop at this fraction of A's rate in a closed loop, which is measured first
    #[arg(long, value_name = "FRACTION", conflicts_with = "rate")]
    rate_from_peak: Option<f64>,
    /// Measure how many items of the load's key and value size fit before the first eviction
    #[arg(long, conflicts_with_all = [
        "rate_from_peak", "replay", "fill", "keep", "protocol", "mix", "distribution", "lookaside", "verify", "connections",
        "threads", "pipeline", "sliding", "multiget", "requests", "duration", "warmup", "rate", "arrivals", "format", "limit", "window",
        "max_value",
    ])]
    capacity: bool,
    /// Replay this trace, or `profile` for the stream of --profile, and compare the misses
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "rate_from_peak", "fill", "keep", "lookaside", "connections", "threads", "pipeline", "sliding", "multiget", "requests", "duration",
        "warmup",
    ])]
    replay: Option<std::path::PathBuf>,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl CompareArgs {
    pub(super) fn run(&self) -> Result<()> {
        let job = self.job()?;
        let usual = if matches!(job, Job::Load { .. }) { LOAD_ROUNDS } else { COUNTING_ROUNDS };
        let settings = Settings {
            sides: self.sides()?,
            nodes: self.nodes()?,
            rounds: self.rounds.map_or(usual, |rounds| rounds as usize),
            keep: self.keep,
            server_cpus: self.server_cpus.0.clone(),
            client_cpus: self.client_cpus.0.clone(),
            memory: self.memory,
            progress: !self.output.quiet,
        };
        let comparison = compare::run(&settings, job)?;
        print!("{}", comparison.render());
        self.output.file.write(&comparison)
    }

    fn nodes(&self) -> Result<Option<NodeSettings>> {
        if self.node.is_empty() {
            let named = [&self.a, &self.b].into_iter().find(|side| side.names_nodes());
            return named.map_or(Ok(None), |side| Err(BenchError::option("node", side, "it names nodes: give some")));
        }
        let cpus = self.node_cpus.as_ref().unwrap_or(&self.client_cpus).0.clone();
        Ok(Some(NodeSettings { origins: self.node.clone(), count: self.nodes as usize, cpus }))
    }

    fn sides(&self) -> Result<[Side; 2]> {
        let side = |origin: &Origin, name: &Option<String>| Side {
            name: name.clone().unwrap_or_else(|| origin.name()),
            origin: origin.clone(),
        };
        if let (Some(memory), false) = (self.memory, self.a.takes_memory() && self.b.takes_memory()) {
            return Err(BenchError::option(
                "memory",
                memory,
                "both servers must be command lines with {memory} in them",
            ));
        }
        Ok([side(&self.a, &self.name_a), side(&self.b, &self.name_b)])
    }

    fn job(&self) -> Result<Job> {
        let progress = !self.output.quiet;
        if let Some(path) = &self.replay {
            let mut plan = self.trace.plan(path, &self.load.workload, self.client_cpus.0.clone(), progress)?;
            plan.rate = super::numbers::rate(self.load.rate, self.load.spacing(self.load.rate.is_some())?)?;
            return Ok(Job::Replay(Box::new(plan)));
        }
        self.trace.refuse_without_replay()?;
        if self.capacity {
            return Ok(Job::Capacity(Arc::clone(&self.load.workload.build()?)));
        }
        if let Some(fraction) = self.rate_from_peak.filter(|fraction| !(*fraction > 0.0 && *fraction <= 1.0)) {
            return Err(BenchError::option("rate-from-peak", fraction, "expected above 0 and up to 1"));
        }
        let arrivals = self.load.spacing(self.load.rate.or(self.rate_from_peak).is_some())?;
        let rate = super::numbers::rate(self.load.rate, arrivals)?;
        let plan = self.load.plan(rate, self.client_cpus.0.clone(), progress)?;
        let rate_from_peak = self.rate_from_peak.map(|fraction| (fraction, arrivals));
        Ok(Job::Load { plan, fill: self.load.fill, rate_from_peak })
    }
}
