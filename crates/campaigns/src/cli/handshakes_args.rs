//! `campaigns handshakes`.

use std::path::PathBuf;

use clap::Args;
use moneta_bench::Result;
use moneta_bench::cli::{CpuArgs, ResultFile, seconds};
use moneta_bench::recorder::LatencySummary;
use moneta_bench::table::Table;

use crate::handshakes::{self, Plan, Round};

/// Open TLS connections beside a flood of handshakes.
#[derive(Debug, Args)]
pub struct HandshakesArgs {
    /// The program
    #[arg(long, value_name = "FILE", default_value = "moneta")]
    moneta: PathBuf,
    /// Handshakes a second
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    handshakes: u32,
    /// Gets a second over open connections
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Open connections
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Length of each measurement in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 6.0)]
    duration: f64,
    /// How often quiet, here and elsewhere are measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    cpus: CpuArgs,
    #[command(flatten)]
    file: ResultFile,
}

impl HandshakesArgs {
    pub(super) fn run(&self) -> Result<()> {
        let rounds = handshakes::run(&Plan {
            moneta: self.moneta.clone(),
            handshakes: self.handshakes,
            rate: f64::from(self.rate),
            connections: self.connections as usize,
            length: seconds("duration", self.duration, 0.1)?,
            rounds: self.rounds as usize,
            server_cpus: self.cpus.server(),
            client_cpus: self.cpus.client(),
        })?;
        print!("{}", table(&rounds));
        self.file.write(&rounds)
    }
}

/// The rounds, and the medians of what they measured.
fn table(rounds: &[Round]) -> String {
    let mut table =
        Table::new(["round", "quiet p50, p99, µs", "beside handshakes", "handshakes elsewhere", "handshakes/s"]);
    let of = |latency: &LatencySummary| format!("{:.0}, {:.0}", latency.p50, latency.p99);
    for (number, Round { quiet, here, elsewhere, made }) in rounds.iter().enumerate() {
        let made = format!("{:.0}, {:.0}", made[0], made[1]);
        table.row([(number + 1).to_string(), of(quiet), of(here), of(elsewhere), made]);
    }
    let [quiet, here, elsewhere] =
        [|round: &Round| round.quiet.p99, |round: &Round| round.here.p99, |round: &Round| round.elsewhere.p99]
            .map(|p99| median(rounds.iter().map(p99).collect()));
    let times = |p99: f64| format!("{p99:.0}, {:.2} x quiet", p99 / quiet);
    table.row(["median p99".to_owned(), format!("{quiet:.0}"), times(here), times(elsewhere), String::new()]);
    table.render()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
