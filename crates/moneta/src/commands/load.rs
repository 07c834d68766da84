//! `moneta load`: rows of files into servers; the work is the rows crate's.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_rows::format::Reading;
use moneta_rows::{LoadConfig, Loaded, Mapping, Totals, files};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::SIGABRT;
use signal_hook::flag;

use super::moving::{RateArgs, Screen, places, print, size};

/// What is loaded, and how.
#[derive(Debug, Args)]
struct LoadArgs {
    /// Files, directories and URLs of object stores: CSV, TSV, JSON lines, Parquet; but for Parquet perhaps with .gz or .zst after it
    #[arg(value_name = "FILE|DIR|URL", required = true)]
    files: Vec<PathBuf>,
    /// Where rows go: HOST:PORT or the path of a Unix socket; with --topology the name of a replica, or left out for all of them
    #[arg(long, value_name = "NODE", required_unless_present = "topology")]
    to: Option<String>,
    /// The topology whose replicas take the rows: a TOML file, or what else --topology of `moneta proxy` takes
    #[arg(long, value_name = "SOURCE")]
    topology: Option<String>,
    /// The column with the key; of several, with commas between them, the key has --separator between their values
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', required = true)]
    key: Vec<String>,
    /// The column with the value; of several, or * for all, the value is a JSON object of them
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', required = true)]
    value: Vec<String>,
    /// The column with the seconds that an item lives from when its chunk began; 0 or nothing: as --default-ttl says
    #[arg(long, value_name = "COLUMN")]
    ttl: Option<String>,
    /// Seconds that items live of which no column says it; 0: for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    default_ttl: u32,
    /// The column with the flags, from 0 to 4294967295
    #[arg(long, value_name = "COLUMN")]
    flags: Option<String>,
    /// Stands before each key
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Stands between the columns of the key
    #[arg(long, value_name = "TEXT", default_value = ":")]
    separator: String,
    /// What the files are, whatever their names say
    #[arg(long, value_name = "FORMAT", value_parser = ["csv", "tsv", "json", "parquet"])]
    format: Option<String>,
    /// The delimiter of CSV
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<char>,
    /// The names of the columns of CSV whose first line is a row
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// Keep in this file how far the load is: run again, it goes on there
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Send all rows again of a load that is done, under the versions that they had
    #[arg(long, requires = "checkpoint")]
    again: bool,
    /// Write bad rows to this file: a line of JSON for each, with file, row and reason
    #[arg(long, value_name = "FILE")]
    bad: Option<PathBuf>,
    /// End with an error at one bad row more [default: as many as come, if one is good]
    #[arg(long, value_name = "ROWS")]
    max_bad: Option<u64>,
    /// Largest value that is taken, in bytes or with k, m or g
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = size)]
    value_max: u64,
    /// The region of the rows' versions, if the nodes are older builds that do not tell theirs: their --region-id
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..16))]
    region: Option<u8>,
    #[command(flatten)]
    rate: RateArgs,
    /// End with an error where a file needs more memory than this, in bytes or with k, m or g
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = size)]
    memory_limit: u64,
    /// Print as the last line, as JSON, what became of the rows
    #[arg(long)]
    json: bool,
}

/// The subcommand.
pub fn command() -> Command {
    let command = LoadArgs::augment_args(Command::new("load"));
    command.about("Write the rows of CSV, JSON lines and Parquet files into a server, or into the replicas of a cluster").after_help(
        "A row is a write made when its chunk of 10,000 rows began: what clients write later stays. With --checkpoint a load that was \
         killed goes on where it was. See docs/loading.md.",
    )
}

/// Loads until all rows were read.
///
/// # Errors
/// As [`moneta_rows::load()`]; if a signal came before all was read.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let args = LoadArgs::from_arg_matches(matches)?;
    limit_memory(args.memory_limit)?;
    let format = args.format.as_deref().and_then(files::Format::named);
    let delimiter =
        args.delimiter.map(|one| u8::try_from(one).context("--delimiter is one ASCII character")).transpose()?;
    let value_max = usize::try_from(args.value_max)?;
    let config = LoadConfig {
        files: files::find(&args.files, format)?,
        mapping: Mapping {
            prefix: args.prefix,
            key: args.key,
            separator: args.separator,
            value: args.value,
            ttl: args.ttl,
            default_ttl: args.default_ttl,
            flags: args.flags,
            value_max,
        },
        reading: Reading {
            delimiter,
            names: args.columns,
            row_max: value_max.saturating_mul(2).saturating_add(1 << 20),
        },
        places: places(args.to.as_deref(), args.topology.as_deref())?,
        region: args.region,
        checkpoint: args.checkpoint,
        bad: args.bad,
        max_bad: args.max_bad,
        again: args.again,
        rate: args.rate.config()?,
    };
    let screen = Screen::new("load")?;
    let loaded = moneta_rows::load(&config, &screen);
    screen.end();
    let loaded = loaded?;
    print(&loaded, args.json, &words(&loaded))?;
    if loaded.done { Ok(()) } else { bail!("it was stopped before all rows were read") }
}

/// Bounds the memory of this process. A Parquet file says itself how large a page is, and a page of some KB may become one of GB.
fn limit_memory(bytes: u64) -> anyhow::Result<()> {
    // Without memory the process aborts, once it has said so: here that is an error as others are.
    flag::register_conditional_shutdown(SIGABRT, 1, Arc::new(AtomicBool::new(true)))?;
    let (soft, hard) = getrlimit(Resource::RLIMIT_DATA)?;
    setrlimit(Resource::RLIMIT_DATA, soft.min(bytes), hard).context("memory cannot be limited")
}

/// What became of the rows.
fn words(loaded: &Loaded) -> String {
    let Totals { rows, bad, stored, unchanged, superseded, unsure, bytes } = loaded.totals;
    let mut text = format!("{rows} rows, {bytes} bytes: {stored} stored");
    let reasons = [
        (unchanged, "there before"),
        (superseded, "older than what is there, or deleted since"),
        (unsure, "not created: a target may have forgotten deletes since"),
        (bad, "bad"),
    ];
    for (count, what) in reasons.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {what}");
    }
    text
}
