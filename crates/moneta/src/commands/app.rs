//! `moneta app`: what an app is to be, in a file, against what it is, in the control plane.

mod difference;
mod wanted;

use std::fs;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use moneta_link::{Control, ControlError};
use serde_json::{Value, json};

use self::difference::{Difference, differences};
use self::wanted::Wanted;
use super::{job, safe};

/// The subcommand.
pub fn command() -> Command {
    let file = || {
        Arg::new("file")
            .value_name("FILE")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("What the app is to be")
    };
    let yes = Arg::new("yes")
        .long("yes")
        .action(ArgAction::SetTrue)
        .help("Also what moves keys or takes a copy away, one replica at a time");
    let why = Arg::new("why").long("why").value_name("TEXT").default_value("").help("Why, for the audit");
    Command::new("app")
        .about("Compare what an app is to be with what it is, and change its topology")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("diff").about("Print what differs; the exit status is 1 if anything does").arg(file()))
        .subcommand(Command::new("status").about("Print each slot with its node, and what differs").arg(file()))
        .subcommand(
            Command::new("apply")
                .about("Change the topology as far as the file says; nodes are started and updated by others")
                .args([file(), yes, why]),
        )
}

/// Runs it.
///
/// # Errors
/// If the file makes no sense, or the control plane does not answer or says no.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some((what, of)) = matches.subcommand() else { unreachable!("clap asks for one") };
    let path: &PathBuf = of.get_one("file").context("clap asks for it")?;
    let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let wanted = Wanted::read(&text).with_context(|| format!("{} is no app", path.display()))?;
    let control = job::of_command()?;
    let (topology, instances) = found(&control, &wanted.app)?;
    let differences = differences(&wanted, topology.as_ref(), &instances);
    match what {
        "status" => print(&status(&wanted, topology.as_ref(), &instances))?,
        "apply" => {
            // Of what someone else changes meanwhile nothing is known here.
            let epoch = topology.as_ref().map_or(0, |topology| topology["epoch"].as_u64().unwrap_or(0));
            return apply(&control, &wanted, &differences, epoch, of);
        }
        _ => {}
    }
    for difference in &differences {
        print(&difference.words)?;
    }
    if differences.is_empty() {
        print(&format!("{} is as {} says", wanted.app, path.display()))?;
    }
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints lines that have what instances say of themselves.
fn print(text: &str) -> anyhow::Result<()> {
    text.lines().try_for_each(|line| writeln!(stdout().lock(), "{}", safe::text(line))).map_err(Into::into)
}

/// The topology, if there is one, and the instances of an app.
fn found(control: &Control, app: &str) -> anyhow::Result<(Option<Value>, Vec<Value>)> {
    let topology = match control.get(&control.path(["topologies", app])) {
        Ok(text) => Some(serde_json::from_str(&text)?),
        Err(ControlError::Refused { status: 404, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let page: Value = serde_json::from_str(&control.get(&control.path(["instances"]))?)?;
    let all = page["instances"].as_array().cloned().unwrap_or_default();
    Ok((topology, all.into_iter().filter(|instance| instance["app"] == app).collect()))
}

/// Makes the changes that may be made now; the exit status is 1 if something is left.
fn apply(
    control: &Control,
    wanted: &Wanted,
    differences: &[Difference],
    mut epoch: u64,
    of: &ArgMatches,
) -> anyhow::Result<ExitCode> {
    let (may_move, why) = (of.get_flag("yes"), of.get_one::<String>("why").map_or("", String::as_str));
    let (mut left, mut moved) = (0, None::<String>);
    for Difference { words, change, moves, replica } in differences {
        let Some(change) = change else {
            print(&format!("left: {words}"))?;
            left += 1;
            continue;
        };
        if *moves && !may_move {
            print(&format!("left, for it takes --yes: {words}"))?;
            left += 1;
            continue;
        }
        if *moves {
            let other = if moved.is_some() { moved.clone() } else { busy(control, &wanted.app, replica)? };
            if let Some(other) = other {
                print(&format!("left until {other} has what it is to have: {words}"))?;
                left += 1;
                continue;
            }
        }
        let order = json!({ "expect_epoch": epoch, "why": why, "change": change });
        let path = control.path(["topologies", wanted.app.as_str()]);
        let answer = control.post(&path, &order.to_string()).with_context(|| words.clone())?;
        epoch = serde_json::from_str::<Value>(&answer)?["epoch"].as_u64().unwrap_or(0);
        print(&format!("done: {words}"))?;
        if *moves {
            moved = Some(replica.clone());
        }
        if change["slots"]["write_only"] == true || change.get("add_replica").is_some() {
            print(&format!("      then: moneta warm --app {} --from most-items --to {replica}", wanted.app))?;
        }
    }
    if left == 0 && differences.is_empty() {
        print("nothing to do")?;
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Another replica that is not read at the moment: keys of one more are not moved meanwhile.
fn busy(control: &Control, app: &str, but: &str) -> anyhow::Result<Option<String>> {
    let (topology, _) = found(control, app)?;
    let replicas = topology.as_ref().and_then(|topology| topology["replicas"].as_array());
    let mut names = replicas.into_iter().flatten().filter(|replica| replica["write_only"] == true);
    let name = names.find_map(|replica| replica["name"].as_str().filter(|name| *name != but));
    Ok(name.map(str::to_owned))
}

/// A line a slot that is wanted or there.
fn status(wanted: &Wanted, topology: Option<&Value>, instances: &[Value]) -> String {
    let epoch = topology.map_or(0, |topology| topology["epoch"].as_u64().unwrap_or(0));
    let mut lines = vec![format!("{}, epoch {epoch}", wanted.app)];
    let replicas = topology.and_then(|topology| topology["replicas"].as_array());
    for replica in replicas.into_iter().flatten() {
        for slot in replica["slots"].as_array().into_iter().flatten() {
            let holder = instances.iter().find(|instance| instance["id"] == slot["holder"]);
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let of = |name: &str| holder.map_or_else(|| "-".to_owned(), |holder| text(&holder["value"][name]));
            let state = holder.map_or_else(|| "-".to_owned(), |holder| text(&holder["state"]));
            let name = format!("{}/{}", text(&replica["name"]), text(&slot["slot"]));
            let reads = if replica["write_only"] == true { "written only" } else { "" };
            let line = format!(
                "  {name:<24} {:<24} {:<10} {state:<8} {:<10} {reads}",
                text(&slot["address"]),
                of("status"),
                of("version")
            );
            lines.push(line.trim_end().to_owned());
        }
    }
    lines.join("\n")
}
