//! `moneta restore`: an archive into nodes; the work is the backup crate's.

use std::io::{BufRead, IsTerminal, stdin};
use std::path::PathBuf;

use anyhow::bail;
use clap::{ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use moneta_backup::moment;
use moneta_backup::restore::{RestoreConfig, Restored, points, restore};
use moneta_bulk::Watch;

use super::archives;
use super::backup::{opened, when};
use super::moving::{RateArgs, Screen, places, print, size, written_words};

/// What is restored, and how.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("how").required(true).args(["fill", "rollback"])))]
struct RestoreArgs {
    /// The archive that `moneta backup` wrote
    #[arg(long, value_name = "DIR|URL")]
    from: String,
    /// Where items go: HOST:PORT or the path of a Unix socket; with --topology the name of a replica, or left out for all of them
    #[arg(long, value_name = "NODE", required_unless_present = "topology")]
    to: Option<String>,
    /// The topology whose replicas take the items: a TOML file, or what else --topology of `moneta proxy` takes
    #[arg(long, value_name = "SOURCE")]
    topology: Option<String>,
    /// To the last restore point at or before then: now, 2026-01-31T12:00:00Z, "2h ago", a Unix time
    #[arg(long, value_name = "TIME", value_parser = when)]
    at: u64,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Keep versions, and replace nothing newer
    #[arg(long)]
    fill: bool,
    /// Flush first, then write items just above the flush; with --prefix delete the keys that begin so first
    #[arg(long)]
    rollback: bool,
    /// Roll back without being asked
    #[arg(long, requires = "rollback")]
    yes: bool,
    /// The file with the age key that reads the archive
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The region of a rollback's versions, if the nodes are older builds that do not tell theirs: their --region-id
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..16))]
    region: Option<u8>,
    #[command(flatten)]
    rate: RateArgs,
    /// The --value-max of the backup
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    value_max: u64,
    /// Print as the last line, as JSON, what became of the items
    #[arg(long)]
    json: bool,
}

/// The subcommand.
pub fn command() -> Command {
    let command = RestoreArgs::augment_args(Command::new("restore"));
    command.about("Write what nodes held at a moment, from an archive of `moneta backup`, into a server or the replicas of a cluster").after_help(
        "All that is needed is read before a target is changed. Killed, it is run again. See docs/backup.md.",
    )
}

/// Restores until all is there.
///
/// # Errors
/// As [`restore`]; if the user does not confirm a rollback; if a signal came before all was there.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let args = RestoreArgs::from_arg_matches(matches)?;
    let archive = opened(archives::to_read(&args.from)?, args.identity.as_deref())?;
    let config = RestoreConfig {
        places: places(args.to.as_deref(), args.topology.as_deref())?,
        at: args.at,
        prefix: args.prefix.clone().into_bytes(),
        rolls_back: args.rollback,
        region: args.region,
        rate: args.rate.config()?,
        value_max: usize::try_from(args.value_max)?,
    };
    for point in points(&archive, config.at)? {
        eprintln!("moneta restore: {} as of {}", point.slot, moment::text(point.watermark));
    }
    if args.rollback && !args.yes {
        confirm(&config)?;
    }
    let screen = Screen::new("restore")?;
    if !args.rollback {
        screen.note("what was deleted at a target since then lives again where its nodes have forgotten the delete");
    }
    let restored = restore(&config, &archive, &screen);
    screen.end();
    let restored = restored?;
    print(&restored, args.json, &words(&restored))?;
    if restored.done { Ok(()) } else { bail!("it was stopped before all was restored: run it again") }
}

/// Asks the user; without a terminal that is a refusal.
fn confirm(config: &RestoreConfig) -> anyhow::Result<()> {
    let names: Vec<&str> = config.places.iter().map(|place| &*place.name).collect();
    let what = match config.prefix.is_empty() {
        true => "everything".to_owned(),
        false => format!("every key that begins with {}", config.prefix.escape_ascii()),
    };
    if !stdin().is_terminal() {
        bail!("--rollback removes {what} from {}: say --yes", names.join(", "));
    }
    eprint!("This removes {what} from {}, and then writes the backup. Type yes to go on: ", names.join(", "));
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { bail!("nothing was changed") }
}

fn words(restored: &Restored) -> String {
    let (items, bytes) = (restored.read.items, restored.read.bytes);
    let expired = if restored.expired > 0 { format!(", {} expired since", restored.expired) } else { String::new() };
    format!("restored: {items} items, {bytes} bytes{expired}\ntarget: {}", written_words(&restored.written))
}
