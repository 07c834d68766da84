//! `moneta size`: the cheapest nodes for a load, and the curve of misses it stands on.

mod print;
mod source;

use std::io::{Write, stdout};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use moneta_bench::popularity::Popularity;
use moneta_options::kinds::units;
use moneta_sizing::{Limits, Load, Prices, Wanted, plans};
use serde_json::json;

use source::Source;

/// The subcommand.
pub fn command() -> Command {
    let number = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(f64));
    let bytes = |name: &'static str, default: &'static str| {
        Arg::new(name).long(name).value_name("SIZE").default_value(default).value_parser(bytes)
    };
    Command::new("size")
        .about("Find the cheapest nodes for a load: how many, how much RAM and SSD each, and why")
        .after_help("docs/size.md has what it takes into account, and what not. Prices are for the same time, as a month, in any currency.")
        .group(ArgGroup::new("load").args(["items", "from", "trace"]).required(true))
        .arg(number("items").value_name("N").value_parser(value_parser!(u64).range(1..)).help("A load of so many items"))
        .arg(
            Arg::new("from").long("from").value_name("ADDRESS").help("What a node has measured, by its admin address: its curve, sizes and rates"),
        )
        .arg(Arg::new("trace").long("trace").value_name("FILE").value_parser(value_parser!(PathBuf)).help(
            "A recorded trace (.lis or oracleGeneral, plain or .zst): gets, of which each that misses is followed by a set",
        ))
        .arg(bytes("value-size", "1000").help("Bytes of a value (--items)"))
        .arg(bytes("key-size", "30").help("Bytes of a key (--items, --trace)"))
        .arg(
            Arg::new("popularity").long("popularity").value_name("KIND").default_value("zipf").value_parser(popularity)
                .help("How requests spread over items (--items): uniform, zipf (0.99) or zipf:THETA"),
        )
        .arg(
            Arg::new("ttl").long("ttl").value_name("TIME").value_parser(seconds)
                .conflicts_with_all(["from", "trace"])
                .help("How long an item lives after its set (--items) [default: for ever]"),
        )
        .arg(
            Arg::new("fleet").long("fleet").value_name("N").default_value("1").value_parser(value_parser!(u32).range(1..=10_000))
                .conflicts_with_all(["items", "trace"])
                .help("Nodes like it that share the keys (--from)"),
        )
        .arg(number("rate").value_name("N").help("Gets a second at the peak [default: 100000; of a node its own]"))
        .arg(number("sets").value_name("N").help("Sets a second at the peak [default: one for each miss; of a node its own]"))
        .arg(
            Arg::new("keep").long("keep").value_name("TIME").default_value("0").value_parser(seconds)
                .help("How long an item shall stay on SSD though it is not read; 0: as long as the hit rate takes"),
        )
        .arg(number("hit-rate").value_name("SHARE").value_parser(share).help("The share of gets to be hits, 0 to 1 [default: 0.01 below the most there can be]"))
        .arg(number("ram-hit-rate").value_name("SHARE").value_parser(share).default_value("0").help("The share of gets that RAM is to answer at least"))
        .arg(number("ram-price").value_name("PRICE").value_parser(price).default_value("3").help("Of a GiB of RAM"))
        .arg(number("ssd-price").value_name("PRICE").value_parser(price).default_value("0.1").help("Of a GiB of SSD"))
        .arg(number("node-price").value_name("PRICE").value_parser(price).default_value("50").help("Of a node beside its RAM and SSD"))
        .arg(bytes("node-ram", "64g").help("RAM that a node can have"))
        .arg(bytes("node-ssd", "3500g").help("SSD that a node can have; 0 for RAM alone"))
        .arg(number("node-requests").value_name("N").default_value("400000").help("Requests a second that a node can answer"))
        .arg(number("node-ssd-reads").value_name("N").default_value("100000").help("Reads a second of a node's devices"))
        .arg(
            Arg::new("copies").long("copies").value_name("N").default_value("1").value_parser(value_parser!(u32).range(1..=16))
                .help("Copies of the data, one in each zone: each has so many nodes, and is sized for all gets"),
        )
        .arg(Arg::new("curve").long("curve").action(ArgAction::SetTrue).help("Show the curve of misses over RAM in place of a plan"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON"))
}

fn bytes(text: &str) -> Result<u64, &'static str> {
    units::size(text, 1).ok_or("expected a size such as 1000, 4k, 64g")
}

fn seconds(text: &str) -> Result<u64, &'static str> {
    units::seconds(text).ok_or("expected a time such as 90, 15m, 2d")
}

fn share(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or("expected a share from 0 to 1")
}

fn price(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|price| (0.0..1e12).contains(price)).ok_or("expected a price, 0 or more")
}

fn popularity(text: &str) -> Result<f64, String> {
    match Popularity::parse(text)? {
        Popularity::Uniform => Ok(0.0),
        Popularity::Zipf { theta } => Ok(theta),
        _ => Err("expected uniform, zipf or zipf:THETA".into()),
    }
}

/// Prints the plans, the cheapest first, or the curve.
///
/// # Errors
/// If the node or the trace does not tell its load, or no nodes can serve it as wanted.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let number = |name: &str| matches.get_one::<f64>(name).copied();
    let of = |name: &str| number(name).expect("it has a default");
    let size = |name: &str| *matches.get_one::<u64>(name).expect("it has a default") as f64;
    let source = Source::of(matches)?;
    let mut out = stdout().lock();
    if matches.get_flag("curve") {
        match matches.get_flag("json") {
            true => writeln!(out, "{}", serde_json::to_string(&source.curve)?)?,
            false => print::curve(&mut out, &source)?,
        }
        return Ok(out.flush()?);
    }
    let reachable = 1.0 - source.curve.floor();
    let hit_rate = number("hit-rate").unwrap_or((reachable - 0.01).max(0.0));
    let wanted = Wanted { hit_rate, ram_hit_rate: of("ram-hit-rate") };
    let sets = number("sets").or(source.sets).unwrap_or((1.0 - hit_rate) * source.gets);
    let keep = *matches.get_one::<u64>("keep").expect("it has a default") as f64;
    let load = Load { curve: source.curve.clone(), gets: source.gets, sets, item_bytes: source.item_bytes, stay: keep };
    let prices = Prices { ram: of("ram-price"), ssd: of("ssd-price"), node: of("node-price") };
    let limits = Limits {
        ram: size("node-ram"),
        ssd: size("node-ssd"),
        requests: of("node-requests"),
        ssd_reads: of("node-ssd-reads"),
    };
    let found = plans(&load, &wanted, &prices, &limits).context("no nodes serve this load")?;
    let copies: u32 = *matches.get_one("copies").expect("it has a default");
    if matches.get_flag("json") {
        let page = json!({
            "about": source.about,
            "gets": load.gets,
            "sets": load.sets,
            "item_bytes": load.item_bytes,
            "reachable": reachable,
            "hit_rate": wanted.hit_rate,
            "copies": copies,
            "plans": found,
        });
        writeln!(out, "{page}")?;
    } else {
        print::plans(&mut out, &source, &load, &wanted, copies, &found)?;
    }
    Ok(out.flush()?)
}
