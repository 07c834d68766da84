//! `moneta backup`: nodes into an archive, and what is done with that; the work is the backup crate's.

mod archive;
mod look;
mod run;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_backup::moment;
use moneta_options::kinds::units;

pub(super) use archive::opened;

use super::moving::{RateArgs, size};

/// Which nodes are backed up, and how.
#[derive(Debug, Args)]
struct TakeArgs {
    /// The node: HOST:PORT or the path of its Unix socket; with --topology the name of a replica, of which all nodes are backed
    /// up
    #[arg(value_name = "NODE")]
    source: String,
    /// The archive: a directory, made if it is not there, or a URL of an object store
    #[arg(long, value_name = "DIR|URL")]
    into: String,
    /// The topology whose replica is backed up: a TOML file, or what else --topology of `moneta proxy` takes
    #[arg(long, value_name = "SOURCE")]
    topology: Option<String>,
    /// Go on with what changes, until a signal
    #[arg(long)]
    follow: bool,
    /// Slots may be other nodes' than in the last run, which still run
    #[arg(long)]
    moved: bool,
    /// How often changes are committed meanwhile: no restore point is older
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time)]
    every: Duration,
    /// Encrypt for this public key of age; may be given several times. A new archive alone asks for it
    #[arg(long, value_name = "AGE1…")]
    recipient: Vec<String>,
    /// Keep a second copy of the archive there, too
    #[arg(long, value_name = "DIR|URL")]
    copy_to: Vec<String>,
    /// After the backup, and each day with --follow, remove what no restore point of so long a time needs
    #[arg(long, value_name = "TIME", value_parser = time)]
    keep: Option<Duration>,
    /// Age at which a part of the changes ends and another begins; parts are what --keep removes
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = time)]
    part_age: Duration,
    /// Of each node
    #[command(flatten)]
    rate: RateArgs,
    /// Largest value that is taken, in bytes or with k, m or g
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    value_max: u64,
    /// Bytes after which a file ends and another begins
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    segment_size: u64,
    /// Print as the last line, as JSON, what was read
    #[arg(long)]
    json: bool,
}

/// An archive that is there.
#[derive(Debug, Args)]
struct FromArgs {
    /// The archive
    #[arg(long, value_name = "DIR|URL")]
    from: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct MergeArgs {
    #[command(flatten)]
    of: FromArgs,
    /// Up to the last restore point at or before then
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = when)]
    at: u64,
    /// The file with the age key that reads the archive
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The --value-max of the backup
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    value_max: u64,
    /// Bytes after which a file ends and another begins
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    segment_size: u64,
}

#[derive(Debug, Args)]
struct PruneArgs {
    #[command(flatten)]
    of: FromArgs,
    /// Restore points of so long a time stay, with all that they need
    #[arg(long, value_name = "TIME", value_parser = time)]
    keep: Duration,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    #[command(flatten)]
    of: FromArgs,
    /// The last restore point at or before then
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = when)]
    at: u64,
    /// The file with the age key that reads the archive
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The --value-max of the backup
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    value_max: u64,
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    of: FromArgs,
    /// Write metrics to this file, for the textfile collector of Prometheus' node exporter
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// End with status 1 if nothing was verified for longer
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_age: Option<Duration>,
}

/// A time of at least a second.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let seconds = units::seconds(text).filter(|seconds| (1..=100 * 366 * 86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "expected a number of seconds, or one with s, m, h or d".to_owned())
}

/// A moment.
pub(super) fn when(text: &str) -> Result<u64, String> {
    let wrong = || "expected now, a time in UTC as 2026-01-31T12:00:00Z, as \"2h ago\", or a Unix time".to_owned();
    moment::parse(text).ok_or_else(wrong)
}

/// The subcommand.
pub fn command() -> Command {
    let sub = |command: Command, about: &'static str| command.about(about);
    let command = TakeArgs::augment_args(Command::new("backup"))
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .subcommand(sub(
            FromArgs::augment_args(Command::new("list")),
            "Show what an archive has: bases, changes, restore points",
        ))
        .subcommand(sub(
            MergeArgs::augment_args(Command::new("merge")),
            "Make a new base of the newest one and the changes after it, in the archive alone",
        ))
        .subcommand(sub(
            PruneArgs::augment_args(Command::new("prune")),
            "Remove what no restore point of some time needs",
        ))
        .subcommand(sub(
            VerifyArgs::augment_args(Command::new("verify")),
            "Restore to an empty node that is started for it, compare every item, and note it down in the archive",
        ))
        .subcommand(sub(
            StatusArgs::augment_args(Command::new("status")),
            "Tell how old the newest restore point and the last verification are",
        ));
    command
        .about("Write what nodes hold, and what changes after it, into an archive that any moment is restored from")
        .after_help("Run again, it goes on where it was: nothing is read or written twice. See docs/backup.md.")
}

/// Runs the subcommand.
///
/// # Errors
/// As the functions of the backup crate.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    match matches.subcommand() {
        None => run::take(TakeArgs::from_arg_matches(matches)?),
        Some(("list", matches)) => look::list(&FromArgs::from_arg_matches(matches)?),
        Some(("merge", matches)) => run::merge(&MergeArgs::from_arg_matches(matches)?),
        Some(("prune", matches)) => run::prune(&PruneArgs::from_arg_matches(matches)?),
        Some(("verify", matches)) => verify::verify(&VerifyArgs::from_arg_matches(matches)?),
        Some(("status", matches)) => look::status(&StatusArgs::from_arg_matches(matches)?),
        _ => unreachable!("clap lets only known subcommands through"),
    }
}
