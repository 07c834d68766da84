//! How fast a load is, and through how many connections.

use clap::Args;

use super::numbers::seconds;
use super::workload_args::WorkloadArgs;
use crate::error::{BenchError, Result};
use crate::load::{Length, Plan, Rate};
use crate::schedule::Arrivals;

/// How fast and through how many connections.
#[derive(Debug, Args)]
pub struct LoadArgs {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    /// Connections to the server
    #[arg(long, short, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=65_000))]
    pub(super) connections: u32,
    /// Client threads; connections are shared out among them
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: u32,
    /// Requests each connection sends together before it waits for their answers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) pipeline: u32,
    /// With --pipeline: send the next request after each answer, so that N are always on their way
    #[arg(long, requires = "pipeline", conflicts_with = "rate")]
    pub(super) sliding: bool,
    /// Keys in one get
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) multiget: u32,
    /// End after so many requests
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "duration")]
    pub(super) requests: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub(super) duration: f64,
    /// Seconds of load before the measurement starts
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(super) warmup: f64,
    /// Open loop: requests a second over all connections, with latency counted from the intended start
    #[arg(long, value_name = "N")]
    pub(super) rate: Option<f64>,
    /// How an open loop's requests are spaced [default: fixed]
    #[arg(long, value_enum)]
    pub(super) arrivals: Option<Arrivals>,
    /// Set every key once before
    #[arg(long)]
    pub(super) fill: bool,
}

impl LoadArgs {
    /// How requests are spaced; refused for a closed loop, where it means nothing.
    pub(super) fn spacing(&self, open_loop: bool) -> Result<Arrivals> {
        match self.arrivals {
            Some(_) if !open_loop => Err(BenchError::option("arrivals", "", "only goes with a rate")),
            arrivals => Ok(arrivals.unwrap_or(Arrivals::Fixed)),
        }
    }

    pub(super) fn plan(&self, rate: Option<Rate>, cpus: Vec<usize>, progress: bool) -> Result<Plan> {
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
