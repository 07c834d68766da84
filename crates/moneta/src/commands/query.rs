//! `moneta query`: which objects of a fleet meet a predicate.

use std::io::{Write, stdout};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::Value;

use super::safe;
use crate::control_url;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The subcommand.
pub fn command() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let kinds = PossibleValuesParser::new(["instances", "balancers", "slots", "groups", "apps"]);
    Command::new("query")
        .about("Show objects of the fleet that meet a predicate, count or group them")
        .after_help("docs/introspection.md has the fields of each object, and examples.")
        .arg(Arg::new("of").value_name("OBJECTS").required(true).value_parser(kinds).help("What is looked at"))
        .arg(text("where", "CEL", "The predicate, as 'zone == \"a\" && status != \"UP\"' [default: all]"))
        .arg(text("at", "TIME", "As it was then: 2h (ago), Unix seconds, or 2026-03-01T12:00:00Z; at most 7 days ago"))
        .arg(text("by", "FIELD", "How many there are of each value of this field").conflicts_with("count"))
        .arg(
            text("shown", "N", "How many are shown, at most 10,000 [default: 100]")
                .value_parser(value_parser!(u32).range(0..=10_000)),
        )
        .arg(Arg::new("count").long("count").action(ArgAction::SetTrue).help("Print their number alone"))
}

/// Prints one object a line, as JSON; or groups, the largest first.
///
/// # Errors
/// If the control plane does not answer, or refuses the predicate.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let control = control_url::Control::of_command(PATIENCE)?;
    let of = matches.get_one::<String>("of").map_or("", String::as_str);
    let shown = matches.get_one::<u32>("shown").map(u32::to_string);
    let mut asked = vec![("of", of)];
    for name in ["where", "by", "at"] {
        asked.extend(matches.get_one::<String>(name).map(|text| (name, text.as_str())));
    }
    asked.extend(shown.as_deref().map(|shown| ("shown", shown)));
    let answer = control.get(&format!("/v1/{}/query", control.environment), &asked)?;
    let mut out = stdout().lock();
    let count = answer["count"].as_u64().unwrap_or(0);
    if matches.get_flag("count") {
        writeln!(out, "{count}")?;
    } else if let Some(groups) = answer["groups"].as_object() {
        let mut groups: Vec<(&String, u64)> =
            groups.iter().map(|(name, count)| (name, count.as_u64().unwrap_or(0))).collect();
        groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (name, count) in groups {
            writeln!(out, "{count:>8}  {}", if name.is_empty() { "-".to_owned() } else { safe::text(name) })?;
        }
        if let Some(others @ 1..) = answer["other_groups"].as_u64() {
            writeln!(out, "{others:>8}  in other groups")?;
        }
    } else {
        let objects = answer[of].as_array();
        for object in objects.into_iter().flatten() {
            writeln!(out, "{object}")?;
        }
        let shown = objects.map_or(0, Vec::len) as u64;
        if shown < count {
            eprintln!("moneta query: {count} meet it, {shown} are shown (--shown takes more)");
        }
    }
    if let Some(known) = answer["known_until"].as_str() {
        eprintln!("moneta query: nothing was written down after {known}: as it was last known");
    }
    if answer["complete"] == Value::Bool(false) {
        eprintln!("moneta query: the time was over before all were looked at");
    }
    Ok(())
}
