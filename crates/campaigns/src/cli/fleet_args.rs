//! `campaigns fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use moneta_bench::Result;
use moneta_bench::affinity::pin_this_thread;
use moneta_bench::cli::CpuArgs;
use moneta_bench::table::Table;

use crate::fleet::{self, Measured, Plan};

/// A control plane with a large fleet.
#[derive(Debug, Args)]
pub struct FleetArgs {
    /// The program
    #[arg(long, value_name = "FILE", default_value = "moneta")]
    moneta: PathBuf,
    /// Further options of `moneta control`, as `--etcd URL,URL`; without them its ledger is in a new folder
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    options: String,
    /// Instances that renew
    #[arg(long, value_name = "N", default_value_t = 18_000)]
    instances: usize,
    /// How often each renews, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    period: u64,
    /// Apps that they are of, each with a topology of 24 slots
    #[arg(long, value_name = "N", default_value_t = 50)]
    apps: usize,
    /// Readers of feeds; half of them read one app, and are measured
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    feeds: usize,
    /// Changes of topologies a second, over all apps in turn
    #[arg(long, value_name = "N", default_value_t = 100)]
    changes: u64,
    /// How long it is looked at at rest, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    rest: u64,
    /// How long changes are made, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    #[command(flatten)]
    cpus: CpuArgs,
}

impl FleetArgs {
    pub(super) fn run(&self) -> Result<()> {
        pin_this_thread(&self.cpus.client())?;
        let plan = Plan {
            moneta: self.moneta.clone(),
            options: self.options.split_whitespace().map(str::to_owned).collect(),
            server_cpus: self.cpus.server(),
            instances: self.instances,
            period: Duration::from_secs(self.period),
            apps: self.apps.max(1),
            feeds: self.feeds,
            changes: self.changes.max(1),
            rest: Duration::from_secs(self.rest),
            seconds: Duration::from_secs(self.seconds),
        };
        print!("{}", table(&fleet::run(&plan)?));
        Ok(())
    }
}

fn table(measured: &Measured) -> String {
    let Measured { registered, rest, rest_renewals, changing, reached, ready, .. } = measured;
    let mut table = Table::new(["what", "measured"]);
    let mut row = |what: &str, measured: String| table.row([what.to_owned(), measured]);
    row(
        &format!("{} registrations", registered.count),
        format!("{:.1} s, {:.1} s of CPU", registered.took.as_secs_f64(), registered.cpu.as_secs_f64()),
    );
    row("at rest, of one core", format!("{:.1} %", 100.0 * rest.share()));
    row("renewals a second at rest", format!("{:.0}", *rest_renewals as f64 / rest.time.as_secs_f64()));
    row("resident memory at rest, at its most", format!("{} MiB, {} MiB", rest.resident >> 20, changing.peak >> 20));
    row("with changes, of one core", format!("{:.1} %", 100.0 * changing.share()));
    row("changes made, refused", format!("{}, {}", reached.changes, reached.refused));
    let told = &reached.told;
    row(
        "change asked for to the last reader, p50, p99, max",
        format!("{} ms, {} ms, {} ms", told[0], told[1], told[2]),
    );
    let answered = &reached.answered;
    row("change answered, p50, p99", format!("{} ms, {} ms", answered[0], answered[1]));
    row("renewals answered, late by more than a second", format!("{}, {}", measured.renewals, measured.late));
    row("ready after a restart", format!("{:.2} s, {:.2} s of CPU", ready.took.as_secs_f64(), ready.cpu.as_secs_f64()));
    table.render()
}
