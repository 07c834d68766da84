//! `moneta feed`: prints what changes on a node, or applies it to another.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_feed::{Buckets, Codec, Request, Wanted};
use moneta_net::Address;
use moneta_options::kinds::units;
use serde::Deserialize;

use self::admin::{AdminSource, WAIT};
pub(super) use self::admin::{now, reachable};
use self::print::{Printer, escaped, words};
use self::run::{Reader, Start, pump};
use self::target::Target;
use crate::admin_port;

mod admin;
mod print;
mod run;
mod target;

/// What is to be read, and what to do with it.
#[derive(Debug, Args)]
struct FeedArgs {
    /// The admin address of the node whose changes are read: HOST:PORT
    #[arg(value_name = "ADMIN")]
    source: String,
    /// Apply the changes to this node: its HOST:PORT or the path of its Unix socket; best its batch port
    #[arg(long, value_name = "NODE", value_parser = |text: &str| text.parse::<Address>())]
    into: Option<Address>,
    /// Begin so long ago, as 30s, 5m or 2h [default: now; with --into a minute ago]
    #[arg(long, value_name = "TIME", value_parser = ago)]
    from: Option<Duration>,
    /// Go on with changes as they come, until a signal; --into always does
    #[arg(long)]
    follow: bool,
    /// Begin where this file says, and keep in it how far it has come
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// Only what was written in this region, 0 to 15
    #[arg(long, value_name = "REGION")]
    region: Option<u8>,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Only keys in these of the 65,536 buckets of a ring of slots: FIRST-LAST
    #[arg(long, value_name = "BUCKETS", value_parser = |text: &str| text.parse::<Buckets>())]
    slots: Option<Buckets>,
    /// Print values too, in base64
    #[arg(long)]
    values: bool,
    /// Print the lines of JSON as the node sends them
    #[arg(long)]
    json: bool,
    /// Have the node compress what it sends, by zstd: for readers far away
    #[arg(long)]
    compress: bool,
    /// Largest value that is taken, in bytes or with k, m or g [default: 64m]
    #[arg(long, value_name = "SIZE", default_value = "64m", hide_default_value = true, value_parser = size)]
    value_max: u64,
    /// The name under which the node lists this reader
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// The subcommand `list`.
#[derive(Debug, Args)]
struct ListArgs {
    /// The admin address of the node: HOST:PORT
    #[arg(value_name = "ADMIN")]
    source: String,
}

/// A reader of a node's feed, as the node lists it.
#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
    cursor: String,
    lag: Option<u64>,
    seen: u64,
    bytes: u64,
    connected: bool,
}

/// So long ago, as 30s, 5m or 2h.
pub(super) fn ago(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number with s, m or h, as 5m".to_owned();
    let split = text.len().checked_sub(1).filter(|at| text.is_char_boundary(*at)).ok_or_else(wrong)?;
    let seconds = match &text[split..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number = text[..split].parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    number.map(Duration::from_secs).ok_or_else(wrong)
}

fn size(text: &str) -> Result<u64, String> {
    units::size(text, 1)
        .filter(|size| *size > 0)
        .ok_or_else(|| "expected a number of bytes, or one with k, m or g".to_owned())
}

/// The subcommand.
pub fn command() -> Command {
    let list = ListArgs::augment_args(Command::new("list"));
    let list = list.about("List the readers of a node's feed that have a name, and how far behind they are");
    let command = FeedArgs::augment_args(Command::new("feed")).subcommand(list);
    let command = command.subcommand_negates_reqs(true).args_conflicts_with_subcommands(true);
    command.about("Print what changes on a node of a cluster, or apply it to another node").after_help(
        "With --into the other node takes what is newer than what it has: the simplest replication there is. Both nodes run with \
         --cluster. After a gap (the reader was away for longer than --feed-memory reaches) it says so and goes on: compare both \
         nodes with `moneta verify` then.",
    )
}

/// Reads and prints or applies until the end, or a signal. With `--into` or `--follow` it waits for nodes that are not there yet.
///
/// # Errors
/// If the node cannot be asked at first, or refuses; if the other node is none that knows versions, or the same.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    if let Some(("list", matches)) = matches.subcommand() {
        return list(&ListArgs::from_arg_matches(matches)?.source);
    }
    let args = FeedArgs::from_arg_matches(matches)?;
    let start = Start::of(&args)?;
    match &args.into {
        None => {
            let source = AdminSource::new(&args.source, args.request(), args.value_max, Box::new(|_| Ok(())))?;
            pump(source, Printer::new(args.json), start, Reader::printing(&args))
        }
        Some(address) => {
            let target = Target::new(address.clone());
            let sink = target.sink()?;
            target.wait()?;
            let (read, written) = (args.source.clone(), target.clone());
            let check = move |number| {
                written.refuse_source(&read, number)?;
                eprintln!("moneta feed: follows {read}; what is newer goes to {}", written.address());
                Ok(())
            };
            let source = AdminSource::new(&args.source, args.request(), args.value_max, Box::new(check))?;
            pump(source, sink, start, Reader::applying(&args, target))
        }
    }
}

impl FeedArgs {
    /// What the node is asked for, but for the place.
    fn request(&self) -> Request {
        let is_applied = self.into.is_some();
        Request {
            wanted: Wanted {
                values: self.values || is_applied,
                prefix: self.prefix.as_bytes().to_vec(),
                region: self.region,
                buckets: self.slots,
                current: false,
            },
            follow: self.follow || is_applied,
            compress: self.compress.then_some(Codec::Zstd),
            name: self.name.clone(),
            ..Request::default()
        }
    }
}

/// Prints the readers of a node's feed.
fn list(source: &str) -> anyhow::Result<()> {
    let request = admin_port::client(source, WAIT)?.get("/feed/readers");
    let answer = request.send().with_context(|| format!("{source} does not answer"))?;
    let is_success = answer.is_success();
    let text = answer.text().context("the answer is cut short")?;
    if !is_success {
        bail!("{source}: {}", words(&text));
    }
    let readers: Vec<Listed> = serde_json::from_str(&text).context("not a list of readers")?;
    let mut out = stdout().lock();
    writeln!(out, "{:24} {:>10} {:>12} {:>14} {:10} cursor", "reader", "lag ms", "seen ms ago", "bytes", "connected")?;
    for Listed { name, cursor, lag, seen, bytes, connected } in readers {
        let lag = lag.map_or_else(|| "unknown".to_owned(), |lag| lag.to_string());
        let (name, cursor) = (escaped(&name), escaped(&cursor));
        let (seen, connected) = (now().saturating_sub(seen), if connected { "yes" } else { "no" });
        writeln!(out, "{name:24} {lag:>10} {seen:>12} {bytes:>14} {connected:10} {cursor}")?;
    }
    Ok(())
}
