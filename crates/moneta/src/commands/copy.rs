//! `moneta copy`: servers into servers, without files; the work is the bulk crate's.

use anyhow::bail;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_bulk::CopyConfig;
use moneta_feed::Buckets;

use super::moving::{RateArgs, Screen, place, print, read_words, size, which, written_words};

/// What is copied, and how.
#[derive(Debug, Args)]
struct CopyArgs {
    /// Whose items: HOST:PORT or the path of a Unix socket; with --topology the name of a replica
    #[arg(long, value_name = "NODE")]
    from: String,
    /// Where they go, in the same way
    #[arg(long, value_name = "NODE")]
    to: String,
    /// The topology whose replicas --from and --to name: a TOML file, or what else --topology of `moneta proxy` takes
    #[arg(long, value_name = "SOURCE")]
    topology: Option<String>,
    /// The topology whose replica --to names, if it is another one
    #[arg(long, value_name = "SOURCE")]
    to_topology: Option<String>,
    /// After what is there copy what changes, until a signal; of nodes with --cluster
    #[arg(long)]
    follow: bool,
    /// Create only what cannot have been deleted since it was read, as far as the target remembers deletes
    #[arg(long)]
    strict: bool,
    /// List the keys also of nodes whose feed tells all that they hold
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
    /// Print as the last line, as JSON, what was read and what became of it
    #[arg(long)]
    json: bool,
}

/// The subcommand.
pub fn command() -> Command {
    let command = CopyArgs::augment_args(Command::new("copy"));
    command.about("Copy what a server or a replica holds to another, each key to the node that has it there").after_help(
        "Nothing newer is replaced, so it may be run again and beside clients. It keeps no files: killed, it begins anew. See \
         docs/bulk.md.",
    )
}

/// Copies until all is there; with `--follow` until a signal.
///
/// # Errors
/// As [`moneta_bulk::copy()`]; if a signal came before all was there.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let args = CopyArgs::from_arg_matches(matches)?;
    let topology = args.topology.as_deref();
    let config = CopyConfig {
        from: place(&args.from, topology)?,
        to: place(&args.to, args.to_topology.as_deref().or(topology))?,
        which: which(&args.prefix, args.slots, args.ttl_over),
        follow: args.follow,
        failures: None,
        strict: args.strict,
        walk: args.walk,
        rate: args.rate.config()?,
        value_max: usize::try_from(args.value_max)?,
    };
    let screen = Screen::new("copy")?;
    let copied = moneta_bulk::copy(&config, &screen);
    screen.end();
    let copied = copied?;
    let mut text = format!("read: {}", read_words(&copied.base));
    if args.follow {
        text += &format!("\nchanges: {}", read_words(&copied.changes));
    }
    text += &format!("\ntarget: {}", written_words(&copied.written));
    print(&copied, args.json, &text)?;
    if copied.done { Ok(()) } else { bail!("it was stopped before all was copied") }
}
