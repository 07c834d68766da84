//! The command line of `moneta bench`: one server by default, two with `compare`, a trace with `replay`.

mod compare_args;
mod load_args;
mod numbers;
mod output;
mod output_args;
mod replay_args;
mod target_args;
mod workload_args;

use clap::{Args, Subcommand};

pub use compare_args::CompareArgs;
pub use numbers::{rate, seconds};
pub use output_args::{OutputArgs, ResultFile};
pub use replay_args::{Replay, ReplayArgs};
pub use target_args::{CpuArgs, TargetArgs};
pub use workload_args::WorkloadArgs;

use crate::error::Result;
use crate::{interrupt, load, profiles};
use load_args::LoadArgs;

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
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Does what the command line says, prints the results to standard output and progress to standard error.
///
/// # Errors
/// An option out of range, a server that fails, or [`crate::BenchError::Mismatch`] when a value read is wrong.
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

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::error::BenchError;

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
