//! `moneta repair`: finds where two nodes, copies or regions differ by digests, and repairs it; the work is the repair crate's.

mod args;
pub mod job;
mod pair;
mod words;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_bulk::Watch as _;
use moneta_repair::done::Done;
use moneta_repair::{Goal, RepairConfig, Report, Watch};

use self::args::RepairArgs;
pub use self::pair::Pair;
pub use self::words::in_words;
use super::moving::{Screen, print};
use crate::outward;

/// Exit status if keys differed that were not repaired, or not all was compared.
const INCOMPLETE: u8 = 2;

/// The subcommand.
pub fn command() -> Command {
    let command = RepairArgs::augment_args(Command::new("repair"));
    command.about("Find where two nodes, copies or regions differ, and repair it: the newer version wins").after_help(
        "What one side lacks is no difference, unless it remembers that it was deleted: each side evicts by itself. It may be run again and \
         beside clients. Ends with status 0, and 2 if not all could be compared or repaired. docs/repair.md says more.",
    )
}

/// Runs it; the exit status tells whether all was compared and repaired.
///
/// # Errors
/// If a node tells no digest, or an argument names none.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let args = RepairArgs::from_arg_matches(matches)?;
    if let Some(app) = &args.app {
        return job::begin(&args, app);
    }
    let outward = outward::of_command();
    let pair = Pair::of(&args, &outward)?;
    let config = RepairConfig {
        goal: args.since_moment().map_or(Goal::Full, Goal::Since),
        lag: Duration::from_secs(args.lag),
        buckets: args.buckets,
        prefix: args.prefix.clone(),
        rate: args.rate,
        only_looks: args.dry_run,
        takes_rollbacks: args.to_topology.is_none(),
        done: args.state_file.as_deref().and_then(Done::read),
    };
    let screen = Screen::new("repair")?;
    let watch = OnScreen { screen: &screen, file: args.state_file.as_deref() };
    let ended = moneta_repair::repair(&pair.a, &pair.b, &config, &watch);
    screen.end();
    pair.close();
    let report = ended?;
    print(&report, args.json, &in_words(&report, args.dry_run))?;
    let is_whole = report.done && report.failed == 0 && report.refused == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { INCOMPLETE.into() })
}

struct OnScreen<'s> {
    screen: &'s Screen,
    /// Where it is kept how far it is.
    file: Option<&'s Path>,
}

impl Watch for OnScreen<'_> {
    fn note(&self, text: &str) {
        self.screen.note(text);
    }

    fn should_stop(&self) -> bool {
        self.screen.should_stop()
    }

    fn keep(&self, done: Option<&Done>, _: &Report) -> io::Result<()> {
        let Some(path) = self.file else { return Ok(()) };
        let in_file = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        match done {
            Some(done) => done.write(path).map_err(in_file),
            None => {
                // What is left there begins anew by itself once it is no part of what is wanted.
                let _ = std::fs::remove_file(path);
                Ok(())
            }
        }
    }
}
