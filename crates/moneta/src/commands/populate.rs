//! `moneta populate`: files into a node or the nodes of a copy; the work is the bulk crate's.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_bulk::{PopulateConfig, Share};
use moneta_feed::Buckets;
use moneta_segments::Pulse;

use super::archives;
use super::moving::{RateArgs, Screen, place, print, read_words, size, which, written_words};

/// What is populated, and how.
#[derive(Debug, Args)]
struct PopulateArgs {
    /// Where `moneta dump`, or Netflix's Cachemover, wrote: a directory, s3://BUCKET/PREFIX, gs://… or az://…
    #[arg(long, value_name = "DIR|URL")]
    from: String,
    /// Share the segments with all who name the same, from the first one on; a second time, or for a second target, name another
    #[arg(long, value_name = "NAME", conflicts_with_all = ["cursor_file"])]
    share: Option<String>,
    /// How many seconds one of those may give no sign of life until another takes its segment
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(6..=3600))]
    share_patience: u64,
    /// Before each look for segments run this line by sh: what refreshes a mount
    #[arg(long, value_name = "COMMAND")]
    refresh: Option<String>,
    /// Where items go: HOST:PORT or the path of a Unix socket; with --topology the name of a replica
    #[arg(long, value_name = "NODE")]
    to: String,
    /// The topology whose replica --to names: a TOML file, or what else --topology of `moneta proxy` takes
    #[arg(long, value_name = "SOURCE")]
    topology: Option<String>,
    /// After the base apply its changes, as they come, until a signal
    #[arg(long)]
    follow: bool,
    /// Create only what cannot have been deleted since it was read, as far as the target remembers deletes
    #[arg(long)]
    strict: bool,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Only keys in these of the 65,536 buckets of a ring of slots: FIRST-LAST
    #[arg(long, value_name = "BUCKETS", value_parser = |text: &str| text.parse::<Buckets>())]
    slots: Option<Buckets>,
    #[command(flatten)]
    rate: RateArgs,
    /// The --value-max of the dump
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    value_max: u64,
    /// Begin where this file says, and keep in it how far it has come
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// Read files of Cachemover also where their MD5 is not the one in their name
    #[arg(long)]
    any_sum: bool,
    /// Print as the last line, as JSON, what was read and what became of it
    #[arg(long)]
    json: bool,
}

/// The subcommand.
pub fn command() -> Command {
    let command = PopulateArgs::augment_args(Command::new("populate"));
    command.about("Write the files of `moneta dump` into a server, or into a replica of a cluster").after_help(
        "Nothing newer is replaced, so it may be run again and beside clients. Without --follow, what was deleted since the files \
         were written lives again, unless --strict. See docs/bulk.md.",
    )
}

/// Populates until all is there; with `--follow` until a signal.
///
/// # Errors
/// As [`moneta_bulk::populate()`]; if a signal came before all was there.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let args = PopulateArgs::from_arg_matches(matches)?;
    let archive = match &args.share {
        Some(_) => archives::to_write(&args.from)?,
        None => archives::to_read(&args.from)?,
    };
    let archive = match args.refresh {
        Some(line) => archives::refreshed(archive, line),
        None => archive,
    };
    let config = PopulateConfig {
        place: place(&args.to, args.topology.as_deref())?,
        which: which(&args.prefix, args.slots, 0),
        follow: args.follow,
        strict: args.strict,
        rate: args.rate.config()?,
        value_max: usize::try_from(args.value_max)?,
        cursor_file: args.cursor_file,
        any_sum: args.any_sum,
        share: args.share.map(|name| Share {
            name,
            pulse: Pulse::of(Duration::from_secs(args.share_patience)),
            one_target: true,
        }),
    };
    let screen = Screen::new("populate")?;
    let populated = moneta_bulk::populate(&config, &archive, &screen);
    screen.end();
    let populated = populated?;
    let mut text = format!("base: {}", read_words(&populated.base));
    if args.follow {
        text += &format!("\nchanges: {}", read_words(&populated.changes));
    }
    text += &format!("\ntarget: {}", written_words(&populated.written));
    print(&populated, args.json, &text)?;
    if populated.done { Ok(()) } else { bail!("it was stopped before the base was read") }
}
