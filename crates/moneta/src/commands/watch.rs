//! `moneta watch`: the fleet in a terminal, drawn again whenever the control plane's feed tells of a change; or those changes alone, a
//! line each, where the output is no terminal.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stdout};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use moneta_link::{Follower, Item, Items, Query};
use serde_json::Value;

use super::status::Fleet;
use crate::{control_url, outward};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is drawn where nothing changes: what travels with renewals is on no feed.
const EVERY: Duration = Duration::from_secs(2);
/// Changes that are shown below the tables.
const LATELY: usize = 15;
/// What is followed.
const KINDS: [&str; 4] = ["instances", "away", "topologies", "properties"];
/// The longest line of a change, in characters.
const LINE_MAX: usize = 200;
/// To the upper left of a terminal, and all that is there is gone.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// The subcommand.
pub fn command() -> Command {
    Command::new("watch")
        .about("Follow the fleet: its tables and what changes, until Ctrl-C")
        .arg(Arg::new("app").long("app").value_name("APP").help("One app alone, with its instances"))
        .arg(Arg::new("lines").long("lines").action(ArgAction::SetTrue).help("Changes alone, a line each"))
}

/// Follows it until it is told to stop.
///
/// # Errors
/// If it is told of no control plane, or the output is gone.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let told = outward::control_of_command();
    let told = told.context("--control URL (or MONETA_CONTROL) says which control plane is followed")?;
    let asked = control_url::Control::of_command(PATIENCE)?;
    let app = matches.get_one::<String>("app").cloned();
    let query = Query { kinds: KINDS.to_vec(), app: app.clone() };
    let follower = Follower::start(Arc::new(told), query).context("the system has no thread")?;
    let draws = !matches.get_flag("lines") && stdout().is_terminal();
    let (mut steps, mut known, mut lately) = (0, None::<Arc<Items>>, VecDeque::new());
    let mut failure = None;
    loop {
        let view = follower.wait(steps, EVERY);
        steps = view.steps;
        let mut out = stdout().lock();
        if view.is_begun() {
            let changes = known.as_ref().map_or_else(Vec::new, |known| changes(known, &view.items));
            for change in changes {
                let line = format!("{}  {change}", time());
                if draws {
                    lately.truncate(LATELY - 1);
                    lately.push_front(line);
                } else {
                    writeln!(out, "{line}")?;
                }
            }
            known = Some(Arc::clone(&view.items));
        }
        if draws {
            let mut screen = Vec::new();
            if let Err(error) = Fleet::ask(&asked, app.as_deref())
                .and_then(|fleet| fleet.draw(&mut screen, &asked.environment, app.as_deref()))
            {
                writeln!(screen, "{error:#}")?;
            }
            writeln!(screen, "\nlately")?;
            for line in &lately {
                writeln!(screen, "{line}")?;
            }
            write!(out, "{CLEAR}{}", String::from_utf8_lossy(&screen))?;
        } else if view.failure != failure {
            if let Some(why) = &view.failure {
                eprintln!("moneta watch: not followed now: {why}");
            }
            failure = view.failure;
        }
        out.flush()?;
    }
}

/// What is other in `now` than it was, in the order of kinds and keys.
fn changes(before: &Arc<Items>, now: &Arc<Items>) -> Vec<String> {
    let mut all = Vec::new();
    if Arc::ptr_eq(before, now) {
        return all;
    }
    for kind in KINDS {
        for (key, item) in now.of(kind) {
            let was = before.get(kind, key);
            if was.is_none_or(|was| was.revision != item.revision) {
                all.push(plain(&told(kind, key, was, item)));
            }
        }
        for (key, _) in before.of(kind).filter(|(key, _)| now.get(kind, key).is_none()) {
            let what = match kind {
                "instances" => "has left",
                "away" => "is back",
                _ => "is gone",
            };
            all.push(plain(&format!("{} {key} {what}", one(kind))));
        }
    }
    all
}

/// One of a kind.
fn one(kind: &str) -> &str {
    match kind {
        "instances" | "away" => "instance",
        "topologies" => "topology",
        "properties" => "property",
        other => other,
    }
}

fn told(kind: &str, key: &str, was: Option<&Item>, now: &Item) -> String {
    let text = |item: &Item, field: &str| item.value[field].as_str().unwrap_or("?").to_owned();
    match (kind, was) {
        ("instances", None) => format!("instance {key} is here: {}", text(now, "effective")),
        ("instances", Some(was)) => {
            let (from, to) = (text(was, "effective"), text(now, "effective"));
            if from == to {
                format!("instance {key} has another record")
            } else {
                format!("instance {key}: {from}, now {to}")
            }
        }
        ("away", _) => format!("instance {key} is away: {}", text(now, "why")),
        ("topologies", was) => {
            let epoch = |item: &Item| item.value["epoch"].as_u64().unwrap_or(0);
            let leaving = |item: &Item| count(&item.value, |slot| slot["leaving"] == true);
            let held = |item: &Item| count(&item.value, |slot| !slot["holder"].is_null());
            let before = was.map_or_else(|| "none".to_owned(), |was| epoch(was).to_string());
            let (held, leaving) = (held(now), leaving(now));
            format!("topology {key}: epoch {before}, now {}; {held} slots are held, {leaving} leave", epoch(now))
        }
        (_, _) => format!("{} {key}: {}", one(kind), now.value.get("value").unwrap_or(&now.value)),
    }
}

fn count(document: &Value, counts: impl Fn(&Value) -> bool) -> usize {
    let replicas = document["replicas"].as_array();
    let slots = replicas.into_iter().flatten().flat_map(|replica| replica["slots"].as_array().into_iter().flatten());
    slots.filter(|slot| counts(slot)).count()
}

/// What no terminal takes for a command of its own.
fn plain(text: &str) -> String {
    text.chars().take(LINE_MAX).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The time of day, in UTC.
fn time() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_nothing_that_a_terminal_obeys() {
        assert_eq!(plain("a\x1b[2Jb\r\nc"), "a [2Jb  c");
        assert_eq!(plain(&"x".repeat(1_000)).len(), LINE_MAX);
    }
}
