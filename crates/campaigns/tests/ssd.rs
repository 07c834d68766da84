//! A whole campaign on memcached with extstore: every part runs, and what it reports is what happened.

mod support;

use std::process::{Command, Stdio};

use serde_json::Value;
use support::measure;

const EXTSTORE: &str = "memcached -u root -U 0 -l 127.0.0.1 -p {port} -t 1 -m 64 \
    -o ext_page_size=8,ext_wbuf_size=2,ext_path={flash}/extstore:{flash_size}m,ext_item_age=0,ext_max_sleep=10000";
const KEYS: u64 = 2000;

/// Fails with a clear sentence unless a real memcached can be started.
fn require_memcached() {
    let found = Command::new("memcached").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(found.is_ok_and(|status| status.success()), "this test needs memcached on PATH: apt-get install memcached");
}

fn campaign(data: &std::path::Path, more: &[&str]) -> (moneta_bench::Result<()>, Value) {
    let keys = KEYS.to_string();
    let mut arguments = vec!["ssd", "--node", EXTSTORE, "--data", data.to_str().unwrap(), "--keys", &keys, "--verify"];
    arguments.extend(["--flash-size", "64", "--small-flash-size", "64", "--duration", "0.5", "--warmup", "0"]);
    arguments.extend(["--online-warmup", "0.1", "--online-rate", "200", "--overwrites", "2", "--keep-page-cache"]);
    arguments.extend(more);
    measured(&arguments, |report| {
        // A load that was not answered has no latency. Of gets after a restart only the misses are told, and memcached has all.
        let told = |row: &&Value| {
            row["figure"].as_str().is_some_and(|name| name.starts_with("p99") || name == "misses of random gets after")
        };
        let sides =
            report["rows"].as_array().into_iter().flatten().filter(told).flat_map(|row| row["rounds"].as_array());
        sides.flatten().flat_map(|rounds| rounds.as_array()).flatten().all(|value| value.as_f64() > Some(0.0))
    })
}

/// A run in which every load was answered: each lasts half a second, and a busy machine may hold a thread up for that long.
fn measured(arguments: &[&str], is_whole: impl Fn(&Value) -> bool) -> (moneta_bench::Result<()>, Value) {
    let mut runs = (0..5).map(|_| measure(arguments));
    runs.find(|(result, report)| result.is_err() || is_whole(report))
        .expect("in one of five runs every load is answered")
}

/// The first server's figure in all rounds.
fn figure(report: &Value, load: &str, figure: &str) -> Vec<f64> {
    let rows = report["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["load"] == load && row["figure"] == figure);
    let row = row.unwrap_or_else(|| panic!("no {figure} of {load} in {report}"));
    row["rounds"][0].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

#[test]
fn every_part_is_measured_and_the_folder_is_left_empty() {
    require_memcached();
    let data = tempfile::tempdir().unwrap();
    let markdown = data.path().join("table.md");
    let (result, report) = campaign(data.path(), &["--rounds", "2", "--markdown", markdown.to_str().unwrap()]);
    result.unwrap();
    assert_eq!(figure(&report, "bulk fill, 1000 B", "items afterwards"), [KEYS as f64]);
    assert_eq!(figure(&report, "bulk fill, 1000 B", "lost"), [0.0]);
    let from_ssd = figure(&report, "gets from SSD, 16 connections", "hits answered from SSD");
    assert!(from_ssd.len() == 2 && from_ssd.iter().all(|share| *share > 90.0), "{report}");
    assert_eq!(figure(&report, "gets from SSD, 64 connections", "misses"), [0.0; 2]);
    assert!(figure(&report, "gets of 10 keys from SSD, 16 connections", "p99 of gets")[0] > 0.0);
    let quiet = "online gets, 200 a second, Zipf 0.99, quiet";
    assert!(figure(&report, quiet, "p99")[0] > 0.0);
    let bulk = "the same during a bulk load over 8 connections";
    assert!(figure(&report, bulk, "rate of the bulk load")[0] > 0.0);
    // memcached forgets all: the parts of a restart must notice.
    for name in ["restart after a clean stop", "restart after kill -9"] {
        assert_eq!(figure(&report, name, "items after"), [0.0], "{name}");
        assert_eq!(figure(&report, name, "misses of random gets after"), [100.0], "{name}");
    }
    let overwritten = "all keys overwritten 2 times, 1000 B";
    assert!(figure(&report, overwritten, "write amplification, from stats")[0] > 0.1, "{report}");
    assert_eq!(figure(&report, "bulk fill, 100 B", "items afterwards"), [KEYS as f64]);
    assert!(std::fs::read_to_string(&markdown).unwrap().contains("| bulk fill, 1000 B | rate, sets/s |"));
    std::fs::remove_file(&markdown).unwrap();
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0);
}

#[test]
fn two_servers_are_put_side_by_side() {
    require_memcached();
    let data = tempfile::tempdir().unwrap();
    let arguments = ["--parts", "overwrites", "--peer", EXTSTORE, "--name-node", "a", "--name-peer", "b"];
    let (result, report) = campaign(data.path(), &arguments);
    result.unwrap();
    assert_eq!(report["names"], serde_json::json!(["a", "b"]));
    let rounds = &report["rows"][0]["rounds"];
    assert_eq!(
        rounds.as_array().unwrap().iter().map(|side| side.as_array().unwrap().len()).collect::<Vec<_>>(),
        [1, 1]
    );
}

#[test]
fn a_server_without_a_place_for_its_items_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().to_str().unwrap();
    let (result, _) = measure(&["ssd", "--node", "memcached -p {port}", "--data", folder]);
    assert!(result.unwrap_err().to_string().contains("{flash_size}"));
    let (result, _) = measure(&["ssd", "--node", EXTSTORE, "--data", "/no/such/folder"]);
    assert!(result.unwrap_err().to_string().contains("/no/such/folder"));
}

#[test]
fn engines_are_measured_one_after_the_other() {
    require_memcached();
    let data = tempfile::tempdir().unwrap();
    let markdown = data.path().join("table.md");
    let (first, second) = (format!("first={EXTSTORE}"), format!("second={EXTSTORE}"));
    let mut arguments =
        vec!["engines", "--engine", &first, "--engine", &second, "--data", data.path().to_str().unwrap()];
    arguments.extend(["--keys", "2000", "--flash-size", "64", "--duration", "1", "--warmup", "0", "--overwrites", "2"]);
    arguments.extend(["--verify", "--keep-page-cache", "--markdown", markdown.to_str().unwrap()]);
    let (result, report) = measured(&arguments, |report| {
        let whole = |engine: &Value| {
            ["quiet_p99", "loaded_p99", "misses_after"].iter().all(|name| engine[*name].as_f64() > Some(0.0))
        };
        report.as_array().into_iter().flatten().all(whole)
    });
    result.unwrap();
    let engines = report.as_array().unwrap();
    let number = |engine: usize, name: &str| engines[engine][name].as_f64().unwrap();
    for (engine, name) in ["first", "second"].into_iter().enumerate() {
        assert_eq!(engines[engine]["name"], name);
        for figure in ["fill_rate", "quiet_rate", "quiet_p99", "loaded_rate", "overwrite_rate", "memory_per_item"] {
            assert!(number(engine, figure) > 0.0, "{figure} in {report}");
        }
        assert_eq!((number(engine, "misses"), number(engine, "refused")), (0.0, 0.0));
        // memcached forgets all when it ends.
        assert_eq!(number(engine, "misses_after"), 100.0);
    }
    assert_eq!(std::fs::read_to_string(&markdown).unwrap().lines().count(), 4);
}
