//! What the tests of whole runs share: the command line, and servers.

pub mod scripted;

use std::process::{Command, Stdio};

use clap::Parser;
use moneta_bench::cli::{BenchArgs, run};

/// How Debian's memcached is started by the benchmark.
#[allow(dead_code, reason = "not every test file starts memcached")]
pub const MEMCACHED: &str = "memcached -u root -U 0 -l 127.0.0.1 -p {port} -t 1";

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: BenchArgs,
}

/// Runs the benchmark with these arguments and gives back the JSON it wrote.
pub fn bench(arguments: &[&str]) -> (moneta_bench::Result<()>, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("result.json");
    let words = ["bench"].iter().chain(arguments).copied().chain(["--quiet", "--json", json.to_str().unwrap()]);
    let result = run(Program::try_parse_from(words).unwrap().args);
    let text = std::fs::read_to_string(&json).unwrap_or_else(|_| "null".to_owned());
    (result, serde_json::from_str(&text).unwrap())
}

/// Fails with a clear sentence unless a real memcached can be started.
#[allow(dead_code, reason = "not every test file starts memcached")]
pub fn require_memcached() {
    let found = Command::new("memcached").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(found.is_ok_and(|status| status.success()), "this test needs memcached on PATH: apt-get install memcached");
}
