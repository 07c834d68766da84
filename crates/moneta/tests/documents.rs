//! Guards against documents that drift from the table, and against an example that would not start a node as it is.

mod common;

use common::{file, moneta, printed};
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
    let uncommented: Vec<&str> = example
        .lines()
        .map(|line| {
            line.strip_prefix("# ").filter(|rest| rest.contains(" = ") || rest.starts_with("[[")).unwrap_or(line)
        })
        .collect();
    let path = file(folder.path(), "example.toml", &uncommented.join("\n"));
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
