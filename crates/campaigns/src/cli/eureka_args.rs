//! `campaigns eureka`.

use std::time::Duration;

use clap::Args;
use moneta_bench::affinity::pin_this_thread;
use moneta_bench::cli::CpuArgs;
use moneta_bench::table::Table;
use moneta_bench::{BenchError, Result};

use crate::fleet::{self, EurekaMeasured, EurekaPlan};

/// Registries with a large fleet, one after the other.
#[derive(Debug, Args)]
pub struct EurekaArgs {
    /// A server's command line, with {port} for the port of its Eureka interface, and {folder} for an empty folder; again for more servers
    #[arg(long, value_name = "LINE", required = true)]
    server: Vec<String>,
    #[command(flatten)]
    cpus: CpuArgs,
    /// Clients that are registered, and renew
    #[arg(long, value_name = "N", default_value_t = 18_000)]
    instances: usize,
    /// How often each renews, and each reader reads, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    period: u64,
    /// Apps that they are of
    #[arg(long, value_name = "N", default_value_t = 50)]
    apps: usize,
    /// Clients that fetch what has changed
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    readers: usize,
    /// How long nothing is measured after the registrations, in seconds: for three minutes they are told as changes
    #[arg(long, value_name = "SECONDS", default_value_t = 200)]
    settle: u64,
    /// How long it is looked at at rest, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    rest: u64,
}

impl EurekaArgs {
    pub(super) fn run(&self) -> Result<()> {
        if let Some(line) = self.server.iter().find(|line| !line.contains("{port}")) {
            return Err(BenchError::option("server", line, "expected a command line with {port} in it"));
        }
        pin_this_thread(&self.cpus.client())?;
        for line in &self.server {
            let plan = EurekaPlan {
                server: line.clone(),
                server_cpus: self.cpus.server(),
                instances: self.instances,
                period: Duration::from_secs(self.period.max(1)),
                apps: self.apps.max(1),
                readers: self.readers,
                settle: Duration::from_secs(self.settle),
                rest: Duration::from_secs(self.rest),
            };
            print!("{line}\n{}\n", table(&fleet::run_eureka(&plan)?));
        }
        Ok(())
    }
}

fn table(measured: &EurekaMeasured) -> String {
    let EurekaMeasured { ready, registered, rest, answered, late, failures, held } = measured;
    let mut table = Table::new(["what", "measured"]);
    let mut row = |what: &str, measured: String| table.row([what.to_owned(), measured]);
    row(
        "until its first answer",
        format!("{:.1} s, {:.1} s of CPU", ready.took.as_secs_f64(), ready.cpu.as_secs_f64()),
    );
    row(
        &format!("{} registrations", registered.count),
        format!("{:.1} s, {:.1} s of CPU", registered.took.as_secs_f64(), registered.cpu.as_secs_f64()),
    );
    row("at rest, of one core", format!("{:.1} %", 100.0 * rest.share()));
    row("resident memory at rest, at its most", format!("{} MiB, {} MiB", rest.resident >> 20, rest.peak >> 20));
    row("answers a second at rest", format!("{:.0}", *answered as f64 / rest.time.as_secs_f64()));
    row("answers late by more than a second, requests that failed", format!("{late}, {failures}"));
    row("instances told of at the end", held.to_string());
    table.render()
}
