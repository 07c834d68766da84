//! `moneta bench`: puts a load on any memcached server; all of it is the bench crate's.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_bench::address;
use moneta_bench::cli::{self, BenchArgs};

use crate::outward;

/// The subcommand.
pub fn command() -> Command {
    BenchArgs::augment_args(Command::new("bench").about("Put a load on a memcached server and measure it"))
}

/// Runs it.
///
/// # Errors
/// As the bench crate says.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    address::reach_by(outward::of_command());
    Ok(cli::run(BenchArgs::from_arg_matches(matches)?)?)
}
