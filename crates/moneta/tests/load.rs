//! `moneta load` between real files and real servers. What it must not do shows nowhere else: lose a good row, apply a row of
//! before over what a client wrote since, take a part of a file for the whole, or write again what is there.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use common::{Memcached, Node, Process, Signal, moneta, printed, refused, steady_port};
use fastrand::Rng;
use serde_json::Value;

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

/// The report says so of each.
fn assert_report(report: &Value, wanted: &[(&str, u64)]) {
    for (name, count) in wanted {
        assert_eq!(report[*name], *count, "{name} in {report}");
    }
}

/// A metric of a node.
fn metric(node: &Node, name: &str) -> u64 {
    node.wait_for_log("admin HTTP listening");
    let log = node.log();
    let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
    let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
    let mut stream = common::connect(address);
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it answers");
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in {page}")) as u64
}

/// A value of `key`, or nothing.
fn value(node: &Node, key: &str) -> Option<String> {
    let answer = node.exchange(&format!("get {key}\r\n"));
    answer.strip_prefix("VALUE ").and_then(|rest| rest.lines().nth(1)).map(str::to_owned)
}

#[test]
fn rows_of_every_format_become_the_same_items() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a.csv"), "id,name,ttl,flags\n1,\"x, \"\"y\"\"\",100,7\n2,ä,,\n").expect("it can be written");
    fs::write(at("b.tsv"), "id\tname\tttl\tflags\n3\tz\t0\t1\n").expect("it can be written");
    let lines = "{\"id\":4,\"name\":\"q\",\"ttl\":100,\"flags\":2}\n\n{\"id\":\"5\",\"name\":null}\n{\"id\":6,\"name\":{\"a\":[1]}}\n";
    let packed = zstd::encode_all(lines.as_bytes(), 1).expect("there is memory");
    fs::write(at("c.jsonl.zst"), packed).expect("it can be written");
    let target = node(&[]);
    let address = target.address().to_string();
    let bad = at("bad");
    let all = ["load", text(folder.path()), "--to", &address, "--key", "id", "--ttl", "ttl", "--flags", "flags"];
    let report = json(&[&all[..], &["--value", "name", "--prefix", "p:", "--bad", text(&bad)]].concat());
    assert_report(&report, &[("rows", 6), ("stored", 5), ("bad", 1)]);
    let passed = |stage: &str| {
        let seconds = report["stages"]["seconds"].as_f64().expect("a time");
        (report["stages"][stage]["items_per_s"].as_f64().expect("a rate") * seconds).round()
    };
    assert!(passed("read") >= passed("written") && passed("written") > 0.0, "{report}");
    assert_eq!(value(&target, "p:1").as_deref(), Some("x, \"y\""));
    assert_eq!(target.exchange("mg p:1 f t\r\n"), "HD f7 t100\r\n".replace("t100", &remaining(&target, "p:1")));
    assert_eq!(target.exchange("mg p:3 f t\r\n"), "HD f1 t-1\r\n");
    assert_eq!(value(&target, "p:4").as_deref(), Some("q"));
    assert_eq!(value(&target, "p:6").as_deref(), Some("{\"a\":[1]}"));
    let told = fs::read_to_string(&bad).expect("it is there");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("c.jsonl.zst\",\"row\":2,\"reason\":\"\\\"name\\\", the value, is missing\""), "{told}");
    // Several columns, or all of them, are an object; the key may have several, too.
    fs::remove_file(&bad).expect("it is there");
    for (columns, wanted) in [("name,flags", r#"{"name":"x, \"y\"","flags":"7"}"#), ("*", r#""id":"1","name":"#)] {
        let file = at("a.csv");
        let load = ["load", text(&file), "--to", &address, "--key", "id,flags", "--value", columns, "--separator", "/"];
        let report = json(&load);
        assert_report(&report, &[("rows", 2), ("bad", 1)]);
        let held = value(&target, "1/7").expect("it is there");
        assert!(held.contains(wanted), "{held}");
    }
    // To a memcached, which knows no versions, a row is a set.
    let memcached = Memcached::start(&[]);
    let file = at("a.csv");
    let report = json(&["load", text(&file), "--to", text(memcached.path()), "--key", "id", "--value", "name"]);
    assert_eq!(report["stored"], 2, "{report}");
    let held = common::exchange(common::connect_unix(memcached.path()).expect("it listens"), "get 2\r\n");
    assert!(held.contains("\r\nä\r\n"), "{held}");
}

/// Seconds that a key has left, as the token of a meta get.
fn remaining(node: &Node, key: &str) -> String {
    let answer = node.exchange(&format!("mg {key} t\r\n"));
    let token = answer.trim_end().rsplit(' ').next().expect("it has one").to_owned();
    let left: u32 = token[1..].parse().expect("it lives for some time");
    assert!((1..=100).contains(&left), "{answer}");
    token
}

/// A file of some KB that says of itself that a page has 200 MiB: without a bound one of some MB takes what the machine has.
#[cfg(feature = "parquet")]
#[test]
fn a_file_that_needs_more_memory_than_the_load_may_have_is_an_error() {
    let file = Path::new("../rows/tests/fixtures/page-of-200-mib.parquet");
    let target = node(&[]);
    let address = target.address().to_string();
    let load = |limit: &str| {
        let is = ["load", text(file), "--to", &address, "--key", "id", "--value", "v", "--memory-limit", limit];
        refused(&mut moneta(&is), 1)
    };
    let said = load("100m");
    assert!(said.contains("memory allocation of") && said.contains("failed"), "{said}");
    let said = load("2g");
    assert!(said.contains("the value has 209715200 bytes, and --value-max is"), "{said}");
}

/// Rows of another region than the nodes' look as if they had come from there: relays do not send them on.
#[test]
fn rows_are_written_in_the_region_of_the_target_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = common::file(folder.path(), "a.csv", "id,v\n1,x\n");
    let target = node(&["--region-id", "5"]);
    let address = target.address().to_string();
    let load =
        |more: &[&str]| moneta(&[&["load", &file, "--to", &address, "--key", "id", "--value", "v"], more].concat());
    let said = refused(&mut load(&["--region", "0"]), 1);
    assert!(said.contains("is of region 5, and not of region 0"), "{said}");
    printed(&mut load(&[]));
    let answer = target.exchange("mg 1 c\r\n");
    let version = answer.trim().rsplit_once('c').and_then(|(_, version)| version.parse().ok());
    let version = moneta_store::Version(version.unwrap_or_else(|| panic!("no version: {answer}")));
    assert_eq!(version.origin().region(), 5, "{answer}");
}

const KILLED_ROWS: u32 = 120_000;

/// A row whose key comes again later in the file, with another value, and one that is bad, now and then.
fn row(number: u32) -> String {
    match number % 1000 {
        0 => format!(",value-{number}\n"),
        1 => format!("again,value-{number}\n"),
        _ => format!("k{number},value-{number}\n"),
    }
}

#[test]
fn a_load_that_is_killed_ten_times_applies_every_good_row_and_tells_each_bad_one_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let mut file = std::io::BufWriter::new(File::create(at("rows.csv")).expect("it can be made"));
    file.write_all(b"key,value\n").expect("there is room");
    (0..KILLED_ROWS).for_each(|number| file.write_all(row(number).as_bytes()).expect("there is room"));
    drop(file);
    let flash = format!("{}:200m", at("tier").display());
    let target = node(&["--flash", &flash, "-m", "64"]);
    let address = target.address().to_string();
    let (rows, checkpoint, bad) = (at("rows.csv"), at("checkpoint"), at("bad"));
    let load = ["load", text(&rows), "--to", &address, "--key", "key", "--value", "value"];
    let load = [&load[..], &["--checkpoint", text(&checkpoint), "--bad", text(&bad)]].concat();
    let mut rng = Rng::new();
    let mut kills = 0;
    // And so often that it went on where it was for some chunks.
    let chunks = || fs::read_to_string(&checkpoint).unwrap_or_default().lines().count();
    while kills < 10 || chunks() < 4 {
        // So slow that it does not end before all kills.
        let mut process = Process::start(&mut moneta(&[&load[..], &["--rate", "400k"]].concat()));
        process.until("a chunk is begun", || fs::metadata(&checkpoint).is_ok_and(|about| about.len() > 0));
        sleep(Duration::from_millis(rng.u64(0..900)));
        assert!(!process.has_ended(), "{}", process.messages());
        process.signal(Signal::SIGKILL);
        process.wait();
        kills += 1;
    }
    // What a client writes after a row's chunk began stays.
    target.exchange("set k2 0 0 5\r\nnewer\r\n");
    let report = json(&load);
    let bad_rows = u64::from(KILLED_ROWS / 1000);
    assert_report(&report, &[("rows", KILLED_ROWS.into()), ("bad", bad_rows)]);
    let run = report["rows_of_run"].as_u64().expect("a number");
    assert!(run < u64::from(KILLED_ROWS), "it went on where it was: {report}");
    for number in (0..KILLED_ROWS).filter(|number| number % 1000 > 1).step_by(97) {
        let wanted = if number == 2 { "newer".to_owned() } else { format!("value-{number}") };
        assert_eq!(value(&target, &format!("k{number}")), Some(wanted));
    }
    assert_eq!(value(&target, "k2").as_deref(), Some("newer"));
    let items = target.exchange("stats\r\n");
    let wanted = KILLED_ROWS - 2 * (KILLED_ROWS / 1000) + 1;
    assert!(items.contains(&format!("STAT curr_items {wanted}\r\n")), "{items}");
    let last = KILLED_ROWS - 1000 + 1;
    assert_eq!(value(&target, "again"), Some(format!("value-{last}")), "of one key the last row counts");
    let told = fs::read_to_string(&bad).expect("it is there");
    let numbers: Vec<u64> = told
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("it is JSON")["row"].as_u64().expect("a number"))
        .collect();
    let wanted: Vec<u64> = (0..bad_rows).map(|number| number * 1000 + 1).collect();
    assert_eq!(numbers, wanted, "each bad row once");
    // Again it is done; and sent again it changes nothing, which the device shows.
    assert_eq!(json(&load)["before"], true);
    let written = || metric(&target, "moneta_flash_stored_bytes_total{cause=\"item\"}");
    let before = written();
    let report = json(&[&load[..], &["--again"]].concat());
    assert_eq!(report["stored"], 0, "{report}");
    assert_eq!(written(), before, "a repeated load writes nothing to SSD: {report}");
    // Older are the earlier rows of the key that comes again, and the one that a client has replaced.
    let unchanged = u64::from(KILLED_ROWS) - 2 * bad_rows;
    assert_report(&report, &[("unchanged", unchanged), ("superseded", bad_rows)]);
}

/// A load that is killed, and goes on where it was, on a target in RAM that was started again meanwhile: that lacks the rows of before.
#[test]
fn a_target_that_was_restarted_empty_gets_the_rows_of_before_as_well() {
    const ROWS: u32 = 30_000;
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let lines: String = (0..ROWS).map(|number| format!("k{number},value-{number}\n")).collect();
    let file = common::file(folder.path(), "rows.csv", &format!("key,value\n{lines},none\n"));
    let items = |node: &Node| {
        let stats = node.exchange("stats\r\n");
        stats.lines().find_map(|line| line.strip_prefix("STAT curr_items ")?.trim().parse::<u32>().ok())
    };
    for (name, mode) in [("versions", &["--cluster"][..]), ("plain", &[][..])] {
        let port = steady_port().to_string();
        let own = ["serve", "-p", &port, "--admin", "127.0.0.1:0", "--threads", "1"];
        let start = || Node::run(moneta(&own).args(mode));
        let restart = |target: Node| {
            target.signal(Signal::SIGKILL);
            drop(target);
            start()
        };
        let (target, checkpoint, bad) = (start(), at(&format!("{name}.load")), at(&format!("{name}.bad")));
        let to = target.address().to_string();
        let load = ["load", &file, "--to", &to, "--key", "key", "--value", "value", "--checkpoint", text(&checkpoint)];
        let load = [&load[..], &["--bad", text(&bad)]].concat();
        let chunks = || fs::read_to_string(&checkpoint).unwrap_or_default().matches("\"row\"").count();
        let killed_in = |chunk: usize, rate: &str| {
            let mut process = Process::start(&mut moneta(&[&load[..], &["--rate", rate]].concat()));
            process.until("a chunk of those is begun", || chunks() >= chunk);
            assert!(!process.has_ended(), "{}", process.messages());
            process.signal(Signal::SIGKILL);
            process.wait();
        };
        killed_in(3, "300k");
        let target = restart(target);
        // What is written since then is newer than the rows, and stays.
        target.exchange("set k5 0 0 5\r\nnewer\r\n");
        let ended = common::output(&mut moneta(&[&load[..], &["--json"]].concat()));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() && said.contains(&format!("{to} has begun anew, empty, since")), "{said}");
        let report = String::from_utf8_lossy(&ended.stdout).into_owned();
        let report: Value = serde_json::from_str(report.lines().last().expect("it prints")).expect("it is JSON");
        let newer = u64::from(name == "versions");
        assert_report(&report, &[("rows", u64::from(ROWS) + 1), ("bad", 1), ("unsure", 0), ("superseded", newer)]);
        assert_eq!(report["stored"], u64::from(ROWS) - newer, "{report}");
        assert_eq!(items(&target), Some(ROWS), "{report}");
        if name == "versions" {
            assert_eq!(value(&target, "k5").as_deref(), Some("newer"));
        }
        assert_eq!(fs::read_to_string(&bad).expect("it is there").lines().count(), 1, "each bad row once");
        // A load that is done does nothing by itself, but says what it would take.
        let target = restart(target);
        let ended = common::output(&mut moneta(&load));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            ended.status.success() && said.contains("has begun anew, empty, since") && said.contains("--again"),
            "{said}"
        );
        assert_eq!(items(&target), Some(0));
        let report = json(&[&load[..], &["--again"]].concat());
        assert_report(&report, &[("stored", ROWS.into()), ("unsure", 0)]);
        assert_eq!(items(&target), Some(ROWS));
        let ended = common::output(&mut moneta(&load));
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() && !said.contains("begun anew"), "{said}");
        // Another target has none of the rows, either.
        let other = start_elsewhere(mode);
        let elsewhere = other.address().to_string();
        let is: Vec<&str> = load.iter().map(|word| if *word == to { &*elsewhere } else { *word }).collect();
        let report = json(&[&is[..], &["--again"]].concat());
        assert_report(&report, &[("stored", ROWS.into()), ("unsure", 0)]);
    }
}

fn start_elsewhere(mode: &[&str]) -> Node {
    Node::start(&[&["--threads", "1"], mode].concat())
}

/// Rows of the long test, and how many of them have a value that is too long.
#[cfg(feature = "parquet")]
const LONG_ROWS: u32 = 1_000_000;
#[cfg(feature = "parquet")]
const LONG_BAD: u32 = LONG_ROWS / 1000;
/// More pairs of keys that collide are there in one run of some 100,000.
#[cfg(feature = "parquet")]
const COLLISIONS: u32 = 5;

#[cfg(feature = "parquet")]
#[test]
#[ignore = "a minute: make test-warm"]
fn a_million_rows_of_parquet_come_through_ten_kills_and_are_written_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    // The file is the export of a dump.
    let source = node(&["-m", "512"]);
    let sets = |number: u32| {
        let value = format!("{number:0length$}", length = if number.is_multiple_of(1000) { 300 } else { 60 });
        format!("set k{number} 0 0 {} noreply\r\n{value}\r\n", value.len())
    };
    let mut stream = std::io::BufWriter::new(source.connect());
    (0..LONG_ROWS).for_each(|number| stream.write_all(sets(number).as_bytes()).expect("it reads"));
    stream.write_all(b"mn\r\n").and_then(|()| stream.flush()).expect("it reads");
    stream.get_mut().read_exact(&mut [0; 4]).expect("it answers");
    let (dump, rows, address) = (at("dump"), at("rows.parquet"), source.address().to_string());
    printed(&mut moneta(&["dump", &address, "--into", text(&dump)]));
    printed(&mut moneta(&["segments", "export", "--from", text(&dump), "--into", text(&rows)]));
    let flash = format!("{}:1g", at("tier").display());
    let target = node(&["--flash", &flash, "-m", "64"]);
    let (checkpoint, bad, to) = (at("checkpoint"), at("bad"), target.address().to_string());
    let load = ["load", text(&rows), "--to", &to, "--key", "key", "--value", "value", "--value-max", "100"];
    let load = [&load[..], &["--checkpoint", text(&checkpoint), "--bad", text(&bad)]].concat();
    let mut rng = Rng::new();
    for kill in 1..=10 {
        // So slow that it does not end before all kills.
        let mut process = Process::start(&mut moneta(&[&load[..], &["--rate", "4m"]].concat()));
        let chunks = || fs::read_to_string(&checkpoint).unwrap_or_default().lines().count();
        process.until("some chunks are begun", || chunks() > 2 * kill);
        sleep(Duration::from_millis(rng.u64(0..300)));
        assert!(!process.has_ended(), "{}", process.messages());
        process.signal(Signal::SIGKILL);
        process.wait();
    }
    let report = json(&load);
    assert_report(&report, &[("rows", LONG_ROWS.into()), ("bad", LONG_BAD.into())]);
    let run = report["rows_of_run"].as_u64().expect("a number");
    assert!(run < u64::from(LONG_ROWS), "it went on where it was: {report}");
    let stats = target.exchange("stats\r\n");
    let there = stats.lines().find_map(|line| line.strip_prefix("STAT curr_items ")?.parse::<u32>().ok());
    let there = there.unwrap_or_else(|| panic!("{stats}"));
    // Of two keys that agree in 40 bits under the tier's secret one is displaced: 0.45 pairs are to be expected of a million.
    let displaced = LONG_ROWS - LONG_BAD - there;
    assert!(displaced <= COLLISIONS, "{displaced} items are not there");
    for number in (1..LONG_ROWS).step_by(997).filter(|number| number % 1000 > 0) {
        assert_eq!(value(&target, &format!("k{number}")), Some(format!("{number:060}")));
    }
    assert_eq!(fs::read_to_string(&bad).expect("it is there").lines().count(), LONG_BAD as usize, "each bad row once");
    let written = || metric(&target, "moneta_flash_stored_bytes_total{cause=\"item\"}");
    let before = written();
    let report = json(&[&load[..], &["--again"]].concat());
    let stored = report["stored"].as_u64().expect("a number");
    // Each of such a pair is displaced by the other.
    assert!(stored <= u64::from(2 * displaced), "{report}");
    assert_report(&report, &[("unchanged", u64::from(LONG_ROWS - LONG_BAD) - stored), ("superseded", 0)]);
    assert!(stored > 0 || written() == before, "a repeated load writes nothing to SSD: {report}");
}

#[test]
fn a_file_that_is_not_whole_or_lacks_a_column_ends_the_load_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let target = node(&["-I", "20k"]);
    let address = target.address().to_string();
    let load = |file: &Path, more: &[&str]| {
        let load = ["load", text(file), "--to", &address, "--key", "key", "--value", "value"];
        moneta(&[&load[..], more].concat())
    };
    fs::write(at("wrong.csv"), "key,val\na,b\n").expect("it can be written");
    let error = refused(&mut load(&at("wrong.csv"), &[]), 1);
    assert!(error.contains("wrong.csv: it has no column \"value\"; it has key, val"), "{error}");
    // A gzip that was cut short: what came before it is applied, and the load is not done.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut rng = Rng::with_seed(1);
    writeln!(packed, "key,value").expect("there is memory");
    (0..50_000).for_each(|number| writeln!(packed, "k{number},{}", rng.u64(..)).expect("there is memory"));
    let packed = packed.finish().expect("there is memory");
    fs::write(at("cut.csv.gz"), &packed[..packed.len() / 2]).expect("it can be written");
    let checkpoint = at("checkpoint");
    let error = refused(&mut load(&at("cut.csv.gz"), &["--checkpoint", text(&checkpoint)]), 1);
    assert!(error.contains("cut.csv.gz, line "), "{error}");
    assert!(value(&target, "k0").is_some());
    // Another file in its place is not taken for the rest of it.
    fs::write(at("cut.csv.gz"), &packed).expect("it can be written");
    let error = refused(&mut load(&at("cut.csv.gz"), &["--checkpoint", text(&checkpoint)]), 1);
    assert!(error.contains("as it was before it changed"), "{error}");
    // A value that the command, and one that the target does not take.
    let large = format!("key,value\na,{}\nb,{}\nc,fits\n", "x".repeat(60_000), "y".repeat(30_000));
    fs::write(at("large.csv"), large).expect("it can be written");
    let bad = at("bad");
    let limits = ["--value-max", "50k", "--bad", text(&bad), "--json"];
    let report: Value = serde_json::from_str(&printed(&mut load(&at("large.csv"), &limits))).expect("it is JSON");
    assert_report(&report, &[("stored", 1), ("bad", 2)]);
    let told = fs::read_to_string(&bad).expect("it is there");
    assert!(told.contains("60000 bytes, and --value-max is 51200") && told.contains("has no room"), "{told}");
    let error = refused(&mut load(&at("large.csv"), &["--value-max", "50k", "--max-bad", "0"]), 1);
    assert!(error.contains("--max-bad is 0"), "{error}");
    // A quote that nothing closes does not take the rest of a large file for a value.
    let open = format!("key,value\na,\"{}", "line\n".repeat(1_000_000));
    fs::write(at("open.csv"), open).expect("it can be written");
    let error = refused(&mut load(&at("open.csv"), &[]), 1);
    assert!(error.contains("a row is too long"), "{error}");
    fs::write(at("none.csv"), "key,value\n,b\n,c\n").expect("it can be written");
    let error = refused(&mut load(&at("none.csv"), &[]), 1);
    assert!(error.contains("none of 2 rows is good"), "{error}");
}

#[test]
fn a_million_bad_rows_take_no_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let mut file = std::io::BufWriter::new(File::create(at("rows.jsonl")).expect("it can be made"));
    file.write_all(b"{\"key\":\"good\",\"value\":\"v\"}\n").expect("there is room");
    (0..1_000_000).for_each(|_| file.write_all(b"{\"key\":\"a b\"}\n").expect("there is room"));
    drop(file);
    let target = node(&[]);
    let (rows, bad, address) = (at("rows.jsonl"), at("bad"), target.address().to_string());
    let load =
        ["load", text(&rows), "--to", &address, "--key", "key", "--value", "value", "--bad", text(&bad), "--json"];
    let mut process = Process::start(&mut moneta(&load));
    let mut peak = 0;
    process.until("it has ended", || {
        peak = peak.max(process.peak_bytes().unwrap_or(0));
        process.has_ended()
    });
    assert!(process.wait().success(), "{}", process.messages());
    let report = process.stdout();
    assert!(report.contains("\"bad\":1000000") && report.contains("\"stored\":1,"), "{report}");
    assert!(peak > 0 && peak < 64 << 20, "{peak} bytes");
    assert_eq!(fs::read_to_string(&bad).expect("it is there").lines().count(), 1_000_000);
}
