//! The flags of `moneta serve` and `moneta config`, made from the declarations, and reading them back.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::options::declaration::{Declaration, Section};
use crate::options::extended::{self, Extended};
use crate::options::foreign::{FOREIGN, Fate};
use crate::options::kinds::Form;
use crate::options::report::{Origin, Refusal};
use crate::options::sections;
use crate::options::values::Written;

/// Name of the `-o` argument.
const EXTENDED: &str = "extended";
/// Name of the `--config` argument.
const CONFIG: &str = "config";
/// The environment variable that names the TOML file.
pub const CONFIG_ENVIRONMENT: &str = "MONETA_CONFIG";

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
    let shown = |option: &dyn Declaration| first.contains(&option.about().key);
    let command = command
        .arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("FILE")
                .value_parser(clap::value_parser!(std::path::PathBuf))
                .env(CONFIG_ENVIRONMENT)
                .help("TOML file with options; flags and environment variables win over it"),
        )
        .args(sections::ALL.iter().flat_map(|section| section.options.iter().map(|option| {
            argument(section, *option).hide_short_help(!shown(*option))
        })))
        .arg(
            Arg::new(EXTENDED)
                .short('o')
                .long(EXTENDED)
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .help("memcached's extended options: idle_timeout=SECONDS; of the others the log says what they mean here")
                .help_heading("Network")
                .hide_short_help(true),
        );
    command.args(FOREIGN.iter().map(|flag| {
        let argument = Arg::new(flag.long).short(flag.short).long(flag.long).hide(true);
        if flag.takes_value { argument.action(ArgAction::Append) } else { argument.action(ArgAction::Count) }
    }))
}

/// The flag of one option. Values are taken as text here and read by their kind, as those of every other source.
fn argument(section: &Section, option: &'static dyn Declaration) -> Arg {
    let about = option.about();
    let mut argument = Arg::new(about.key).long(about.long()).help(help(option)).help_heading(section.heading);
    if let Some(short) = about.short {
        argument = argument.short(short);
    }
    if let Some(alias) = about.alias {
        argument = argument.alias(alias);
    }
    // A negative number is a wrong value, not an unknown flag.
    let with_value = |argument: Arg| argument.value_name(option.placeholder()).allow_negative_numbers(true);
    match option.form() {
        Form::Count { .. } => argument.action(ArgAction::Count),
        Form::Switch => with_value(argument).num_args(0..=1).require_equals(true).default_missing_value("true"),
        Form::List => with_value(argument).action(ArgAction::Append),
        Form::Single => with_value(argument).overrides_with(about.key),
    }
}

fn help(option: &dyn Declaration) -> String {
    let (summary, default) = (option.about().summary(), option.default());
    match option.form() {
        Form::Count { .. } => summary.into(),
        // A switch is off unless it is turned on; of others it has to be said.
        Form::Switch if default == "false" => summary.into(),
        _ if default.is_empty() => summary.into(),
        _ => format!("{summary} [default: {default}]"),
    }
}

/// What the flags said of `option`.
pub fn written(matches: &ArgMatches, option: &dyn Declaration) -> Option<Written> {
    let about = option.about();
    if matches.value_source(about.key) != Some(ValueSource::CommandLine) {
        return about.is_extended.then(|| extended_value(matches, about.key)).flatten();
    }
    let text = match option.form() {
        Form::Count { max } => matches.get_count(about.key).min(max).to_string(),
        _ => {
            let texts: Vec<&str> = matches.get_many::<String>(about.key)?.map(String::as_str).collect();
            texts.join(",")
        }
    };
    Some(Written { text, origin: Origin::Flag(format!("--{}", about.long())) })
}

/// The file that `--config` or its environment variable names.
pub fn config_file(matches: &ArgMatches) -> Option<&std::path::PathBuf> {
    matches.get_one(CONFIG)
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

/// Whether one of memcached's flags without a value is given.
pub fn has_foreign(matches: &ArgMatches, long: &str) -> bool {
    matches.get_count(long) > 0
}

/// The value of one of memcached's flags; of several the last.
pub fn foreign_value<'a>(matches: &'a ArgMatches, long: &str) -> Option<&'a str> {
    matches.get_many::<String>(long)?.next_back().map(String::as_str)
}

/// The names of `-o` that are not options here, with what they mean.
fn foreign_extended(matches: &ArgMatches) -> impl Iterator<Item = (&str, Extended)> {
    let is_option =
        |name: &str| sections::options().any(|option| option.about().is_extended && option.about().key == name);
    extended_options(matches).filter(move |(name, _)| !is_option(name)).map(|(name, _)| (name, extended::meaning(name)))
}

/// The value of the last `-o KEY=VALUE`.
fn extended_value(matches: &ArgMatches, key: &str) -> Option<Written> {
    let (name, value) = extended_options(matches).filter(|(name, _)| *name == key).last()?;
    Some(Written { text: value.into(), origin: Origin::Flag(format!("-o {name}")) })
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
