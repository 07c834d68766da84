//! `moneta property`: shows and changes the properties of a fleet, as its control plane has them.

pub mod asked;
mod rollout;
mod screen;

use std::io::{Write, stdout};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::safe;
use crate::control_url::Control;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn required(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(name.to_ascii_uppercase()).required(true).help(help)
}

fn optional(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn scope() -> Arg {
    required("scope", "global, region=R, zone=Z, app=A, replica=A:R or instance=A:ID")
}

fn name() -> Arg {
    required("name", "The option, or a name of your own that has a schema")
}

fn is_json() -> Arg {
    Arg::new("as-json").long("value-json").action(ArgAction::SetTrue).help("The value is JSON, not text")
}

/// The subcommand.
pub fn command() -> Command {
    let version = |name: &'static str, help: &'static str| {
        Arg::new(name).value_name(name.to_ascii_uppercase()).value_parser(value_parser!(u64)).help(help)
    };
    let of_scope = || optional("scope", "SCOPE", "Of this scope alone");
    let of_name = || optional("name", "NAME", "Of this name alone");
    Command::new("property")
        .about("Show and change properties: values of options that processes follow while they run")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(optional("why", "TEXT", "Why, for the versions and the audit").global(true))
        .arg(
            optional("expect-version", "N", "Change nothing unless this version is in force")
                .value_parser(value_parser!(u64))
                .global(true),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).global(true).help("Print the answer as JSON"))
        .subcommand(Command::new("list").about("List values").args([of_scope(), of_name()]))
        .subcommand(Command::new("get").about("Print a value").args([scope(), name()]))
        .subcommand(
            Command::new("set")
                .about("Set a value")
                .args([scope(), name()])
                .arg(required("value", "The value").allow_hyphen_values(true))
                .arg(is_json()),
        )
        .subcommand(Command::new("unset").about("Take a value away").args([scope(), name()]))
        .subcommand(
            Command::new("history")
                .about("List who changed what, when and why, the latest first")
                .args([of_scope(), of_name()])
                .arg(optional("limit", "N", "So many at most").value_parser(value_parser!(u64))),
        )
        .subcommand(
            Command::new("diff")
                .about("Show what differs between two versions")
                .arg(version("from", "The earlier one").required(true))
                .arg(version("to", "The later one; without it the one in force")),
        )
        .subcommand(
            Command::new("rollback")
                .about("Take values back to what they were in a version")
                .arg(version("back-to", "The version").value_name("VERSION").required(true))
                .args([of_scope(), of_name()]),
        )
        .subcommand(
            Command::new("explain")
                .about("Show what an instance has: of each name the values of all its scopes, and which wins")
                .args([required("app", "The app"), required("instance", "The instance")])
                .arg(Arg::new("name").value_name("NAME").help("Of this name alone")),
        )
        .subcommand(
            Command::new("status")
                .about(
                    "Show what processes say of what they were told: applied, refused and why, waiting for a restart",
                )
                .arg(optional("app", "APP", "Of this app alone")),
        )
        .subcommand(schema())
        .subcommand(rollout::command())
}

fn schema() -> Command {
    let set = Command::new("set")
        .about("Declare a name of your own, or declare it anew")
        .arg(name())
        .arg(
            optional("type", "TYPE", "What its values are")
                .required(true)
                .value_parser(["bool", "integer", "real", "duration", "size", "string", "word", "list", "json"]),
        )
        .arg(optional("min", "VALUE", "The least value, or length").allow_hyphen_values(true))
        .arg(optional("max", "VALUE", "The greatest value, or length").allow_hyphen_values(true))
        .arg(optional("words", "WORD,WORD", "The words, of type word").value_delimiter(','))
        .arg(optional("summary", "TEXT", "What it is for"));
    Command::new("schema")
        .about("Show what values may be, and declare names of your own")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("list").about("List all names with their types"))
        .subcommand(Command::new("show").about("Print a schema").arg(name()))
        .subcommand(set)
        .subcommand(Command::new("unset").about("Take the schema of a name of your own away").arg(name()))
}

/// Runs it.
///
/// # Errors
/// If the control plane does not answer, or says no.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let Some((what, of)) = matches.subcommand() else { unreachable!("clap asks for one") };
    let control = Control::of_command(PATIENCE)?;
    let (page, text) = match what {
        "schema" => schemas(&control, of)?,
        "rollout" => rollout::run(&control, of)?,
        _ => values(&control, what, of)?,
    };
    let mut out = stdout().lock();
    if of.get_flag("json") || text.is_none() {
        writeln!(out, "{}", serde_json::to_string_pretty(&page)?)?;
    } else if let Some(text) = text {
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// What was answered, and how it is shown.
type Shown = (Value, Option<String>);

fn text<'a>(of: &'a ArgMatches, name: &str) -> Option<&'a str> {
    of.get_one::<String>(name).map(String::as_str)
}

fn values(control: &Control, what: &str, of: &ArgMatches) -> anyhow::Result<Shown> {
    let path = |parts: &[&str]| asked::path(&control.environment, parts);
    let number = |name: &str| of.get_one::<u64>(name).map(u64::to_string);
    let given = |name: &str| of.try_get_one::<String>(name).ok().flatten().cloned();
    let query = |names: &[&'static str]| -> Vec<(&'static str, String)> {
        names.iter().filter_map(|name| Some((*name, given(name)?))).collect()
    };
    let ask = |page: &str, query: Vec<(&'static str, String)>| {
        let query: Vec<(&str, &str)> = query.iter().map(|(name, value)| (*name, value.as_str())).collect();
        control.get(&path(&[page]), &query)
    };
    let one = || -> anyhow::Result<String> {
        let (scope, name) =
            (text(of, "scope").context("clap asks for it")?, text(of, "name").context("clap asks for it")?);
        Ok(path(&["properties", scope, name]))
    };
    let why = text(of, "why").unwrap_or_default();
    let expected = of.get_one::<u64>("expect-version");
    Ok(match what {
        "list" => {
            let page = ask("properties", query(&["scope", "name"]))?;
            let text = screen::list(&safe::page(&page));
            (page, Some(text))
        }
        "get" => {
            let page = control.get(&one()?, &[])?;
            let text = format!("{}\n", screen::value(&safe::page(&page["value"])));
            (page, Some(text))
        }
        "set" => {
            let value = asked::value(of)?;
            version(control.put(&one()?, &json!({ "value": value, "why": why, "expect_version": expected }))?)
        }
        "unset" => {
            let expected = number("expect-version");
            let mut query = vec![("why", why)];
            query.extend(expected.as_deref().map(|expected| ("expect_version", expected)));
            version(control.delete(&one()?, &query)?)
        }
        "history" => {
            let mut wanted = query(&["scope", "name"]);
            wanted.extend(number("limit").map(|limit| ("limit", limit)));
            let page = ask("property-history", wanted)?;
            let text = screen::history(&safe::page(&page));
            (page, Some(text))
        }
        "diff" => {
            let versions = [("from", number("from")), ("to", number("to"))];
            let page =
                ask("property-diff", versions.into_iter().filter_map(|(name, one)| Some((name, one?))).collect())?;
            let text = screen::diff(&safe::page(&page));
            (page, Some(text))
        }
        "rollback" => {
            let back = json!({
                "version": of.get_one::<u64>("back-to"), "scope": text(of, "scope"), "name": text(of, "name"),
                "why": why, "expect_version": expected,
            });
            version(control.post(&path(&["property-rollback"]), &back)?)
        }
        "explain" => {
            let mut wanted = query(&["app", "name"]);
            wanted.push(("id", text(of, "instance").unwrap_or_default().to_owned()));
            let page = ask("property-explain", wanted)?;
            let text = screen::explained(&safe::page(&page));
            (page, Some(text))
        }
        "status" => {
            let page = ask("property-status", query(&["app"]))?;
            let text = screen::status(&safe::page(&page));
            (page, Some(text))
        }
        other => bail!("`{other}` is not known"),
    })
}

fn version(page: Value) -> Shown {
    let text = format!("version {}\n", page["version"]);
    (page, Some(text))
}

fn schemas(control: &Control, of: &ArgMatches) -> anyhow::Result<Shown> {
    let Some((what, of)) = of.subcommand() else { unreachable!("clap asks for one") };
    let path = |parts: &[&str]| asked::path(&control.environment, parts);
    let name = of.try_get_one::<String>("name").ok().flatten().map(String::as_str);
    Ok(match what {
        "set" => {
            let bound = |name: &str| text(of, name).map(asked::number_or_text);
            let words: Vec<&String> = of.get_many("words").into_iter().flatten().collect();
            let schema = json!({
                "type": text(of, "type"), "min": bound("min"), "max": bound("max"), "words": words,
                "summary": text(of, "summary").unwrap_or_default(),
            });
            (
                control.put(&path(&["property-schemas", name.context("clap asks for it")?]), &schema)?,
                Some(String::new()),
            )
        }
        "unset" => {
            (control.delete(&path(&["property-schemas", name.context("clap asks for it")?]), &[])?, Some(String::new()))
        }
        _ => {
            let query: Vec<(&str, &str)> = name.iter().map(|name| ("name", *name)).collect();
            let page = control.get(&path(&["property-schemas"]), &query)?;
            let listed = page["schemas"].as_array().context("the answer has no schemas")?;
            match name {
                Some(name) => {
                    (listed.first().with_context(|| format!("`{name}` is no option and has no schema"))?.clone(), None)
                }
                None => {
                    let text = screen::schemas(listed);
                    (page, Some(text))
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subcommand_is_as_clap_wants_it() {
        command().debug_assert();
        crate::commands::set_option::command().debug_assert();
    }
}
