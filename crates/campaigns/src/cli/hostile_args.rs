//! `campaigns hostile`: a server under attack, and what a client that behaves gets of it.

use clap::Args;
use moneta_bench::cli::{ResultFile, TargetArgs, seconds};

use crate::hostile::{self, Latency, Plan, Report};
use moneta_bench::affinity::pin_this_thread;
use moneta_bench::{BenchError, Result};

/// Attacks a server on this machine with many hostile connections at once.
#[derive(Debug, Args)]
pub struct HostileArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Hostile connections, shared out among the attacks
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Requests a second of the client that behaves
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Seconds of the attack
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    duration: f64,
    /// Seconds before it in which the client that behaves is alone
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    quiet_duration: f64,
    /// Seconds after it until memory is looked at again
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    rest: f64,
    /// Fail if resident memory grows by more than so many MiB over what it was with all items stored
    #[arg(long, value_name = "MIB")]
    growth: Option<u64>,
    /// Fail if the good client's p99 is more than so many times what it was without the attack
    #[arg(long, value_name = "TIMES", default_value_t = 10.0)]
    slowdown: f64,
    #[command(flatten)]
    file: ResultFile,
}

impl HostileArgs {
    /// Attacks, and prints what came of it.
    ///
    /// # Errors
    /// As [`hostile::run`], and when a bound is not kept.
    pub fn run(&self) -> Result<()> {
        let server = self.target.open()?;
        // Threads have the CPUs of the one that starts them.
        pin_this_thread(&self.target.client_cpus())?;
        let process = server.process().ok_or_else(|| {
            BenchError::option("server", self.target.origin(), "its process cannot be seen from here")
        })?;
        let report = hostile::run(&Plan {
            address: server.address().clone(),
            process,
            login: None,
            connections: self.connections as usize,
            rate: f64::from(self.rate),
            quiet: seconds("quiet-duration", self.quiet_duration, 0.1)?,
            attack: seconds("duration", self.duration, 0.1)?,
            rest: seconds("rest", self.rest, 0.0)?,
        })?;
        print!("{}", table(&report));
        self.file.write(&report)?;
        self.check(&report)
    }

    fn check(&self, report: &Report) -> Result<()> {
        let grown = report.resident_most.saturating_sub(report.resident_before) >> 20;
        if let Some(most) = self.growth.filter(|&most| grown > most) {
            return Err(BenchError::Bound(format!("resident memory grew by {grown} MiB, more than {most}")));
        }
        if report.slowdown() > self.slowdown {
            let (slowdown, most) = (report.slowdown(), self.slowdown);
            return Err(BenchError::Bound(format!("p99 was {slowdown:.1} times the quiet one, more than {most}")));
        }
        Ok(())
    }
}

/// The report for people.
fn table(report: &Report) -> String {
    let mebibytes = |bytes: u64| bytes >> 20;
    let latency = |name: &str, latency: &Latency| {
        let Latency { count, p50, p99, max } = latency;
        format!("{name:<16} {count:>8} reads   p50 {p50:>9.1} us   p99 {p99:>9.1} us   max {max:>10.1} us\n")
    };
    let mut text = latency("alone", &report.quiet) + &latency("under attack", &report.attacked);
    text += &format!("p99 under attack over p99 alone: {:.2}\n", report.slowdown());
    text += &format!(
        "resident memory: {} MiB before, {} at most, {} after\n\n{:<16} {:>11} {:>8}\n",
        mebibytes(report.resident_before),
        mebibytes(report.resident_most),
        mebibytes(report.resident_after),
        "attack",
        "connections",
        "closed"
    );
    for attack in &report.attacks {
        text += &format!("{:<16} {:>11} {:>8}\n", attack.name, attack.connections, attack.closed);
    }
    text
}
