//! `moneta topology`: shows and changes the topology of an app, as its control plane has it.

use std::fs;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use moneta_cluster::topology::Topology;
use serde_json::{Value, json};

use crate::control_url;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The subcommand.
pub fn command() -> Command {
    let required = |name: &'static str, help: &'static str| {
        Arg::new(name).value_name(name.to_ascii_uppercase()).required(true).help(help)
    };
    let replica = || required("replica", "The replica");
    let slot = || required("slot", "The slot");
    let off = || Arg::new("off").long("off").action(ArgAction::SetTrue).help("Take it back");
    let show = Command::new("show").about("Print it");
    let show = show
        .arg(Arg::new("epoch").long("epoch").value_name("N").value_parser(value_parser!(u64)).help("As it was then"));
    let create = Command::new("create")
        .about("Make the first one, of a file as --topology takes it, or of JSON")
        .arg(required("file", "The file").value_parser(value_parser!(PathBuf)));
    let add = Command::new("add-replica")
        .about("Add a copy, which takes writes alone until write-only says otherwise")
        .args([required("name", "Its name"), required("zone", "Its zone")])
        .arg(required("slots", "Its slots").num_args(1..))
        .arg(Arg::new("readable").long("readable").action(ArgAction::SetTrue).help("It answers reads at once"));
    let remove = Command::new("remove-replica").about("Remove a copy").arg(replica());
    let replace = Command::new("replace")
        .about("Put another node into a slot; no key moves")
        .args([replica(), slot()])
        .arg(Arg::new("instance").long("instance").value_name("ID").help("An instance that is registered"))
        .arg(Arg::new("address").long("address").value_name("HOST:PORT").help("A node that does not register"))
        .group(clap::ArgGroup::new("by").args(["instance", "address"]).required(true));
    let drain = Command::new("drain")
        .about("Have nodes asked no more, as they are about to go")
        .arg(Arg::new("zone").long("zone").value_name("ZONE").help("Those of a zone"))
        .arg(Arg::new("replica").long("replica").value_name("REPLICA").help("Those of a replica"))
        .arg(Arg::new("slot").long("slot").value_name("SLOT").requires("replica").help("In this slot alone"))
        .group(clap::ArgGroup::new("what").args(["zone", "replica"]).required(true))
        .arg(off());
    let write_only =
        Command::new("write-only").about("Have a replica take writes and answer no reads").args([replica(), off()]);
    let weight = Command::new("weight").about("Give a slot another share of the keys").args([
        replica(),
        slot(),
        required("weight", "Its share, relative to the others'").value_parser(value_parser!(u32)),
    ]);
    let rollback = Command::new("rollback")
        .about("Take it back to what it was in an epoch")
        .arg(required("epoch", "The epoch").value_parser(value_parser!(u64)));
    Command::new("topology")
        .about("Show and change the topology of an app")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(required("app", "The app"))
        .arg(Arg::new("why").long("why").value_name("TEXT").global(true).help("Why, for the audit"))
        .arg(
            Arg::new("expect-epoch")
                .long("expect-epoch")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .global(true)
                .help("Change nothing unless this epoch is in force"),
        )
        .subcommands([show, create, add, remove, replace, drain, write_only, weight, rollback])
        .subcommand(Command::new("epochs").about("List the epochs that are kept"))
}

/// Runs it.
///
/// # Errors
/// If the control plane does not answer, or says no.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let Some((what, of)) = matches.subcommand() else { unreachable!("clap asks for one") };
    let control = control_url::Control::of_command(PATIENCE)?;
    let app = matches.get_one::<String>("app").context("clap asks for an app")?;
    let path = format!("/v1/{}/topologies/{app}", control.environment);
    let page = match what {
        "show" => {
            let epoch = of.get_one::<u64>("epoch").map(u64::to_string);
            let query: Vec<(&str, &str)> = epoch.iter().map(|epoch| ("epoch", epoch.as_str())).collect();
            control.get(&path, &query)?
        }
        "epochs" => {
            let page = control.get(&format!("{path}/epochs"), &[])?;
            let epochs = page["epochs"].as_array().context("the answer has no epochs")?;
            let epochs: Vec<String> = epochs.iter().map(Value::to_string).collect();
            writeln!(stdout(), "{}", epochs.join(" "))?;
            return Ok(());
        }
        _ => {
            let why = of.get_one::<String>("why").map_or("", String::as_str);
            let order =
                json!({ "expect_epoch": of.get_one::<u64>("expect-epoch"), "why": why, "change": change(what, of)? });
            control.post(&path, &order)?
        }
    };
    writeln!(stdout(), "{}", serde_json::to_string_pretty(&page)?)?;
    Ok(())
}

fn change(what: &str, of: &ArgMatches) -> anyhow::Result<Value> {
    let text = |name: &str| of.get_one::<String>(name).cloned();
    let flag = |name: &str| of.get_flag(name);
    Ok(match what {
        "create" => {
            let path: &PathBuf = of.get_one("file").context("clap asks for a file")?;
            let name = path.display();
            let read = fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
            json!({ "create": created(&read).with_context(|| format!("{name} is no topology"))? })
        }
        "add-replica" => {
            let slots: Vec<&String> = of.get_many("slots").into_iter().flatten().collect();
            json!({ "add_replica": { "name": text("name"), "zone": text("zone"), "slots": slots, "write_only": !flag("readable") } })
        }
        "remove-replica" => json!({ "remove_replica": { "name": text("replica") } }),
        "replace" => {
            let (instance, address) = (text("instance"), text("address"));
            json!({ "replace": { "replica": text("replica"), "slot": text("slot"), "instance": instance, "address": address } })
        }
        "drain" => {
            let (zone, replica, slot) = (text("zone"), text("replica"), text("slot"));
            json!({ "drain": { "zone": zone, "replica": replica, "slot": slot, "on": !flag("off") } })
        }
        "write-only" => json!({ "write_only": { "replica": text("replica"), "on": !flag("off") } }),
        "weight" => {
            json!({ "weight": { "replica": text("replica"), "slot": text("slot"), "weight": of.get_one::<u32>("weight") } })
        }
        "rollback" => json!({ "rollback": { "epoch": of.get_one::<u64>("epoch") } }),
        other => bail!("`{other}` is not known"),
    })
}

/// The document of a text: JSON as it is, or TOML, whose nodes are slots with addresses.
fn created(text: &str) -> anyhow::Result<Value> {
    if text.trim_start().starts_with('{') {
        return Ok(serde_json::from_str(text)?);
    }
    let topology = Topology::from_toml(text)?;
    let replicas = topology.replicas.iter().map(|replica| {
        let slots = replica.nodes.iter().map(|node| {
            let admin = node.admin.as_ref().map(ToString::to_string);
            json!({ "slot": node.slot, "weight": node.weight, "address": node.address.to_string(), "admin": admin })
        });
        let slots: Vec<Value> = slots.collect();
        json!({ "name": replica.name, "zone": replica.zone, "write_only": replica.write_only, "slots": slots })
    });
    Ok(json!({ "ring": topology.ring, "replicas": replicas.collect::<Vec<_>>() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(arguments: &[&str]) -> Value {
        let matches = command().get_matches_from([&["topology", "feed"], arguments].concat());
        let (what, of) = matches.subcommand().unwrap();
        let value = change(what, of).unwrap();
        // What the control plane reads.
        serde_json::from_value::<moneta_control::topology::Change>(value.clone()).unwrap();
        value
    }

    #[test]
    fn each_subcommand_is_a_change_that_is_understood() {
        assert_eq!(ordered(&["add-replica", "c1", "c", "c0", "c1"])["add_replica"]["write_only"], true);
        assert_eq!(ordered(&["remove-replica", "c1"])["remove_replica"]["name"], "c1");
        assert_eq!(ordered(&["replace", "a1", "a0", "--instance", "i"])["replace"]["instance"], "i");
        assert_eq!(ordered(&["replace", "a1", "a0", "--address", "h:1"])["replace"]["address"], "h:1");
        assert_eq!(ordered(&["drain", "--zone", "a"])["drain"]["on"], true);
        assert_eq!(ordered(&["drain", "--replica", "a1", "--slot", "a0", "--off"])["drain"]["on"], false);
        assert_eq!(ordered(&["write-only", "a1", "--off"])["write_only"]["on"], false);
        assert_eq!(ordered(&["weight", "a1", "a0", "3"])["weight"]["weight"], 3);
        assert_eq!(ordered(&["rollback", "4"])["rollback"]["epoch"], 4);
    }

    #[test]
    fn a_file_of_nodes_is_a_document() {
        let text = "[[replica]]\nzone = \"a\"\nnodes = [\"a0=10.0.0.1:11211\"]\n";
        let value = json!({ "create": created(text).unwrap() });
        let create: moneta_control::topology::Change = serde_json::from_value(value).unwrap();
        let document = create.apply(None, moneta_control::topology::Found::default()).unwrap();
        assert_eq!(document.slot("a", "a0").unwrap().address.as_deref(), Some("10.0.0.1:11211"));
    }
}
