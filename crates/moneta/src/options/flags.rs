//! The flags of `moneta serve` and `moneta config`: those of the options, and memcached's.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use moneta_options::declaration::Declaration;
use moneta_options::report::{Origin, Refusal};
use moneta_options::sources::Source;
use moneta_options::values::Written;
use moneta_process::startup::Startup;

use crate::options::extended::{self, Extended};
use crate::options::foreign::{CORE_DUMPS, DAEMON, FOREIGN, Fate, PIDFILE, TLS, USER};
use crate::options::sections;

/// Long name of the flag that names a file of memcached's flags.
pub const MEMCACHED_CONF: &str = "memcached-conf";
/// Name of the `-o` argument.
const EXTENDED: &str = "extended";

/// The options of a node that `-h` shows: where it listens, how much it keeps, who may do what. `--help` shows all.
pub const OF_NODE: [&str; 20] = [
    "port",
    "listen",
    "batch_port",
    "unix_socket",
    "memory",
    "flash",
    "flash_durability",
    "max_item_size",
    "max_connections",
    "idle_timeout",
    "threads",
    "l1",
    "l2",
    "cluster",
    "catch_up",
    "auth_file",
    "admin_commands",
    "disable_flush_all",
    "admin",
    "log_level",
];

/// The same of a proxy.
pub const OF_PROXY: [&str; 20] = [
    "topology",
    "zone",
    "app",
    "ack",
    "read_fallback",
    "retry_budget",
    "node_timeout",
    "eject_after",
    "hint_dir",
    "hint_memory",
    "port",
    "listen",
    "max_connections",
    "idle_timeout",
    "threads",
    "auth_file",
    "admin_commands",
    "disable_flush_all",
    "admin",
    "log_level",
];

/// Adds all options to a subcommand; `-h` shows those of the keys `first`.
pub fn add_to(command: Command, first: &[&str]) -> Command {
    let command = moneta_options::flags::add_to(command, &sections::ALL, first).arg(
        Arg::new(EXTENDED)
            .short('o')
            .long(EXTENDED)
            .value_name("NAME=VALUE")
            .action(ArgAction::Append)
            .help("memcached's extended options: idle_timeout=SECONDS; of the others the log says what they mean here")
            .help_heading("Network")
            .hide_short_help(true),
    );
    // Its lines are put in its place before flags are read: `crate::memcached_conf`.
    let command = command.arg(
        Arg::new(MEMCACHED_CONF)
            .long(MEMCACHED_CONF)
            .value_name("FILE")
            .help("Flags of a file as Debian's memcached.conf, in place of this one; -d and logfile in it are passed over")
            .help_heading("Operation")
            .hide_short_help(true),
    );
    command.args(FOREIGN.iter().map(|flag| {
        let argument = Arg::new(flag.long).short(flag.short).long(flag.long).hide(true);
        if flag.takes_value { argument.action(ArgAction::Append) } else { argument.action(ArgAction::Count) }
    }))
}

/// Refuses memcached's flags that cannot be had here.
pub fn refuse_foreign(matches: &ArgMatches) -> Vec<Refusal> {
    let flags = FOREIGN.iter().filter(|flag| flag.fate == Fate::Refused).filter_map(|flag| {
        let name = format!("-{} (--{})", flag.short, flag.long);
        if !flag.takes_value {
            return (matches.get_count(flag.long) > 0).then(|| Refusal::sentence(format!("{name}: {}", flag.meaning)));
        }
        let value = matches.get_many::<String>(flag.long)?.find(|value| Some(value.as_str()) != flag.accepted)?;
        Some(Refusal::sentence(format!("{name}: `{value}` is refused: {}", flag.meaning)))
    });
    let extended = foreign_extended(matches).filter_map(|(name, meaning)| match meaning {
        Extended::Refused(why) => Some(Refusal::sentence(format!("-o {name}: {why}"))),
        Extended::Noted(_) => None,
    });
    flags.chain(extended).collect()
}

/// What the log has to say of memcached's flags that change nothing here: the flag as it was written, and what it means.
pub fn note_foreign(matches: &ArgMatches) -> Vec<(String, &'static str)> {
    let given = |long: &str, takes_value: bool| match takes_value {
        true => matches.get_many::<String>(long).is_some(),
        false => matches.get_count(long) > 0,
    };
    let flags = FOREIGN.iter().filter(|flag| flag.fate == Fate::Noted && given(flag.long, flag.takes_value));
    let extended = foreign_extended(matches).filter_map(|(name, meaning)| match meaning {
        Extended::Noted(meaning) => Some((format!("-o {name}"), meaning)),
        Extended::Refused(_) => None,
    });
    flags.map(|flag| (format!("-{}", flag.short), flag.meaning)).chain(extended).collect()
}

/// What memcached's flags ask of the process itself. Of several values of a flag the last counts.
pub fn startup(matches: &ArgMatches) -> Startup {
    let has = |long| matches.get_count(long) > 0;
    let value = |long| matches.get_many::<String>(long)?.next_back();
    Startup {
        user: value(USER).cloned(),
        has_core_dumps: has(CORE_DUMPS),
        is_detached: has(DAEMON),
        pid_file: value(PIDFILE).map(PathBuf::from),
    }
}

/// Refuses `-Z` without a certificate, and one of memcached's spelling without `-Z`: memcached serves plain text then.
pub fn refuse_tls(matches: &ArgMatches, has_certificate: bool) -> Option<Refusal> {
    let is_on = matches.get_count(TLS) > 0;
    if is_on && !has_certificate {
        let why = "TLS takes a certificate: --tls-cert, or -o ssl_chain_cert";
        return Some(Refusal::sentence(format!("-Z (--enable-ssl): {why}")));
    }
    let named = extended_options(matches).find(|(name, value)| extended::renamed(name, value).is_some());
    let (name, _) = named.filter(|_| !is_on)?;
    Some(Refusal::sentence(format!("-o {name}: it takes -Z (--enable-ssl), which turns TLS on")))
}

/// The names of `-o` that are not options here, with what they mean.
fn foreign_extended(matches: &ArgMatches) -> impl Iterator<Item = (&str, Extended)> {
    let is_option =
        |name: &str| sections::options().any(|option| option.about().is_extended && option.about().key == name);
    let is_option = move |name: &str| is_option(name) || extended::renamed(name, "").is_some();
    let others = extended_options(matches).filter(move |(name, _)| !is_option(name));
    others.map(|(name, value)| (name, extended::meaning(name, value)))
}

/// The options that memcached has as `-o KEY=VALUE`.
pub struct OfExtended<'a>(pub &'a ArgMatches);

impl<'a> Source for OfExtended<'a> {
    /// The last one counts.
    fn written(&self, option: &dyn Declaration) -> Option<Written> {
        let about = option.about();
        let value_of = |(name, value): (&'a str, &'a str)| match extended::renamed(name, value) {
            Some((key, value)) => (key == about.key).then_some((name, value)),
            None => (about.is_extended && name == about.key).then_some((name, value)),
        };
        let (name, value) = extended_options(self.0).filter_map(value_of).last()?;
        Some(Written { text: value.into(), origin: Origin::Flag(format!("-o {name}")) })
    }
}

/// The names and values of all `-o`, each a comma-separated list as memcached takes it.
fn extended_options(matches: &ArgMatches) -> impl Iterator<Item = (&str, &str)> {
    matches
        .get_many::<String>(EXTENDED)
        .into_iter()
        .flatten()
        .flat_map(|list| list.split(','))
        .filter(|option| !option.is_empty())
        .map(|option| option.split_once('=').unwrap_or((option, "")))
}
