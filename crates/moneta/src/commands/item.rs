//! `moneta get`, `set`, `delete`, `touch`, `meta` and `stats`: one request to one server, from a shell.
//!
//! Exit status: 0 if it was done; 1 if the server is not reached or fails; 3 if nothing is under the key, or a condition does not
//! hold.

mod found;
mod statistics;

use std::io::{Read as _, Write, stdin, stdout};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use moneta_client::wire::blocking::Dialogue;
use moneta_client::wire::{Answer, Read, Request, VALUE_LIMIT, Verb};
use moneta_net::Address;
use moneta_options::kinds::units;
use moneta_store::request::{Delete, Exptime, KEY_MAX, Retrieve, Write as WriteRequest, WriteMode};

use super::moving::endpoint;

/// Exit status if nothing is under the key, or a condition does not hold.
const NOT_DONE: u8 = 3;
/// The commands' names.
pub const NAMES: [&str; 6] = ["get", "set", "delete", "touch", "meta", "stats"];

/// The subcommands.
pub fn commands() -> [Command; 6] {
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print it as JSON");
    let ttl = || Arg::new("ttl").value_name("TTL").value_parser(seconds);
    let cas = || {
        let cas = Arg::new("cas").long("cas").value_name("CAS").value_parser(value_parser!(u64));
        cas.help("Only if the item's CAS value is this one")
    };
    let modes = PossibleValuesParser::new(MODES.map(|(name, _)| name));
    [
        keyed(Command::new("get").about("Print the value under a key, as it is; exit status 3 if there is none"))
            .arg(json()),
        keyed(Command::new("set").about("Store a value; exit status 3 if a condition does not hold"))
            .arg(Arg::new("value").value_name("VALUE").help("The value [default: standard input to its end]"))
            .arg(ttl().long("ttl").help("Time to live, as 90, 15m, 8h or 30d [default: for ever]"))
            .arg(
                Arg::new("flags").long("flags").value_name("N").default_value("0").value_parser(value_parser!(u32))
                    .help("Client flags"),
            )
            .arg(
                Arg::new("mode").long("mode").value_name("MODE").default_value("set").value_parser(modes)
                    .help("set: whatever is there; add: if nothing is; replace, append, prepend: if something is"),
            )
            .arg(cas()),
        keyed(Command::new("delete").about("Delete the item under a key; exit status 3 if there is none")).arg(cas()),
        keyed(Command::new("touch").about("Give an item another time to live; exit status 3 if there is none"))
            .arg(ttl().required(true).help("The time to live from now on, as 90, 15m, 8h or 30d; 0 is for ever")),
        keyed(
            Command::new("meta")
                .about("Print what a server tells of an item but its value; exit status 3 if there is none")
                .long_about("Print what a server tells of an item but its value; exit status 3 if there is none. Looking changes nothing."),
        )
        .arg(json()),
        at_server(Command::new("stats").about("Print a group of a server's statistics"))
            .arg(
                Arg::new("group").value_name("GROUP").num_args(0..).value_parser(word)
                    .help("settings, items, slabs, conns, hotkeys, … [default: the general ones]"),
            )
            .arg(json()),
    ]
}

const MODES: [(&str, WriteMode); 5] = [
    ("set", WriteMode::Set),
    ("add", WriteMode::Add),
    ("replace", WriteMode::Replace),
    ("append", WriteMode::Append),
    ("prepend", WriteMode::Prepend),
];

fn at_server(command: Command) -> Command {
    let server = Arg::new("server").long("server").value_name("HOST:PORT|PATH").default_value("127.0.0.1:11211");
    command.arg(server.value_parser(value_parser!(Address)).help("The server: a node, a proxy or any memcached"))
}

fn keyed(command: Command) -> Command {
    at_server(command)
        .arg(Arg::new("key").value_name("KEY").required(true).help("The key"))
        .arg(Arg::new("key64").long("key64").action(ArgAction::SetTrue).help("KEY is base64"))
}

fn seconds(text: &str) -> Result<u64, &'static str> {
    units::seconds(text).ok_or("expected seconds, or a number with s, m, h or d")
}

/// A word of a command line.
fn word(text: &str) -> Result<String, &'static str> {
    let is_word = !text.is_empty() && text.len() <= KEY_MAX && !text.bytes().any(|byte| byte <= b' ' || byte == 0x7f);
    if is_word { Ok(text.to_owned()) } else { Err("expected a word of at most 250 bytes") }
}

/// Runs one of them.
///
/// # Errors
/// If the server is not reached, or does not do it.
pub fn run(name: &str, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let address: &Address = matches.get_one("server").expect("it has a default");
    // Before the connection: a server does not wait for who types a value.
    let value = if name == "set" { value(matches)? } else { Vec::new() };
    let key = if name == "stats" { Vec::new() } else { key(matches)? };
    let mut dialogue =
        Dialogue::open(&endpoint(address.clone()), None, VALUE_LIMIT).with_context(|| address.to_string())?;
    if name == "stats" {
        let words: Vec<&String> = matches.get_many("group").into_iter().flatten().collect();
        statistics::print(&mut dialogue, &words, matches.get_flag("json"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let request = Request { verb: verb(name, matches), key: &key, value: &value };
    let answer = dialogue.call(&request).with_context(|| address.to_string())?;
    told(name, &key, matches, answer)
}

fn key(matches: &ArgMatches) -> anyhow::Result<Vec<u8>> {
    let text: &String = matches.get_one("key").expect("it is required");
    let key = match matches.get_flag("key64") {
        true => STANDARD.decode(text).context("the key is no base64")?,
        false => text.clone().into_bytes(),
    };
    if !(1..=KEY_MAX).contains(&key.len()) {
        bail!("a key has 1 to {KEY_MAX} bytes");
    }
    Ok(key)
}

fn value(matches: &ArgMatches) -> anyhow::Result<Vec<u8>> {
    if let Some(value) = matches.get_one::<String>("value") {
        return Ok(value.clone().into_bytes());
    }
    let mut value = Vec::new();
    stdin().lock().take(VALUE_LIMIT as u64 + 1).read_to_end(&mut value).context("standard input")?;
    if value.len() > VALUE_LIMIT {
        bail!("the value is longer than any server takes");
    }
    Ok(value)
}

fn verb(name: &str, matches: &ArgMatches) -> Verb {
    let exptime = || matches.try_get_one("ttl").ok().flatten().map_or(Exptime::NEVER, |ttl| exptime(*ttl));
    let compare = || matches.get_one::<u64>("cas").copied();
    match name {
        "get" => Verb::Read(Read { retrieve: Retrieve::default(), value: true }),
        "touch" => {
            Verb::Read(Read { retrieve: Retrieve { touch: Some(exptime()), ..Retrieve::default() }, value: false })
        }
        "meta" => Verb::Peek { value: false },
        "delete" => Verb::Delete(Delete { compare: compare(), ..Delete::default() }),
        _ => {
            let mode = matches.get_one::<String>("mode").expect("it has a default");
            let mode = MODES.iter().find(|(name, _)| name == mode).map_or(WriteMode::Set, |(_, mode)| *mode);
            let flags = matches.get_one("flags").copied().unwrap_or(0);
            Verb::Write(WriteRequest { mode, flags, exptime: exptime(), compare: compare(), ..WriteRequest::default() })
        }
    }
}

/// Times over 30 days go as the second they end at.
fn exptime(ttl: u64) -> Exptime {
    let ttl = i64::try_from(ttl).unwrap_or(i64::MAX);
    if ttl <= Exptime::RELATIVE_MAX {
        return Exptime(ttl);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    Exptime(ttl.saturating_add_unsigned(now))
}

/// Tells the answer, and its exit status.
fn told(name: &str, key: &[u8], matches: &ArgMatches, answer: Answer<'_>) -> anyhow::Result<ExitCode> {
    let not_done = |why: &str| {
        eprintln!("moneta {name}: {why}");
        Ok(ExitCode::from(NOT_DONE))
    };
    match answer {
        Answer::Hit(item) => {
            let mut out = stdout().lock();
            match name {
                "touch" => {}
                "get" if !matches.get_flag("json") => out.write_all(&item.value)?,
                _ if matches.get_flag("json") => writeln!(out, "{:#}", found::as_json(key, &item, name == "get"))?,
                _ => out.write_all(found::as_text(&item).as_bytes())?,
            }
            out.flush()?;
            Ok(ExitCode::SUCCESS)
        }
        Answer::Stored { .. } | Answer::Unchanged { .. } | Answer::Deleted | Answer::Done => Ok(ExitCode::SUCCESS),
        Answer::Miss | Answer::NotFound => not_done("there is nothing under this key"),
        Answer::NotStored => not_done("not stored: the mode's condition does not hold"),
        Answer::Exists => not_done("the item has another CAS value"),
        Answer::Superseded { .. } => not_done("something newer is there"),
        Answer::TooLarge => bail!("the value is larger than the server takes"),
        Answer::OutOfMemory => bail!("the server has no room"),
        Answer::Refused(_, words) => bail!("the server refuses: {words}"),
        Answer::Number { .. } | Answer::Newest(_) | Answer::Statistics(_) | Answer::NonNumeric => {
            bail!("the server answered something else")
        }
    }
}
