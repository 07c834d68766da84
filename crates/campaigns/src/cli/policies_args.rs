//! `campaigns policies`.

use clap::Args;
use moneta_bench::Result;
use moneta_bench::cli::{Replay, ReplayArgs};
use moneta_bench::replay::Replayed;
use moneta_bench::table::Table;
use serde::Serialize;

use crate::policies::{self, Policies};

/// A replay, and known policies on the same requests.
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// The Python that simulates LRU, ARC, S3-FIFO, W-TinyLFU, LIRS, SIEVE and Belady's bound, with as much room as what the server
    /// holds at the end; it needs the package libcachesim
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    python: String,
    #[command(flatten)]
    replay: ReplayArgs,
}

/// The result as JSON.
#[derive(Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    replayed: &'a Replayed,
    policies: Policies,
}

impl PoliciesArgs {
    pub(super) fn run(&self) -> Result<()> {
        let Replay { plan, server, replayed } = self.replay.replay()?;
        let policies = policies::run(&plan, server.address(), &self.python)?;
        print!("{}", table(&policies, replayed.miss_ratio));
        self.replay.output.file.write(&Found { replayed: &replayed, policies })?;
        replayed.check()
    }
}

/// Policies from the fewest misses to the most, beside the server.
fn table(policies: &Policies, miss_ratio: f64) -> String {
    let mut rows: Vec<(&str, f64)> = policies.miss_ratios.iter().map(|(name, ratio)| (&name[..], *ratio)).collect();
    rows.push(("server", miss_ratio));
    rows.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut table = Table::new(["policy", "miss ratio", "server's over it"]);
    for (name, ratio) in rows {
        table.row([name.to_owned(), format!("{ratio:.5}"), format!("{:.3}", miss_ratio / ratio)]);
    }
    format!("\nwith room for {} {}, as the server holds now:\n{}", policies.capacity, policies.unit, table.render())
}
