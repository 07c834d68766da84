//! The command line of `moneta bench`: one server by default, two with `compare`, a trace with `replay`, SSD tiers with `ssd` and
//! `engines`, hostile clients with `hostile`.

mod compare_args;
mod engines_args;
mod hostile_args;
mod output;
mod replay_args;
mod ssd_args;
mod target_args;
mod workload_args;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

pub use compare_args::CompareArgs;
pub use engines_args::EnginesArgs;
pub use hostile_args::HostileArgs;
pub use replay_args::ReplayArgs;
pub use ssd_args::SsdArgs;
pub use workload_args::WorkloadArgs;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{self, Length, Plan, Rate};
use crate::profiles;
use crate::schedule::Arrivals;

use target_args::{CpuArgs, CpuList, TargetArgs, cpu_list};

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
    /// Measure servers that keep their items on an SSD: fill, reads, a bulk load, restarts, overwrites.
    Ssd(Box<SsdArgs>),
    /// Measure several servers that keep their items on an SSD one after the other, in one table.
    Engines(Box<EnginesArgs>),
    /// Attack a server on this machine with many hostile clients at once, and measure its memory and what a good client gets.
    Hostile(Box<HostileArgs>),
    /// List the named profiles.
    Profiles,
}

/// One server under load.
#[derive(Debug, Args)]
struct SingleArgs {
    #[command(flatten)]
    target: TargetArgs,
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
    /// Requests each connection sends together before it waits for their answers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pipeline: u32,
    /// With --pipeline: send the next request after each answer, so that N are always on their way
    #[arg(long, requires = "pipeline", conflicts_with = "rate")]
    sliding: bool,
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
    /// How an open loop's requests are spaced [default: fixed]
    #[arg(long, value_enum)]
    arrivals: Option<Arrivals>,
    /// Set every key once before
    #[arg(long)]
    fill: bool,
}

/// Where results go, and whether progress is printed.
#[derive(Debug, Args)]
pub struct OutputArgs {
    #[command(flatten)]
    file: ResultFile,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Where results go.
#[derive(Debug, Args)]
pub struct ResultFile {
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
        Some(Mode::Ssd(ssd)) => ssd.run(),
        Some(Mode::Engines(engines)) => engines.run(),
        Some(Mode::Hostile(hostile)) => hostile.run(),
        Some(Mode::Profiles) => {
            for (name, about) in profiles::list() {
                println!("{name:<14} {about}");
            }
            Ok(())
        }
    }
}

fn run_single(args: &SingleArgs) -> Result<()> {
    let rate = rate(args.load.rate, args.load.spacing(args.load.rate.is_some())?)?;
    let plan = args.load.plan(rate, args.target.client_cpus(), !args.output.quiet)?;
    let server = args.target.open()?;
    if args.load.fill {
        load::fill(&plan, server.address())?;
    }
    let outcome = load::run(&plan, server.address(), server.process())?;
    print!("{}", output::outcome(&outcome));
    args.output.file.write(&outcome)?;
    outcome.check()
}

impl LoadArgs {
    /// How requests are spaced; refused for a closed loop, where it means nothing.
    fn spacing(&self, open_loop: bool) -> Result<Arrivals> {
        match self.arrivals {
            Some(_) if !open_loop => Err(BenchError::option("arrivals", "", "only goes with a rate")),
            arrivals => Ok(arrivals.unwrap_or(Arrivals::Fixed)),
        }
    }

    fn plan(&self, rate: Option<Rate>, cpus: Vec<usize>, progress: bool) -> Result<Plan> {
        let length = match self.requests {
            Some(0) => return Err(BenchError::option("requests", 0, "expected at least 1")),
            Some(requests) => Length::Requests(requests),
            None => Length::Duration(seconds("duration", self.duration, 0.1)?),
        };
        Ok(Plan {
            workload: self.workload.build()?,
            run: 0,
            protocol: self.workload.protocol(),
            connections: self.connections as usize,
            threads: self.threads as usize,
            pipeline: self.pipeline as usize,
            sliding: self.sliding,
            multiget: self.multiget as usize,
            warmup: seconds("warmup", self.warmup, 0.0)?,
            length,
            rate,
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
        Some(per_second) if per_second > 0.0 && per_second <= MOST => {
            Ok(Some(Rate { per_second, arrivals, sleeps: false }))
        }
        Some(wrong) => {
            Err(BenchError::option("rate", wrong, format!("expected above 0 and up to {MOST} requests a second")))
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn parses(line: &str) -> bool {
        Program::try_parse_from(line.split(' ')).is_ok()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Program::command().debug_assert();
    }

    #[test]
    fn options_that_would_be_ignored_are_refused() {
        assert!(parses("bench compare --a x:1 --b y:2 --capacity --key-size 30"));
        for line in [
            "bench compare --a x:1 --b y:2 --capacity --pipeline 5",
            "bench compare --a x:1 --b y:2 --replay t.lis --connections 5",
            "bench compare --a x:1 --b y:2 --replay t.lis --capacity",
            "bench replay t.lis --lookaside",
            "bench --requests 5 --duration 5",
        ] {
            assert!(!parses(line), "{line}");
        }
        for line in ["bench --arrivals poisson", "bench --server 127.0.0.1:1 --server-cpus 0"] {
            let error = run(Program::try_parse_from(line.split(' ')).unwrap().args).unwrap_err();
            assert!(matches!(error, BenchError::Option { .. }), "{line}: {error}");
        }
    }
}
