//! `moneta flash inspect`: looks at the devices of an SSD tier that no node is running on.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use moneta_device::inspect::inspect;

use crate::inspection;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The subcommand.
pub fn command() -> Command {
    let switch =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let look = Command::new("inspect")
        .about("Show what is on the devices of a tier: regions, records, live share, damage")
        .after_help(
            "Nothing is changed. A tier that a node is running on is refused. Ends with status 1 if there is damage.",
        )
        .arg(
            Arg::new("path")
                .value_name("PATH")
                .required(true)
                .num_args(1..)
                .value_parser(value_parser!(PathBuf))
                .help("The devices of the tier, as given to --flash, without sizes"),
        )
        .arg(switch("verify", "Read every record and check its checksum"))
        .arg(switch("regions", "List the regions, one a line"))
        .arg(switch("json", "Everything as JSON, regions included").conflicts_with("regions"));
    Command::new("flash")
        .about("Work on the devices of an SSD tier")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(look)
}

/// Runs it.
///
/// # Errors
/// If a device cannot be looked at, or damage is found.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let Some(("inspect", matches)) = matches.subcommand() else {
        unreachable!("clap lets only known subcommands through");
    };
    let paths: Vec<PathBuf> = matches.get_many("path").into_iter().flatten().cloned().collect();
    let verify = matches.get_flag("verify");
    let found = inspect(&paths, verify, progress())?;
    let text = if matches.get_flag("json") {
        inspection::as_json(&found, verify)?
    } else {
        inspection::as_text(&found, verify, matches.get_flag("regions"))
    };
    stdout().write_all(text.as_bytes())?;
    anyhow::ensure!(
        !inspection::has_damage(&found),
        "there is damage; a node counts and drops what is damaged, and serves the rest"
    );
    Ok(())
}

/// Shows progress on a terminal.
fn progress() -> impl FnMut(usize, usize) {
    let watched = stderr().is_terminal();
    let mut told = Instant::now();
    move |done, all| {
        if watched && told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            eprintln!("{done} of {all} regions");
        }
    }
}
