//! The flags of `moneta serve` and `moneta config`, made from the table, and reading them back.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::options::extended::{self, Extended};
use crate::options::foreign::{FOREIGN, Fate};
use crate::options::report::{Origin, Refusal};
use crate::options::table::{Id, OptionSpec, TABLE};
use crate::options::value::Kind;

/// Name of the `-o` argument.
const EXTENDED: &str = "extended";
/// Name of the `--config` argument.
const CONFIG: &str = "config";
/// The environment variable that names the TOML file.
pub const CONFIG_ENVIRONMENT: &str = "MONETA_CONFIG";

/// A value as somebody wrote it.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its text.
    pub text: String,
    /// Where it stands.
    pub origin: Origin,
}

/// Adds all options to a subcommand.
pub fn add_to(command: Command) -> Command {
    let command = command
        .arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("FILE")
                .value_parser(clap::value_parser!(std::path::PathBuf))
                .env(CONFIG_ENVIRONMENT)
                .help("TOML file with options; flags and environment variables win over it"),
        )
        .args(TABLE.iter().map(argument))
        .arg(
            Arg::new(EXTENDED)
                .short('o')
                .long(EXTENDED)
                .value_name("NAME=VALUE")
                .action(ArgAction::Append)
                .help("memcached's extended options: idle_timeout=SECONDS; of the others the log says what they mean here")
                .help_heading("Network"),
        );
    command.args(FOREIGN.iter().map(|flag| {
        let argument = Arg::new(flag.long).short(flag.short).long(flag.long).hide(true);
        if flag.takes_value { argument.action(ArgAction::Append) } else { argument.action(ArgAction::Count) }
    }))
}

/// The flag of one option. Values are taken as text here and read by [`Kind::read`], as those of every other source.
fn argument(spec: &'static OptionSpec) -> Arg {
    let mut argument = Arg::new(spec.key).long(spec.long()).help(help(spec)).help_heading(spec.group.heading());
    if let Some(short) = spec.short {
        argument = argument.short(short);
    }
    if let Some(alias) = spec.alias {
        argument = argument.alias(alias);
    }
    if spec.id == Id::Verbose {
        return argument.action(ArgAction::Count);
    }
    // A negative number is a wrong value, not an unknown flag.
    argument = argument.value_name(spec.kind.placeholder()).allow_negative_numbers(true);
    match spec.kind {
        Kind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::Addresses | Kind::Devices => argument.action(ArgAction::Append),
        // memcached takes the last of a repeated flag.
        _ => argument.overrides_with(spec.key),
    }
}

fn help(spec: &OptionSpec) -> String {
    let default = match spec.kind {
        _ if spec.id == Id::Verbose => return spec.summary.into(),
        // A switch is off unless somebody turns it on; of others it has to be said.
        Kind::Switch if spec.default == "false" => return spec.summary.into(),
        kind => kind.read(spec.default).map_or_else(String::new, |value| value.to_string()),
    };
    if default.is_empty() { spec.summary.into() } else { format!("{} [default: {default}]", spec.summary) }
}

/// What the flags said of `spec`.
pub fn written(matches: &ArgMatches, spec: &OptionSpec) -> Option<Written> {
    if matches.value_source(spec.key) != Some(ValueSource::CommandLine) {
        return (spec.id == Id::IdleTimeout).then(|| extended_idle_timeout(matches)).flatten();
    }
    let origin = Origin::Flag(format!("--{}", spec.long()));
    if spec.id == Id::Verbose {
        return Some(Written { text: matches.get_count(spec.key).min(3).to_string(), origin });
    }
    let texts: Vec<&str> = matches.get_many::<String>(spec.key)?.map(String::as_str).collect();
    Some(Written { text: texts.join(","), origin })
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
    extended_options(matches)
        .filter(|(name, _)| *name != Id::IdleTimeout.spec().key)
        .map(|(name, _)| (name, extended::meaning(name)))
}

fn extended_idle_timeout(matches: &ArgMatches) -> Option<Written> {
    let (name, value) = extended_options(matches).filter(|(name, _)| *name == Id::IdleTimeout.spec().key).last()?;
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
