//! What `moneta repair` is told.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use moneta_link::ControlUrl;

use crate::commands::feed::{ago, now};

/// What is compared, and how.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// A node by its admin address, HOST:PORT; with --topology the name of a replica
    #[arg(value_name = "A")]
    pub a: String,
    /// The other one, in the same way
    #[arg(value_name = "B")]
    pub b: String,
    /// The topology whose replicas A and B name; its nodes have admin addresses. A TOML file, or what else --topology of `moneta
    /// proxy` takes
    #[arg(long, value_name = "SOURCE")]
    pub topology: Option<String>,
    /// The topology of another region, whose replica B names: what is repaired is then written to all copies of the region
    #[arg(long, value_name = "SOURCE", requires = "topology")]
    pub to_topology: Option<String>,
    /// Compare what was written so long ago or later, as 30m or 26h
    #[arg(long, value_name = "TIME", value_parser = ago, conflicts_with = "full", required_unless_present = "full")]
    pub since: Option<Duration>,
    /// Compare all
    #[arg(long)]
    pub full: bool,
    /// Leave out what was written in the last seconds: it may be on its way
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub lag: u64,
    /// In how many buckets keys are compared, a power of two up to 65536; more where few keys differ among many
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = buckets)]
    pub buckets: u32,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    /// Repair at most so many keys a second [default: as fast as it goes]
    #[arg(long, value_name = "KEYS", default_value_t = 0, hide_default_value = true)]
    pub rate: u64,
    /// Write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Keep in this file how far it is, and go on there
    #[arg(long, value_name = "FILE")]
    pub state_file: Option<PathBuf>,
    /// Print as the last line, as JSON, what was found
    #[arg(long)]
    pub json: bool,
    /// The app of the control plane whose replicas A and B name: as a job there, which `moneta worker` does
    #[arg(long, value_name = "APP", conflicts_with_all = ["topology", "dry_run", "state_file", "json"])]
    pub app: Option<String>,
    /// Servers of another region's control plane, whose replica B names: what is repaired is then written to all copies of the region
    #[arg(long, value_name = "URL,URL", value_delimiter = ',', requires = "app")]
    pub to_control: Vec<ControlUrl>,
    /// Return once the job has begun, and do not show how it goes
    #[arg(long, requires = "app")]
    pub detach: bool,
}

impl RepairArgs {
    /// Since when, in milliseconds since the Unix epoch; `None`: all.
    pub fn since_moment(&self) -> Option<u64> {
        let since = self.since?;
        Some(now().saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)).max(1))
    }
}

fn buckets(text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().ok().filter(|number| number.is_power_of_two() && *number <= 1 << 16);
    number.ok_or_else(|| "expected a power of two up to 65536".to_owned())
}
