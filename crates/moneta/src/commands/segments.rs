//! `moneta segments`: what lies in an archive, as a table, as lines of JSON or as Parquet.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Read, Write, stdout};
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use moneta_feed::{Change, Set};
use moneta_segments::{Archive, Chain, Committed, SegmentReader};
use serde_json::{Map, Value, json};

use super::archives;
use super::moving::size;

/// Bytes of a block beside its values, when it is read.
const BLOCK_REST: usize = 2 << 20;

/// What is asked of an archive.
#[derive(Debug, Subcommand)]
enum Asked {
    /// List the chains and their segments
    Show(ShowArgs),
    /// Print all changes of a chain as lines of JSON, or as Parquet
    Export(ExportArgs),
}

/// What is listed.
#[derive(Debug, Args)]
struct ShowArgs {
    /// A directory, s3://BUCKET/PREFIX, gs://… or az://…
    #[arg(long, value_name = "DIR|URL")]
    from: String,
    /// Read all segments, and check each byte by its checksums
    #[arg(long)]
    verify: bool,
    /// The --value-max of the dump
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    value_max: u64,
    /// A line of JSON for each segment
    #[arg(long)]
    json: bool,
}

/// What is printed.
#[derive(Debug, Args)]
struct ExportArgs {
    /// A directory, s3://BUCKET/PREFIX, gs://… or az://…
    #[arg(long, value_name = "DIR|URL")]
    from: String,
    /// The chain, as `moneta segments show` names it
    #[arg(long, value_name = "NAME", default_value = "base")]
    chain: String,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    into: Option<String>,
    /// What is written: lines of JSON, or Parquet [default: parquet for a FILE that ends so, else json]
    #[arg(long, value_name = "FORMAT", value_parser = ["json", "parquet"])]
    format: Option<String>,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
    /// The --value-max of the dump
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = size)]
    value_max: u64,
}

/// The subcommand.
pub fn command() -> Command {
    Asked::augment_subcommands(Command::new("segments"))
        .about("Look into what `moneta dump` wrote")
        .subcommand_required(true)
        .after_help("See docs/segments.md.")
}

/// Lists or prints.
///
/// # Errors
/// If the archive cannot be read, is damaged, or has a hole; if there is no such chain.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    match Asked::from_arg_matches(matches)? {
        Asked::Show(args) => show(&args),
        Asked::Export(args) => export(&args),
    }
}

/// The chains of an archive, by their names.
fn chains(archive: &Arc<dyn Archive>) -> anyhow::Result<Vec<Chain>> {
    let names = archive.list("")?;
    let of_chain = |name: &String| {
        let (folder, file) = name.rsplit_once('/')?;
        (file == "DONE" || file.ends_with(".commit")).then(|| folder.to_owned())
    };
    let folders: BTreeSet<String> = names.iter().filter_map(of_chain).collect();
    folders.iter().map(|folder| Ok(Chain::open(Arc::clone(archive), folder)?)).collect()
}

fn block_max(value_max: u64) -> anyhow::Result<usize> {
    Ok(usize::try_from(value_max)?.saturating_add(BLOCK_REST))
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let archive = archives::to_read(&args.from)?;
    let mut out = stdout().lock();
    for chain in chains(&archive)? {
        if !args.json {
            let done = match chain.done() {
                Some(done) => format!("done, {} items", done.counts.sets),
                None => "goes on".to_owned(),
            };
            writeln!(out, "{}: {} segments, {done}", chain.name(), chain.segments().len())?;
        }
        for segment in chain.segments() {
            if args.verify {
                verify(&chain, segment, block_max(args.value_max)?)?;
            }
            let counts = segment.footer.counts;
            if args.json {
                let mut line = serde_json::to_value(segment)?;
                line["chain"] = chain.name().into();
                writeln!(out, "{line}")?;
            } else {
                writeln!(
                    out,
                    "  {:>6}  {:>12} B  {:>9} items  {:>7} deletes  {} … {}",
                    segment.number,
                    segment.length,
                    counts.sets,
                    counts.deletes,
                    if segment.from.is_empty() { "begin" } else { &segment.from }.escape_debug(),
                    segment.footer.to.escape_debug()
                )?;
            }
        }
    }
    Ok(())
}

fn verify(chain: &Chain, segment: &Committed, block_max: usize) -> anyhow::Result<()> {
    let mut reader = chain.read(segment, block_max)?;
    while reader.block()?.is_some() {}
    check_end(&reader, segment)
}

fn check_end<R: Read>(reader: &SegmentReader<R>, segment: &Committed) -> anyhow::Result<()> {
    match reader.footer() == Some(&segment.footer) {
        true => Ok(()),
        false => bail!("{} ends otherwise than its record says", segment.segment),
    }
}

fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let archive = archives::to_read(&args.from)?;
    let chain = Chain::open(archive, &args.chain)?;
    if chain.segments().is_empty() && chain.done().is_none() {
        bail!("{} has no chain {}", args.from, args.chain);
    }
    let mut out: Box<dyn Write + Send> = match &args.into {
        Some(path) => Box::new(File::create(path).with_context(|| format!("{path} cannot be written"))?),
        None => Box::new(stdout()),
    };
    let is_parquet = match (&args.format, &args.into) {
        (Some(format), _) => format == "parquet",
        (None, Some(path)) => path.ends_with(".parquet"),
        (None, None) => false,
    };
    let mut out = BufWriter::new(&mut out);
    if is_parquet {
        as_parquet(args, &chain, &mut out)?;
    } else {
        each(args, &chain, |change, read_at| Ok(writeln!(out, "{}", line(change, read_at, args.keys_only))?))?;
    }
    Ok(out.flush()?)
}

/// Goes through all changes of a chain, each with the Unix millisecond at which it was read.
fn each(
    args: &ExportArgs,
    chain: &Chain,
    mut with: impl FnMut(&Change, u64) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for segment in chain.segments() {
        let mut reader = chain.read(segment, block_max(args.value_max)?)?;
        while let Some(block) = reader.block()? {
            block.changes.iter().try_for_each(|change| with(change, block.read_at))?;
        }
        check_end(&reader, segment)?;
    }
    Ok(())
}

#[cfg(feature = "parquet")]
fn as_parquet(args: &ExportArgs, chain: &Chain, out: impl Write + Send) -> anyhow::Result<()> {
    let mut file = moneta_rows::changes::ChangesFile::begin(out)?;
    each(args, chain, |change, read_at| Ok(file.add(change, read_at, args.keys_only)?))?;
    Ok(file.end()?)
}

#[cfg(not(feature = "parquet"))]
fn as_parquet(_: &ExportArgs, _: &Chain, _: impl Write + Send) -> anyhow::Result<()> {
    bail!("this build writes no Parquet: it lacks the feature `parquet`")
}

/// A change as JSON. What is no text is told in base64, under another name.
fn line(change: &Change, read_at: u64, keys_only: bool) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    match change {
        Change::Set(Set { key, meta, value, as_of }) => {
            put("change", "set".into());
            text_or_base64("key", key, &mut put);
            put("flags", meta.flags.into());
            put("expires", meta.expiry.0.into());
            put("version", meta.cas.into());
            if meta.stale {
                put("stale", true.into());
            }
            put("read_at", as_of.unwrap_or(read_at).into());
            if let Some(value) = value {
                put("size", value.len().into());
                if !keys_only {
                    text_or_base64("value", value, &mut put);
                }
            }
        }
        Change::Delete { key, version } => {
            put("change", "delete".into());
            text_or_base64("key", key, &mut put);
            put("version", version.0.into());
        }
        Change::Flush(floor) => {
            put("change", "flush".into());
            put("version", floor.version.0.into());
            put("second", floor.second.into());
        }
        Change::Gap(gap) => {
            put("change", "gap".into());
            put("since", gap.since.into());
            put("cause", gap.cause.map_or(Value::Null, |cause| json!(cause.word())));
        }
        Change::Lost { until } => {
            put("change", "lost".into());
            put("until", (*until).into());
        }
    }
    Value::Object(fields)
}

fn text_or_base64(name: &str, bytes: &[u8], put: &mut impl FnMut(&str, Value)) {
    match std::str::from_utf8(bytes) {
        Ok(text) => put(name, text.into()),
        Err(_) => put(&format!("{name}_base64"), STANDARD.encode(bytes).into()),
    }
}
