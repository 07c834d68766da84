//! What the tests of whole runs share: the command line.

use clap::Parser;
use moneta_campaigns::cli::{Campaign, run};

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    campaign: Campaign,
}

/// Runs a campaign with these arguments and gives back the JSON it wrote.
pub fn measure(arguments: &[&str]) -> (moneta_bench::Result<()>, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("result.json");
    let words = ["campaigns"].iter().chain(arguments).copied().chain(["--quiet", "--json", json.to_str().unwrap()]);
    let result = run(&Program::try_parse_from(words).unwrap().campaign);
    let text = std::fs::read_to_string(&json).unwrap_or_else(|_| "null".to_owned());
    (result, serde_json::from_str(&text).unwrap())
}
