//! `moneta dump`: what a server holds into files, and what changes after it; the work is the bulk crate's.

use anyhow::bail;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_bulk::DumpConfig;
use moneta_bulk::dump::ADVANCE_EVERY;
use moneta_feed::Buckets;
use moneta_net::Address;

use super::archives;
use super::moving::{RateArgs, Screen, endpoint, print, read_words, size, which};

/// What is dumped, and how.
#[derive(Debug, Args)]
struct DumpArgs {
    /// The server: HOST:PORT, or the path of its Unix socket; of a node with an SSD tier best its batch port
    #[arg(value_name = "NODE", value_parser = |text: &str| text.parse::<Address>())]
    node: Address,
    /// What takes the files: a directory, made if it is not there; s3://BUCKET/PREFIX, gs://… or az://…; nowhere:, to measure
    #[arg(long, value_name = "DIR|URL")]
    into: String,
    /// Go on with what changes, until a signal; of a node with --cluster
    #[arg(long)]
    follow: bool,
    /// List the keys also of a node whose feed tells all that it holds: for a target that knows no versions
    #[arg(long)]
    walk: bool,
    /// Only items with more than so many seconds to live
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    ttl_over: u32,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Only keys in these of the 65,536 buckets of a ring of slots: FIRST-LAST
    #[arg(long, value_name = "BUCKETS", value_parser = |text: &str| text.parse::<Buckets>())]
    slots: Option<Buckets>,
    #[command(flatten)]
    rate: RateArgs,
    /// Largest value that is taken, in bytes or with k, m or g
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    value_max: u64,
    /// Bytes after which a file ends and another begins
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    segment_size: u64,
    /// Write values as they are, and not compressed by zstd
    #[arg(long)]
    no_compression: bool,
    /// Print as the last line, as JSON, what was read and what was left out
    #[arg(long)]
    json: bool,
}

/// The subcommand.
pub fn command() -> Command {
    let command = DumpArgs::augment_args(Command::new("dump"));
    command.about("Write what a server holds, and what changes after it, into files").after_help(
        "Killed, it goes on where it was, or begins anew where the server has but a list of keys to offer. See docs/bulk.md.",
    )
}

/// Dumps until all is there; with `--follow` until a signal.
///
/// # Errors
/// As [`moneta_bulk::dump()`]; if another process dumps there; if a signal came before all was there.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let args = DumpArgs::from_arg_matches(matches)?;
    let archive = archives::to_dump(&args.into)?;
    archives::refuse_backups(&*archive, &args.into)?;
    let _alone = archives::alone(&archive, &args.into)?;
    let config = DumpConfig {
        node: endpoint(args.node),
        name: None,
        which: which(&args.prefix, args.slots, args.ttl_over),
        follow: args.follow,
        failures: None,
        walk: args.walk,
        rate: args.rate.config()?,
        value_max: usize::try_from(args.value_max)?,
        segment_bytes: args.segment_size,
        compresses: !args.no_compression,
        advance_every: ADVANCE_EVERY,
        tells_quiet: false,
    };
    let screen = Screen::new("dump")?;
    let dumped = moneta_bulk::dump(&config, &archive, &screen);
    screen.end();
    let dumped = dumped?;
    let mut text = format!("base: {}", read_words(&dumped.base));
    if args.follow {
        text += &format!("\nchanges: {}", read_words(&dumped.changes));
    }
    print(&dumped, args.json, &text)?;
    if dumped.done { Ok(()) } else { bail!("it was stopped before the base was done") }
}
