//! `moneta bench replay`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::numbers::rate;
use super::output;
use super::output_args::OutputArgs;
use super::target_args::TargetArgs;
use super::workload_args::WorkloadArgs;
use crate::error::{BenchError, Result};
use crate::replay::{self, Input, ReplayPlan, Replayed};
use crate::schedule::Arrivals;
use crate::server::Server;
use crate::trace::Format;

/// The word that stands for the stream of `--profile` where a trace's file is expected.
const PROFILE: &str = "profile";
/// Requests of a profile's endless stream unless told otherwise.
const PROFILE_REQUESTS: u64 = 1_000_000;

/// One server and one trace.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The trace's file, or `profile` for the stream of --profile
    #[arg(value_name = "FILE", conflicts_with = "lookaside")]
    file: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    /// Requests a second, so that expiration times mean the same on every server [default: as fast as it answers]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Where the result goes.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What is replayed and how.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The trace's format [default: told by the file's name]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Replay at most so many requests [default: all of a trace, 1000000 of a profile]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Requests sent together; 1 keeps their order to the letter [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    window: Option<u32>,
    /// Cut a trace's larger values to this many bytes, to stay under the servers' item limit [default: 1000000]
    #[arg(long, value_name = "BYTES")]
    max_value: Option<u32>,
}

impl TraceArgs {
    /// A value limit that fits memcached's default item limit of 1 MiB with key and header.
    const MAX_VALUE: u32 = 1_000_000;

    pub(super) fn plan(
        &self,
        file: &Path,
        args: &WorkloadArgs,
        cpus: Vec<usize>,
        progress: bool,
    ) -> Result<ReplayPlan> {
        let (input, key_length, limit) = match (args.profile(), file == Path::new(PROFILE)) {
            (Some(_), true) => {
                let workload = args.build()?;
                let key_length = workload.key_length;
                (Input::Workload(workload), key_length, PROFILE_REQUESTS)
            }
            (None, true) => return Err(BenchError::option("profile", "", "its name is needed to replay its stream")),
            (Some(name), false) => {
                return Err(BenchError::option("profile", name, "a trace's file and a profile exclude each other"));
            }
            (None, false) => {
                args.refuse_for_trace()?;
                let max_value = self.max_value.unwrap_or(Self::MAX_VALUE);
                let value_size = args.fixed_value_size()?;
                let input = Input::Trace { path: file.to_owned(), format: self.format, value_size, max_value };
                (input, args.trace_key_length()?, u64::MAX)
            }
        };
        Ok(ReplayPlan {
            input,
            protocol: args.protocol(),
            key_length,
            limit: self.limit.unwrap_or(limit),
            window: self.window.unwrap_or(1) as usize,
            rate: None,
            verify: args.verify(),
            seed: args.seed(),
            cpus,
            progress,
        })
    }

    /// Refuses options that mean nothing unless something is replayed.
    pub(super) fn refuse_without_replay(&self) -> Result<()> {
        let given = [
            ("format", self.format.is_some()),
            ("limit", self.limit.is_some()),
            ("window", self.window.is_some()),
            ("max-value", self.max_value.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(BenchError::option(option, "", "only goes with --replay")),
            None => Ok(()),
        }
    }
}

/// What was replayed.
#[derive(Debug)]
pub struct Replay {
    /// As it was planned.
    pub plan: ReplayPlan,
    /// The server, which goes on.
    pub server: Server,
    /// The result.
    pub replayed: Replayed,
}

impl ReplayArgs {
    pub(super) fn run(&self) -> Result<()> {
        let Replay { replayed, .. } = self.replay()?;
        self.output.file.write(&replayed)?;
        replayed.check()
    }

    /// Replays, and prints the result.
    ///
    /// # Errors
    /// An option out of range, a trace that cannot be read, or a server that fails.
    pub fn replay(&self) -> Result<Replay> {
        let mut plan = self.trace.plan(&self.file, &self.workload, self.target.client_cpus(), !self.output.quiet)?;
        plan.rate = rate(self.rate, Arrivals::Fixed)?;
        let server = self.target.open()?;
        let replayed = replay::run(&plan, server.address(), server.process())?;
        print!("{}", output::replayed(&replayed));
        Ok(Replay { plan, server, replayed })
    }
}
