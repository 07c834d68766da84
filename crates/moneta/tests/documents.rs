//! Guards against documents that drift from the table, and against an example that would not start a node as it is.

mod common;

use common::{file, moneta, printed};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn committed(path: &str) -> String {
    let path = Path::new("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_reference_in_docs_is_the_one_that_is_generated() {
    let generated = printed(&mut moneta(&["config", "--reference"]));
    assert_eq!(committed("docs/options.md"), generated, "run `moneta config --reference > docs/options.md`");
}

#[test]
fn the_example_in_deploy_is_the_one_that_is_generated() {
    let generated = printed(&mut moneta(&["config", "--example"]));
    assert_eq!(committed("deploy/moneta.toml"), generated, "run `moneta config --example > deploy/moneta.toml`");
}

#[test]
fn the_example_is_the_defaults_written_out() {
    let folder = tempfile::tempdir().unwrap();
    let example = printed(&mut moneta(&["config", "--example"]));
    let path = file(folder.path(), "example.toml", &example);
    let values = |arguments: &[&str]| -> Vec<(String, String)> {
        let rows: Vec<serde_json::Value> = serde_json::from_str(&printed(&mut moneta(arguments))).unwrap();
        rows.iter().map(|row| (row["option"].to_string(), row["value"].to_string())).collect()
    };
    assert_eq!(values(&["config", "--json", "--config", &path]), values(&["config", "--json"]));
}

#[test]
fn the_example_with_its_comments_taken_off_still_starts() {
    let folder = tempfile::tempdir().unwrap();
    let example = printed(&mut moneta(&["config", "--example"]));
    let path = file(folder.path(), "example.toml", &uncommented(&example));
    let table = printed(&mut moneta(&["config", "--config", &path]));
    assert!(table.contains("127.0.0.1:11300 (batch, max_connections 100)"), "the example's listener is read: {table}");
}

#[test]
fn every_option_of_the_reference_is_in_the_help() {
    let help = printed(&mut moneta(&["serve", "--help"]));
    let reference = printed(&mut moneta(&["config", "--reference"]));
    let keys: Vec<&str> = reference.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert!(keys.len() > 20, "the reference has a heading an option");
    for key in keys {
        assert!(help.contains(&format!("--{}", key.replace('_', "-"))), "{key} is missing in the help");
    }
}

#[test]
fn the_page_of_the_control_plane_has_its_options_and_no_others() {
    let help = printed(&mut moneta(&["control", "--help"]));
    let flags = help.lines().filter_map(|line| line.trim_start().trim_start_matches("-v, ").strip_prefix("--"));
    let named = flags.map(|flag| flag.split([' ', '=', '[', '.']).next().unwrap().replace('-', "_"));
    let options: BTreeSet<String> = named.filter(|name| name != "config").collect();
    let page = committed("docs/control.md");
    let section = page.split("\n## Options\n").nth(1).expect("it has the section");
    // Rows of the table, and the sentence after it.
    let (table, after) = section.split_once("\n\nAnd as with nodes").expect("it has the table");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let sentence = after.split("\n\n").next().unwrap().split('`').skip(1).step_by(2);
    let documented: BTreeSet<String> = rows.chain(sentence).map(str::to_owned).collect();
    assert_eq!(documented, options);
}

/// The lines of an example that are comments and make sense as lines.
fn uncommented(text: &str) -> String {
    let line = |line: &str| {
        // A sentence may have a line of the file in its middle.
        let is_key = |rest: &str| rest.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        let rest = line.strip_prefix("# ").filter(|rest| is_key(rest) || rest.starts_with("[["));
        rest.unwrap_or(line).to_owned()
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_files_of_a_cluster_in_deploy_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let listed = |path: &str| printed(&mut moneta(&["config", "--config", path]));
    let proxy = listed("../../deploy/cluster/proxy.toml");
    assert!(proxy.lines().any(|line| line.starts_with("zone ") && line.contains(" a ")), "{proxy}");
    let apps = file(folder.path(), "proxy.toml", &uncommented(&committed("deploy/cluster/proxy.toml")));
    let apps = listed(&apps);
    assert!(apps.contains("sessions (keys sess:*") && apps.contains("rest (all other keys"), "{apps}");
    // As the unit of a node adds to it.
    let mut node = moneta(&["config", "--config", "../../deploy/cluster/node.toml"]);
    let node = printed(node.env("MONETA_FLASH", "/var/lib/moneta:10g"));
    assert!(node.contains("/etc/moneta/topology.toml"), "{node}");
    let copies = printed(&mut moneta(&["route", "../../deploy/cluster/topology.toml", "key"]));
    let zones: Vec<&str> = copies.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(zones, ["a", "b", "c"]);
    let unit = committed("deploy/cluster/moneta-proxy.service");
    assert!(unit.contains("\nExecStart=/usr/local/bin/moneta proxy --config /etc/moneta/proxy.toml\n"));
}
