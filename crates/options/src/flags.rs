//! The flags of a command, made from the declarations, and reading them back.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::declaration::{Declaration, Section};
use crate::kinds::Form;
use crate::report::Origin;
use crate::values::Written;

/// Name of the `--config` argument.
const CONFIG: &str = "config";
/// The environment variable that names the TOML file.
pub const CONFIG_ENVIRONMENT: &str = "MONETA_CONFIG";

/// Adds `--config` and all options of `sections` to a command; `-h` shows those of the keys `first`.
pub fn add_to(command: Command, sections: &'static [&'static Section], first: &[&str]) -> Command {
    let shown = |option: &dyn Declaration| first.contains(&option.about().key);
    command
        .arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .env(CONFIG_ENVIRONMENT)
                .help("TOML file with options; flags and environment variables win over it"),
        )
        .args(sections.iter().flat_map(|section| {
            let options = section.options.iter();
            options.map(|option| argument(section, *option).hide_short_help(!shown(*option)))
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
        return None;
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
pub fn config_file(matches: &ArgMatches) -> Option<&PathBuf> {
    matches.get_one(CONFIG)
}
