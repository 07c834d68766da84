//! The command line of `moneta bench`: one server by default, two with `compare`, a trace with `replay`.

mod compare_args;
mod output;
mod replay_args;
mod workload_args;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

pub use compare_args::CompareArgs;
pub use replay_args::ReplayArgs;
pub use workload_args::WorkloadArgs;

use crate::address::Address;
use crate::affinity::parse_cpus;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{self, Length, Plan, Rate};
use crate::profiles;
use crate::schedule::Arrivals;
use crate::server::{Origin, Server};

/// Puts a load on a memcached server and measures it.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    mode: Option<Mode>,
    #[command(flatten)]
    single: SingleArgs,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// Measure two servers in turn on the same load and print the ratios.
    Compare(Box<CompareArgs>),
    /// Replay a trace, or a profile's stream, for its hit ratio.
    Replay(Box<ReplayArgs>),
    /// List the named profiles.
    Profiles,
}

/// One server under load.
#[derive(Debug, Args)]
struct SingleArgs {
    /// The server: HOST:PORT, the path of a Unix socket, or a command line with {port} or {socket} that starts one
    #[arg(long, value_name = "SERVER", default_value = "127.0.0.1:11211")]
    server: Origin,
    /// CPUs a server started here may use, such as 0 or 0-1
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    server_cpus: Option<CpuList>,
    /// CPUs the client's threads may use
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    client_cpus: Option<CpuList>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// How fast and through how many connections.
#[derive(Debug, Args)]
pub struct LoadArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Connections to the server
    #[arg(long, short, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=65_000))]
    connections: u32,
    /// Client threads; connections are shared out among them
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Requests each connection keeps on their way
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pipeline: u32,
    /// Keys in one get
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    multiget: u32,
    /// End after so many requests
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "duration")]
    requests: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Seconds of load before the measurement starts
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,
    /// Open loop: requests a second over all connections, with latency counted from the intended start
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How an open loop's requests are spaced
    #[arg(long, value_enum, default_value_t = Arrivals::Fixed)]
    arrivals: Arrivals,
    /// Set every key once before
    #[arg(long)]
    fill: bool,
}

/// Where results go.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

/// CPUs on the command line; a type of its own so that clap takes the list as one value.
#[derive(Debug, Clone)]
pub struct CpuList(Vec<usize>);

fn cpu_list(text: &str) -> Result<CpuList, String> {
    parse_cpus(text).map(CpuList)
}

fn cpus(list: Option<&CpuList>) -> Vec<usize> {
    list.map(|list| list.0.clone()).unwrap_or_default()
}

/// Does what the command line says, prints the results to standard output and progress to standard error.
///
/// # Errors
/// An option out of range, a server that fails, or [`BenchError::Mismatch`] when a value read is wrong.
pub fn run(args: BenchArgs) -> Result<()> {
    interrupt::install()?;
    match args.mode {
        None => run_single(&args.single),
        Some(Mode::Compare(compare)) => compare.run(),
        Some(Mode::Replay(replay)) => replay.run(),
        Some(Mode::Profiles) => {
            for (name, about) in profiles::list() {
                println!("{name:<14} {about}");
            }
            Ok(())
        }
    }
}

fn run_single(args: &SingleArgs) -> Result<()> {
    let plan = args.load.plan(cpus(args.client_cpus.as_ref()), !args.output.quiet)?;
    let server = Server::open(&args.server, None, &cpus(args.server_cpus.as_ref()))?;
    if args.load.fill {
        fill(&plan, server.address())?;
    }
    let outcome = load::run(&plan, server.address(), server.process())?;
    print!("{}", output::outcome(&outcome));
    args.output.write(&outcome)?;
    outcome.check()
}

fn fill(plan: &Plan, address: &Address) -> Result<()> {
    let filled = load::fill(plan, address)?;
    if filled.tally.failed > 0 {
        eprintln!("fill: {} of {} failed: {}", filled.tally.failed, filled.tally.requests, filled.failures.join("; "));
    }
    Ok(())
}

impl LoadArgs {
    fn plan(&self, cpus: Vec<usize>, progress: bool) -> Result<Plan> {
        let length = match self.requests {
            Some(0) => return Err(BenchError::option("requests", 0, "expected at least 1")),
            Some(requests) => Length::Requests(requests),
            None => Length::Duration(seconds("duration", self.duration, 0.1)?),
        };
        Ok(Plan {
            workload: self.workload.build()?,
            protocol: self.workload.protocol(),
            connections: self.connections as usize,
            threads: self.threads as usize,
            pipeline: self.pipeline as usize,
            multiget: self.multiget as usize,
            warmup: seconds("warmup", self.warmup, 0.0)?,
            length,
            rate: rate(self.rate, self.arrivals)?,
            verify: self.workload.verify(),
            cpus,
            progress,
        })
    }
}

fn seconds(option: &'static str, value: f64, least: f64) -> Result<Duration> {
    /// A day: a longer load is a mistake.
    const MOST: f64 = 86_400.0;
    if (least..=MOST).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(BenchError::option(option, value, format!("expected {least} to {MOST} seconds")))
}

fn rate(per_second: Option<f64>, arrivals: Arrivals) -> Result<Option<Rate>> {
    /// More a second than any one client machine can send.
    const MOST: f64 = 1e9;
    match per_second {
        Some(per_second) if per_second > 0.0 && per_second <= MOST => Ok(Some(Rate { per_second, arrivals })),
        Some(wrong) => {
            Err(BenchError::option("rate", wrong, format!("expected above 0 and up to {MOST} requests a second")))
        }
        None => Ok(None),
    }
}
