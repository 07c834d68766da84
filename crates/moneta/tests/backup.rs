//! `moneta backup` and `moneta restore` between real processes, against a model. What they must not do shows nowhere else:
//! restore what was deleted, lose what was there, mix moments, take a part for the whole, or remove what a kept restore point
//! needs.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Memcached, Node, Process, Signal, file, moneta, printed, refused, steady_port};
use fastrand::Rng;
use moneta_store::Version;
use serde_json::Value;

/// Keys that operations are about.
const KEYS: u32 = 400;

type Model = BTreeMap<String, (String, u32)>;

fn node(more: &[&str]) -> Node {
    Node::start(&[&["--cluster", "--threads", "2"], more].concat())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

fn json(arguments: &[&str]) -> Value {
    let printed = printed(&mut moneta(&[arguments, &["--json"]].concat()));
    serde_json::from_str(printed.lines().last().expect("it prints")).expect("its last line is JSON")
}

fn millis() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("before long")
}

/// What a node holds of all keys.
fn content(node: &Node) -> Model {
    let asked: String = (0..KEYS).map(|key| format!("mg k{key} k v f\r\n")).collect();
    let answer = node.exchange(&asked);
    let mut lines = answer.lines();
    let mut held = Model::new();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "VA" {
            let token =
                |letter: char| words[2..].iter().find_map(|word| word.strip_prefix(letter)).expect("it was asked for");
            let flags = token('f').parse().expect("a number");
            held.insert(token('k').to_owned(), (lines.next().expect("a value").to_owned(), flags));
        }
    }
    held
}

/// Some operations of every kind on a node, and on the model.
fn operate(rng: &mut Rng, node: &Node, model: &mut Model, count: u32) {
    let mut requests = String::new();
    for _ in 0..count {
        let key = format!("k{}", rng.u32(0..KEYS));
        match rng.u8(0..100) {
            0 => {
                requests += "flush_all noreply\r\n";
                model.clear();
            }
            1..=25 => {
                requests += &format!("delete {key} noreply\r\n");
                model.remove(&key);
            }
            26..=35 => {
                requests += &format!("append {key} 0 0 1 noreply\r\n+\r\n");
                if let Some((value, _)) = model.get_mut(&key) {
                    value.push('+');
                }
            }
            36..=45 => requests += &format!("touch {key} 5000 noreply\r\n"),
            _ => {
                let value = format!("{}-{}", rng.u64(..), "x".repeat(rng.usize(0..800)));
                let (flags, life) = (rng.u32(..), [0, 7000][rng.usize(0..2)]);
                requests += &format!("set {key} {flags} {life} {} noreply\r\n{value}\r\n", value.len());
                model.insert(key, (value, flags));
            }
        }
    }
    requests += "mn\r\n";
    assert_eq!(node.exchange(&requests), "MN\r\n");
}

fn assert_alike(node: &Node, model: &Model, what: &str) {
    let held = content(node);
    let differ: Vec<_> = (0..KEYS)
        .map(|key| format!("k{key}"))
        .filter(|key| held.get(key) != model.get(key))
        .map(|key| format!("{key}: holds {:?}, wanted {:?}", held.get(&key), model.get(&key)))
        .collect();
    assert!(differ.is_empty(), "{what}: {} keys differ, as {:.2000}", differ.len(), differ.join("; "));
}

/// A backup of all until now; the moment of its restore point.
fn back_up(address: &str, into: &Path, more: &[&str]) -> u64 {
    let report = json(&[&["backup", address, "--into", text(into)], more].concat());
    report["slots"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|slot| slot["restore_point"].as_u64().expect("a moment"))
        .min()
        .expect("one")
}

fn restore(from: &Path, to: &str, at: u64, more: &[&str]) -> Value {
    json(&[&["restore", "--from", text(from), "--to", to, "--at", &at.to_string()], more].concat())
}

/// A replica of these nodes, whose slots are `s0` and so on.
fn replica(folder: &Path, name: &str, nodes: &[&Node]) -> String {
    let slots: Vec<String> =
        nodes.iter().enumerate().map(|(number, node)| format!("\"s{number}={}\"", node.address())).collect();
    file(folder, name, &format!("[[replica]]\nname = \"a\"\nzone = \"a\"\nnodes = [{}]\n", slots.join(", ")))
}

/// Sets, or without a value deletes, keys at the nodes that have them by a topology.
fn write(topology: &str, nodes: &[&Node], keys: std::ops::Range<u32>, value: Option<&str>) {
    for key in keys {
        let key = format!("k{key}");
        let route = printed(&mut moneta(&["route", topology, &key]));
        let node = nodes.iter().find(|node| route.contains(&node.address().to_string())).expect("it has a node");
        let request = match value {
            Some(value) => format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()),
            None => format!("delete {key}\r\n"),
        };
        let answer = node.exchange(&request);
        assert!(["STORED\r\n", "DELETED\r\n", "NOT_FOUND\r\n"].contains(&&*answer), "{answer}");
    }
}

/// Without what the archive knows of rings, a node's old items come back that have been deleted or overwritten since at the node
/// that has their keys now, no verification holds, and nothing from before the change can be restored.
#[test]
fn a_replica_that_grows_and_shrinks_is_restored_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let (first, second) = (node(&[]), node(&[]));
    let one = replica(folder.path(), "one.toml", &[&first]);
    let two = replica(folder.path(), "two.toml", &[&first, &second]);
    write(&one, &[&first], 0..40, Some("old"));
    let before = back_up("a", &archive, &["--topology", &one]);
    // By a ring of two most of half of the keys are the second node's: there they are written anew, and deleted.
    let both = [&first, &second];
    write(&two, &both, 0..40, Some("zz"));
    write(&two, &both, 20..30, None);
    sleep(Duration::from_millis(1200));
    let grown = back_up("a", &archive, &["--topology", &two]);
    let _ = printed(&mut moneta(&["backup", "verify", "--from", text(&archive)]));
    let held = |at: u64| {
        let target = node(&["-m", "64"]);
        let address = target.address().to_string();
        restore(&archive, &address, at, &["--rollback", "--yes"]);
        content(&target)
    };
    let is = |held: &Model, keys: std::ops::Range<u32>, value: Option<&str>, what: &str| {
        for key in keys {
            let key = format!("k{key}");
            assert_eq!(held.get(&key).map(|(value, _)| value.as_str()), value, "{key} {what}");
        }
    };
    let now = held(grown.max(before) + 5_000);
    is(&now, 0..20, Some("zz"), "is another's");
    is(&now, 20..30, None, "was deleted");
    is(&now, 30..40, Some("zz"), "is another's");
    is(&held(before), 0..40, Some("old"), "before the change");
    // The second node leaves: what it had is the first one's again.
    write(&one, &[&first], 0..40, Some("end"));
    write(&one, &[&first], 0..10, None);
    sleep(Duration::from_millis(1200));
    back_up("a", &archive, &["--topology", &one]);
    // No restore point of the one that has left is missing: an alert on its age would fire for ever.
    let metrics = folder.path().join("metrics");
    let status = json(&["backup", "status", "--from", text(&archive), "--prometheus", text(&metrics)]);
    let left: Vec<bool> = (0..2).map(|slot| status["slots"][slot]["left"].as_bool().expect("it is told")).collect();
    assert_eq!(left, [false, true], "{status}");
    assert_eq!(status["restore_point_age"].as_f64().map(|age| age < 600.0), Some(true));
    let metrics = fs::read_to_string(&metrics).expect("it is there");
    let has =
        |slot: &str| metrics.contains(&format!("\nmoneta_backup_restore_point_timestamp_seconds{{slot=\"{slot}\"}} "));
    assert!(has("s0") && !has("s1") && metrics.contains("moneta_backup_segment_bytes{slot=\"s1\"}"), "{metrics}");
    let last = held(millis());
    is(&last, 0..10, None, "was deleted");
    is(&last, 10..40, Some("end"), "is another's");
}

/// Two apps whose slots have the same names: without this each restore has the other's items, and drops its own.
#[test]
fn another_node_that_runs_does_not_go_into_a_slot() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let (first, second) = (node(&[]), node(&[]));
    let one = replica(folder.path(), "one.toml", &[&first]);
    let other = replica(folder.path(), "other.toml", &[&second]);
    write(&one, &[&first], 0..3, Some("one"));
    write(&other, &[&second], 0..3, Some("other"));
    let at = back_up("a", &archive, &["--topology", &one]);
    let is = ["backup", "a", "--into", text(&archive), "--topology", &other];
    let said = refused(&mut moneta(&is), 1);
    assert!(said.contains("which runs") && said.contains("--moved"), "{said}");
    let target = node(&[]);
    restore(&archive, &target.address().to_string(), millis().max(at), &["--fill"]);
    assert_eq!(content(&target)["k1"].0, "one");
    back_up("a", &archive, &["--topology", &other, "--moved"]);
    // What has ended is replaced without a word.
    drop(second);
    back_up("a", &archive, &["--topology", &one]);
}

/// Each would go on in the other's folder, and who removes the files of the one removes those of the other.
#[test]
fn a_dump_and_a_backup_do_not_share_an_archive() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let source = node(&[]);
    source.exchange("set k 0 0 1\r\nv\r\n");
    let address = source.address().to_string();
    let (dump, backup, fresh) = (at("dump"), at("backup"), at("fresh"));
    let dump_into = |into: &Path| moneta(&["dump", &address, "--into", text(into)]);
    let back_up_into = |into: &Path| moneta(&["backup", &address, "--into", text(into)]);
    printed(&mut dump_into(&dump));
    printed(&mut back_up_into(&backup));
    let names = |folder: &Path| {
        let names = fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it is there").file_name());
        names.filter(|name| name != "lock").collect::<std::collections::BTreeSet<_>>()
    };
    let before = [names(&dump), names(&backup)];
    let said = refused(&mut dump_into(&backup), 1);
    assert!(said.contains(&format!("{} is an archive of backups", text(&backup))), "{said}");
    let said = refused(&mut back_up_into(&dump), 1);
    assert!(said.contains(&format!("{} has a dump", text(&dump))), "{said}");
    let mut copied = back_up_into(&fresh);
    let said = refused(copied.args(["--copy-to", text(&dump)]), 1);
    assert!(said.contains(&format!("{} has a dump", text(&dump))), "{said}");
    assert!([names(&dump), names(&backup)] == before, "nothing came into either");
    // Each goes on where it is.
    printed(&mut dump_into(&dump));
    printed(&mut back_up_into(&backup));
}

/// Segments and records below a folder whose names end so.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it is there").path();
        match path.is_dir() {
            true => found.extend(files(&path, end)),
            false if text(&path).ends_with(end) => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

fn seed() -> u64 {
    let seed = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    seed
}

/// A source that may be started anew under the same address.
struct Source {
    arguments: Vec<String>,
    node: Option<Node>,
}

impl Source {
    fn start(more: &[&str]) -> Self {
        let port = steady_port().to_string();
        let mut arguments: Vec<String> =
            ["serve", "-p", &port, "--admin", "127.0.0.1:0", "--cluster"].map(str::to_owned).into();
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        let mut source = Self { arguments, node: None };
        source.restart(Signal::SIGTERM);
        source
    }

    fn restart(&mut self, signal: Signal) {
        if let Some(mut node) = self.node.take() {
            node.signal(signal);
            node.wait();
        }
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.node = Some(Node::run(&mut moneta(&arguments)));
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    fn address(&self) -> String {
        self.node().address().to_string()
    }
}

fn against_the_model(source: &mut Source, may_restart: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let mut rng = Rng::with_seed(seed());
    let mut model = Model::new();
    let mut points: Vec<(u64, Model)> = Vec::new();
    for round in 0..9 {
        operate(&mut rng, source.node(), &mut model, 300);
        if round % 3 == 1 {
            // One that follows, and is killed at any moment.
            let follow = ["backup", &source.address(), "--into", text(&archive), "--follow", "--every", "1s"];
            let mut process = Process::start(&mut moneta(&follow));
            operate(&mut rng, source.node(), &mut model, 100);
            sleep(Duration::from_millis(rng.u64(0..2500)));
            process.signal(Signal::SIGKILL);
            process.wait();
        }
        // A part after each run, so that there are several.
        let at = back_up(&source.address(), &archive, &["--part-age", "1s"]);
        points.push((at, model.clone()));
        // Nothing of the next round lies in this point's last moment.
        sleep(Duration::from_millis(5));
        match round {
            3 | 6 => {
                let report = json(&["backup", "merge", "--from", text(&archive)]);
                assert!(report[0]["base"].is_u64(), "{report}");
                assert_eq!(report[0]["items"], model.len(), "{report}");
                // Longer than what retention is rounded to.
                sleep(Duration::from_secs(3));
            }
            4 if may_restart => source.restart(Signal::SIGTERM),
            7 => {
                // What is younger than the fifth point stays, with all that it needs.
                let kept = points[4].0;
                let keep = (millis() - kept).div_ceil(1000) + 1;
                let report = json(&["backup", "prune", "--from", text(&archive), "--keep", &format!("{keep}s")]);
                assert_eq!(
                    report[0]["bases"].to_string(),
                    "[0]",
                    "the base that the first merge took the place of: {report}"
                );
                points.drain(..4);
            }
            _ => {}
        }
    }
    let status = json(&["backup", "list", "--from", text(&archive)]);
    let slot = &status["slots"][0];
    assert!(slot["parts"].as_array().expect("a list").len() > 1, "{status}");
    let target = node(&[]);
    let address = target.address().to_string();
    operate(&mut rng, &target, &mut Model::new(), 200);
    // In any order: each takes all that was there before.
    rng.shuffle(&mut points);
    for (at, model) in &points {
        let report = restore(&archive, &address, *at, &["--rollback", "--yes"]);
        assert_eq!(report["read"]["items"], model.len(), "{report}");
        assert_alike(&target, model, &format!("rolled back to {at}"));
    }
    // What clients write after a rollback counts.
    let key = points[0].1.keys().next().expect("one").clone();
    target.exchange(&format!("set {key} 5 0 5\r\nnewer\r\n"));
    assert!(target.exchange(&format!("get {key}\r\n")).contains("newer"));
    for (at, model) in points.iter().take(2) {
        let empty = node(&[]);
        restore(&archive, &empty.address().to_string(), *at, &["--fill"]);
        assert_alike(&empty, model, &format!("filled as of {at}"));
    }
}

#[test]
fn each_restore_point_of_an_ssd_node_is_the_model_at_its_watermark() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().join("tier").display());
    against_the_model(&mut Source::start(&["--flash", &flash, "-m", "16"]), true);
}

#[test]
fn each_restore_point_of_a_node_in_ram_is_the_model_at_its_watermark() {
    against_the_model(&mut Source::start(&["-m", "64"]), false);
}

#[test]
fn a_source_that_lost_its_log_gets_a_new_base_and_its_old_points_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let mut source = Source::start(&["-m", "64"]);
    let mut rng = Rng::with_seed(seed());
    let mut model = Model::new();
    operate(&mut rng, source.node(), &mut model, 300);
    let first = back_up(&source.address(), &archive, &[]);
    let before = model.clone();
    // In RAM alone: all is gone with it.
    source.restart(Signal::SIGKILL);
    model.clear();
    operate(&mut rng, source.node(), &mut model, 300);
    let second = back_up(&source.address(), &archive, &[]);
    let target = node(&[]);
    let address = target.address().to_string();
    for (at, model) in [(second, &model), (first, &before), (second - 1, &before)] {
        if at == second - 1 && first >= at {
            continue;
        }
        restore(&archive, &address, at, &["--rollback", "--yes"]);
        assert_alike(&target, model, &format!("as of {at}"));
    }
    let error = refused(
        &mut moneta(&["restore", "--from", text(&archive), "--to", &address, "--at", "1000000000", "--fill"]),
        1,
    );
    assert!(error.contains("no restore point"), "{error}");
}

#[test]
fn a_fill_replaces_nothing_newer_and_a_rollback_of_a_prefix_touches_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let source = node(&[]);
    let address = source.address().to_string();
    source.exchange("set a:1 1 0 3\r\nold\r\nset a:2 0 0 3\r\nold\r\nset b:1 0 0 3\r\nold\r\n");
    let at = back_up(&address, &archive, &[]).to_string();
    source.exchange("set a:1 0 0 3\r\nnew\r\ndelete a:2\r\nset a:3 0 0 3\r\nnew\r\nset b:1 0 0 3\r\nnew\r\n");
    let command = |more: &[&str]| {
        let restore = ["restore", "--from", text(&archive), "--to", &address, "--at", &at];
        moneta(&[&restore[..], more].concat())
    };
    printed(&mut command(&["--fill"]));
    let held = "VALUE a:1 0 3\r\nnew\r\nVALUE a:3 0 3\r\nnew\r\nVALUE b:1 0 3\r\nnew\r\nEND\r\n";
    assert_eq!(source.exchange("get a:1 a:2 a:3 b:1\r\n"), held, "the node remembers the delete of a:2");
    let error = refused(&mut command(&["--rollback"]), 1);
    assert!(error.contains("say --yes"), "{error}");
    printed(&mut command(&["--rollback", "--yes", "--prefix", "a:"]));
    let held = "VALUE a:1 1 3\r\nold\r\nVALUE a:2 0 3\r\nold\r\nVALUE b:1 0 3\r\nnew\r\nEND\r\n";
    assert_eq!(source.exchange("get a:1 a:2 a:3 b:1\r\n"), held);
    let elsewhere = node(&[]);
    let to = elsewhere.address().to_string();
    printed(&mut moneta(&["restore", "--from", text(&archive), "--to", &to, "--at", &at, "--fill", "--prefix", "b"]));
    assert_eq!(elsewhere.exchange("get a:1 a:2 b:1\r\n"), "VALUE b:1 0 3\r\nold\r\nEND\r\n");
}

/// With versions of another region relays send the rollback on as that region's own, and take it for one that came from there.
#[test]
fn a_rollback_is_written_in_the_region_of_its_target_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let (ours, other) = (node(&["--region-id", "3"]), node(&["--region-id", "4"]));
    ours.exchange("set k1 0 0 3\r\nold\r\n");
    let at = back_up(&ours.address().to_string(), &archive, &[]).to_string();
    ours.exchange("set k1 0 0 3\r\nnew\r\n");
    let restore = |more: &[&str]| {
        moneta(&[&["restore", "--from", text(&archive), "--at", &at, "--rollback", "--yes"], more].concat())
    };
    let to = ours.address().to_string();
    let said = refused(&mut restore(&["--to", &to, "--region", "1"]), 1);
    assert!(said.contains("is of region 3, and not of region 1"), "{said}");
    let both = replica(folder.path(), "both.toml", &[&ours, &other]);
    let said = refused(&mut restore(&["--topology", &both]), 1);
    assert!(said.contains("is of region 4, and not of region 3"), "{said}");
    assert!(ours.exchange("get k1\r\n").contains("new"), "nothing was touched");
    printed(&mut restore(&["--to", &to]));
    let answer = ours.exchange("mg k1 c v\r\n");
    let version = answer.split(' ').find_map(|word| word.trim().strip_prefix('c')?.lines().next()?.parse().ok());
    let version = Version(version.unwrap_or_else(|| panic!("no version: {answer}")));
    assert!(answer.contains("old") && version.origin().region() == 3, "{answer}: {:?}", version.origin());
}

#[test]
fn all_nodes_of_a_replica_are_backed_up_copied_verified_and_restored_to_another_ring() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let nodes: Vec<Node> = (0..5).map(|_| node(&[])).collect();
    let ring = |name: &str, nodes: &[Node]| {
        let slot =
            |(number, node): (usize, &Node)| format!("{{ slot = \"{number}\", address = \"{}\" }},", node.address());
        let slots: String = nodes.iter().enumerate().map(slot).collect();
        let replica = format!("[[replica]]\nname = \"{name}\"\nzone = \"a\"\nnodes = [{slots}]\n");
        file(folder.path(), &format!("{name}.toml"), &format!("epoch = 1\nring = \"slots\"\n{replica}"))
    };
    let topologies = (ring("two", &nodes[..2]), ring("three", &nodes[2..]));
    let rows: String = (0..KEYS).map(|key| format!("k{key},value-{key}\n")).collect();
    let rows = file(folder.path(), "rows.csv", &format!("key,value\n{rows}"));
    json(&["load", &rows, "--topology", &topologies.0, "--key", "key", "--value", "value"]);
    let (archive, copy) = (at("archive"), at("copy"));
    let backup = ["backup", "two", "--topology", &topologies.0, "--into", text(&archive), "--copy-to", text(&copy)];
    let report = json(&backup);
    assert_eq!(report["slots"].as_array().expect("a list").len(), 2, "{report}");
    assert!(report["copied"]["files"].as_u64().expect("a number") > 8, "{report}");
    let model: Model = (0..KEYS).map(|key| (format!("k{key}"), (format!("value-{key}"), 0))).collect();
    // Nothing is uploaded twice.
    let segments = files(&archive, ".segment");
    json(&backup);
    let after = files(&archive, ".segment");
    assert!(segments.iter().all(|segment| after.contains(segment)));
    assert_eq!(after.iter().filter(|path| text(path).contains("/bases/")).count(), 2);
    // The second copy alone is enough.
    fs::remove_dir_all(&archive).expect("it is there");
    let verified = json(&["backup", "verify", "--from", text(&copy)]);
    assert_eq!(verified["items"], KEYS, "{verified}");
    let metrics = at("moneta.prom");
    let status = ["backup", "status", "--from", text(&copy), "--prometheus", text(&metrics), "--max-age", "1h"];
    let report = json(&status);
    assert!(report["verified_age"].as_f64().expect("a number") < 600.0, "{report}");
    let metrics = fs::read_to_string(metrics).expect("it was written");
    assert!(metrics.contains(&format!("moneta_backup_verified_items {KEYS}\n")), "{metrics}");
    let line = metrics
        .lines()
        .find(|line| line.starts_with("moneta_backup_verified_timestamp_seconds "))
        .expect("it is there");
    let age = millis() as f64 / 1000.0 - line.rsplit(' ').next().expect("a number").parse::<f64>().expect("a number");
    assert!((0.0..600.0).contains(&age), "{metrics}");
    json(&["restore", "--from", text(&copy), "--topology", &topologies.1, "--at", "now", "--fill"]);
    let mut held = Model::new();
    for node in &nodes[2..] {
        let part = content(node);
        assert!(!part.is_empty() && part.len() < KEYS as usize, "each node has its share");
        held.extend(part);
    }
    assert_eq!(held, model);
}

#[test]
fn what_is_damaged_or_missing_is_an_error_before_a_target_is_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let source = node(&[]);
    let address = source.address().to_string();
    let mut rng = Rng::with_seed(seed());
    let mut model = Model::new();
    for _ in 0..3 {
        operate(&mut rng, &source, &mut model, 100);
        back_up(&address, &archive, &[]);
    }
    let target = node(&[]);
    target.exchange("set k0 0 0 5\r\nthere\r\n");
    let to = target.address().to_string();
    let rollback = || moneta(&["restore", "--from", text(&archive), "--to", &to, "--at", "now", "--rollback", "--yes"]);
    let is_refused = |wanted: &str| {
        let error = refused(&mut rollback(), 1);
        assert!(error.contains(wanted), "{error}");
        assert!(target.exchange("get k0\r\n").contains("there"), "the target is as it was");
        let error = refused(&mut moneta(&["backup", "verify", "--from", text(&archive)]), 1);
        assert!(error.contains(wanted), "{error}");
    };
    // A bit has flipped.
    let segments = files(&archive, ".segment");
    let largest = segments.iter().max_by_key(|path| fs::metadata(path).expect("it is there").len()).expect("one");
    let bytes = fs::read(largest).expect("it can be read");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(largest, &flipped).expect("it can be written");
    is_refused("damaged");
    fs::write(largest, &bytes[..bytes.len() / 2]).expect("it can be written");
    is_refused("cut short");
    fs::remove_file(largest).expect("it is there");
    is_refused(".segment");
    fs::write(largest, &bytes).expect("it can be written");
    // A record in the middle is missing.
    let commits = files(&archive.join("slots"), ".commit");
    let commit = commits.iter().find(|path| text(path).contains("/parts/")).expect("there are changes");
    let bytes = fs::read(commit).expect("it can be read");
    fs::remove_file(commit).expect("it is there");
    is_refused("hole");
    fs::write(commit, bytes).expect("it can be written");
    printed(&mut rollback());
    assert_alike(&target, &model, "once all is there");
    let error = refused(&mut moneta(&["backup", "status", "--from", text(&archive), "--max-age", "1h"]), 1);
    assert!(error.contains("nothing was ever verified"), "{error}");
}

#[test]
fn of_a_memcached_each_backup_is_a_base() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let memcached = Memcached::start(&[]);
    let connect = || common::connect_unix(memcached.path()).expect("it listens");
    common::exchange(connect(), "set k1 5 0 3\r\none\r\n");
    let first = back_up(text(memcached.path()), &archive, &[]);
    common::exchange(connect(), "set k1 6 0 3\r\ntwo\r\nset k2 0 0 3\r\ntwo\r\n");
    let begun = Instant::now();
    while millis() <= first {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    let second = back_up(text(memcached.path()), &archive, &[]);
    for (at, wanted) in
        [(first, "VALUE k1 5 3\r\none\r\nEND\r\n"), (second, "VALUE k1 6 3\r\ntwo\r\nVALUE k2 0 3\r\ntwo\r\nEND\r\n")]
    {
        let target = node(&[]);
        restore(&archive, &target.address().to_string(), at, &["--fill"]);
        assert_eq!(target.exchange("get k1 k2\r\n"), wanted);
    }
    let error = refused(&mut moneta(&["backup", text(memcached.path()), "--into", text(&archive), "--follow"]), 1);
    assert!(error.contains("no feed"), "{error}");
}

#[cfg(feature = "age")]
#[test]
fn an_encrypted_archive_is_read_by_its_key_alone() {
    // The public test keys of age's own implementations.
    const OWN: (&str, &str) = (
        "AGE-SECRET-KEY-1GQ9778VQXMMJVE8SK7J6VT8UJ4HDQAJUVSFCWCM02D8GEWQ72PVQ2Y5J33",
        "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa",
    );
    const OTHER: &str = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("archive");
    let (own, other) = (file(folder.path(), "own", OWN.0), file(folder.path(), "other", OTHER));
    let source = node(&[]);
    let address = source.address().to_string();
    source.exchange("set secret 0 0 14\r\nin plain words\r\n");
    back_up(&address, &archive, &["--recipient", OWN.1]);
    source.exchange("set k1 0 0 14\r\nin plain words\r\n");
    let at = back_up(&address, &archive, &[]).to_string();
    for segment in files(&archive, ".segment") {
        let bytes = fs::read(segment).expect("it can be read");
        assert!(bytes.starts_with(b"age-encryption.org/v1"));
    }
    let target = node(&[]);
    let to = target.address().to_string();
    let restore = |more: &[&str]| {
        moneta(&[&["restore", "--from", text(&archive), "--to", &to, "--at", &at, "--fill"], more].concat())
    };
    let error = refused(&mut restore(&[]), 1);
    assert!(error.contains("it is encrypted: --identity"), "{error}");
    let error = refused(&mut restore(&["--identity", &other]), 1);
    assert!(error.contains("not for this key"), "{error}");
    printed(&mut moneta(&["backup", "merge", "--from", text(&archive), "--identity", &own]));
    printed(&mut moneta(&["backup", "verify", "--from", text(&archive), "--identity", &own]));
    printed(&mut restore(&["--identity", &own]));
    assert!(target.exchange("get secret k1\r\n").matches("in plain words").count() == 2);
    let error = refused(&mut moneta(&["backup", &address, "--into", text(&archive), "--recipient", "age1wrong"]), 1);
    assert!(error.contains("is encrypted for"), "{error}");
}

#[test]
fn a_base_leaves_out_what_was_replaced_and_records_of_a_later_build_are_refused_with_a_word() {
    let folder = tempfile::tempdir().expect("a folder");
    let tier = format!("{}:400m", folder.path().join("tier").display());
    let source = node(&["--flash", &tier, "-m", "64"]);
    let sets = |round: u32| -> String {
        (0..KEYS).map(|key| format!("set k{key} 0 0 10000 noreply\r\n{round:010000}\r\n")).collect::<String>()
            + "mn\r\n"
    };
    // What was replaced in the regions that are not full is told, too: of these rounds, some are in others.
    (0..40).for_each(|round| assert_eq!(source.exchange(&sets(round)), "MN\r\n"));
    let into = folder.path().join("backup");
    let address = source.address().to_string();
    back_up(&address, &into, &[]);
    let base = files(&into, ".json").into_iter().find(|path| path.parent().is_some_and(|of| of.ends_with("bases")));
    let base = base.expect("there is one");
    let mut record: Value = serde_json::from_slice(&fs::read(&base).expect("it is there")).expect("JSON");
    assert!(record["counts"]["sets"].as_u64() < Some(25 * u64::from(KEYS)), "{record}");
    assert_eq!(record["format"], 1, "{record}");
    for (path, name) in [(base, "bases/000000.json"), (into.join("archive.json"), "archive.json")] {
        let before = fs::read(&path).expect("it is there");
        record = serde_json::from_slice(&before).expect("JSON");
        record["format"] = Value::from(2);
        fs::write(&path, record.to_string()).expect("there is room");
        for command in [["backup", &address, "--into", text(&into)], ["backup", "verify", "--from", text(&into)]] {
            let error = refused(&mut moneta(&command), 1);
            assert!(error.contains(&format!("{name} has format 2, and this build reads 1")), "{error}");
        }
        fs::write(&path, before).expect("there is room");
    }
    // Records of before they had a number are of the first.
    record.as_object_mut().expect("an object").remove("format");
    fs::write(into.join("archive.json"), record.to_string()).expect("there is room");
    back_up(&address, &into, &[]);
}
