//! `moneta config`: what would be in force, and where each value came from.

use std::io::{Write, stdout};
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use moneta_options::declaration::Declaration;
use moneta_options::report::Origin;
use serde_json::{Value, json};

use crate::options::document;
use crate::options::flags;
use crate::options::resolve::Resolved;
use crate::options::sections;
use crate::options::sections::operation::ADMIN;
use crate::options::sections::tls;
use crate::options::settings::Settings;
use crate::{admin_port, drawing, option_pages, outward};

/// How long a running process may take to draw its stack.
const PATIENCE: Duration = Duration::from_secs(2);

/// The subcommand: the options of `serve`, and what to print.
pub fn command() -> Command {
    let print = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help).help_heading("Print")
    };
    let command = Command::new("config")
        .about("Print what is in force and where each value came from")
        .arg(print("json", "The same as JSON"))
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("HOST:PORT")
                .help("What the process with this admin port has in force")
                .help_heading("Print")
                .conflicts_with_all(["example", "reference", "explain"]),
        )
        .arg(
            print("explain", "A drawing of the stack: what a request passes, and where items lie; without options that of the process at --admin")
                .conflicts_with("json"),
        )
        .arg(print("example", "A TOML file with every option at its default").conflicts_with_all([
            "json",
            "reference",
            "explain",
        ]))
        .arg(print("reference", "The reference of all options, in Markdown").conflicts_with_all(["json", "explain"]));
    flags::add_to(command, &flags::OF_NODE)
}

/// Runs it.
///
/// # Errors
/// If `serve` would be refused with the same options.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let text = if let Some(address) = matches.get_one::<String>("from") {
        // Reached as a process with these options reaches others.
        let values = Resolved::gather(matches, |name| std::env::var_os(name))?.values;
        let tls = tls::load(&values)?;
        outward::set(outward::of(&values, tls.as_ref())?);
        of_running(address, matches.get_flag("json"))?
    } else if matches.get_flag("example") {
        document::example()
    } else if matches.get_flag("reference") {
        document::reference()
    } else {
        let settings = Settings::new(Resolved::gather(matches, |name| std::env::var_os(name))?)?;
        match (matches.get_flag("json"), matches.get_flag("explain")) {
            (true, _) => as_json(&settings)?,
            (_, true) => explained(&settings),
            _ => as_table(&settings),
        }
    };
    stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// A drawing, after a line that says of what: of the process that runs where these options have their admin port, if one answers
/// and nothing else is asked for; else of what these options would start.
fn explained(settings: &Settings) -> String {
    let is_ours = |option: &dyn Declaration| option.about().key != ADMIN.key() && settings.is_changed(option);
    let has_options = sections::options().any(is_ours) || settings.has_app_tables || !settings.listeners.is_empty();
    let drawn = drawing::draw(settings);
    let admin = settings.get(&ADMIN).filter(|_| !has_options);
    let Some(address) = admin else {
        return format!("What these options would start; no running process was asked.\n\n{drawn}");
    };
    match running(&address.to_string()) {
        Some(running) => format!("What the process with the admin port {address} serves.\n\n{running}"),
        None => format!(
            "No process draws its stack at the admin port {address} (--admin names another): what the defaults would start.\n\n{drawn}"
        ),
    }
}

/// What the process at an admin address draws of itself.
fn running(address: &str) -> Option<String> {
    admin_port::page(address, drawing::PATH, PATIENCE).ok()
}

/// What a process has in force that runs.
fn of_running(address: &str, as_json: bool) -> anyhow::Result<String> {
    let page: Value = serde_json::from_str(&admin_port::page(address, option_pages::PATH, PATIENCE)?)
        .with_context(|| format!("{address}: the answer is not understood"))?;
    let options = page["options"].as_array().with_context(|| format!("{address}: the answer has no options"))?;
    if as_json {
        return Ok(serde_json::to_string_pretty(options)? + "\n");
    }
    let text = |option: &Value, field: &str| option[field].as_str().unwrap_or_default().to_owned();
    let name = |option: &Value| match option["app"].as_str() {
        Some(app) => format!("{} of {app}", text(option, "option")),
        None => text(option, "option"),
    };
    Ok(table(options.iter().map(|option| (name(option), text(option, "value"), text(option, "from"))).collect()))
}

/// Every row: name, value, origin.
fn rows(settings: &Settings) -> Vec<(&'static str, String, &Origin)> {
    let options =
        sections::options().map(|option| (option.about().key, option.in_force(settings), settings.origin(option)));
    let listeners = settings.listeners.iter().map(|(listener, origin)| ("listener", listener.to_string(), origin));
    let tables = settings.apps.iter().filter(|_| settings.has_app_tables);
    let apps = tables.map(|app| ("app", format!("{} ({})", app.name, app.describe()), &app.origin));
    options.chain(listeners).chain(apps).collect()
}

fn as_table(settings: &Settings) -> String {
    let rows = rows(settings).into_iter();
    table(rows.map(|(name, value, origin)| (name.to_owned(), value, origin.to_string())).collect())
}

fn table(rows: Vec<(String, String, String)>) -> String {
    let name_width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let value_width = rows.iter().map(|(_, value, _)| value.len()).max().unwrap_or(0);
    let mut text = format!("{:name_width$}  {:value_width$}  FROM\n", "OPTION", "VALUE");
    for (name, value, origin) in rows {
        let value = if value.is_empty() { "-" } else { &value };
        text.push_str(&format!("{name:name_width$}  {value:value_width$}  {origin}\n"));
    }
    text
}

fn as_json(settings: &Settings) -> anyhow::Result<String> {
    let options: Vec<_> = rows(settings)
        .into_iter()
        .map(|(name, value, origin)| json!({ "option": name, "value": value, "from": origin.to_string() }))
        .collect();
    Ok(serde_json::to_string_pretty(&options)? + "\n")
}
