//! A job beside clients of a real node whose gets become slow, and fast again: the rate is cut, and rises. The failure to guard against
//! is silent: a job with a limit that it does not keep to, or one that stays slow for ever.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use serde_json::Value;

use super::common::{Process, Signal, connect, moneta};
use super::{node, run, send, sets, text};

/// Bytes of a value that takes a node some fifty times as long as a small one: it is copied into the answer.
const LARGE: usize = 500_000;
/// Items of a job: more than it moves in the test.
const KEYS: u32 = 60_000;

/// Gets small items until `ends`, and large ones among them while `is_loud`. A node times one get of 61.
fn clients(node: SocketAddr, is_loud: &AtomicBool, ends: &AtomicBool) {
    let mut stream = connect(node);
    let mut answers = vec![0; 1 << 20];
    while !ends.load(Ordering::Relaxed) {
        let large = if is_loud.load(Ordering::Relaxed) { 12 } else { 0 };
        let gets = "get online\r\n".repeat(300 - large) + &"get large\r\n".repeat(large) + "mn\r\n";
        stream.write_all(gets.as_bytes()).expect("it reads");
        let mut last = [0; 4];
        while &last != b"MN\r\n" {
            let read = stream.read(&mut answers).expect("it answers");
            assert!(read > 0, "it has closed");
            for byte in &answers[read.saturating_sub(4)..read] {
                last.rotate_left(1);
                last[3] = *byte;
            }
        }
        sleep(Duration::from_millis(20));
    }
}

/// The shares of its bound, in tenths of a percent, and the cuts, of each line in which a job has told them.
fn told(job: &Process) -> Vec<(u32, u32)> {
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" % of its bound, cut ")?;
        let share: f64 = before.rsplit(' ').next()?.parse().ok()?;
        Some(((share * 10.0) as u32, after.split(' ').next()?.parse().ok()?))
    };
    job.stderr().lines().filter_map(of_line).collect()
}

/// Runs a job beside clients of a node, until it was cut and goes faster again.
fn beside(name: &str, node: SocketAddr, arguments: &[&str]) {
    let (is_loud, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    scope(|scope| {
        let end = Ending(&ends);
        scope.spawn(|| clients(node, &is_loud, &ends));
        let bound = ["--operations", "2000", "--p99-limit", "3", "--json"];
        let mut job = Process::start(&mut moneta(&[arguments, &bound].concat()));
        let last = || told(&job).last().copied();
        let seen = |what: &str, holds: &dyn Fn((u32, u32)) -> bool| {
            job.until(&format!("{name}: {what}"), || last().is_some_and(holds));
            last().expect("it has told")
        };
        // What is quiet is known.
        let (_, quiet_cuts) = seen("it goes faster", &|(share, _)| share > 100);
        is_loud.store(true, Ordering::Relaxed);
        let (low, cuts) = seen("it is cut", &|(share, cuts)| cuts > quiet_cuts + 3 && share < 100);
        is_loud.store(false, Ordering::Relaxed);
        seen("it goes faster again", &|(share, now)| share > low + 100 && now >= cuts);
        job.signal(Signal::SIGTERM);
        job.wait();
        let printed = job.stdout();
        if name != "backup" {
            let report: Value = serde_json::from_str(printed.lines().last().expect("it reports")).expect("it is JSON");
            let room = &report["p99"];
            assert!(room["cuts"].as_u64() >= Some(u64::from(cuts)), "{report}");
            assert!(
                room["lowest"].as_f64().expect("it was cut") < room["share"].as_f64().expect("a share"),
                "{report}"
            );
        }
        drop(end);
    });
}

/// Ends the clients, also of a test that fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "half a minute: make test-warm"]
fn a_job_is_cut_while_gets_of_clients_are_slow_and_goes_faster_afterwards() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let start = |writer: &str| {
        let node = node(writer, &[]);
        let value = "x".repeat(LARGE);
        let online = format!("set online 0 0 1 noreply\r\nx\r\nset large 0 0 {LARGE} noreply\r\n{value}\r\n");
        send(node.connect(), online.as_bytes());
        node
    };
    let source = start("1");
    send(source.connect(), &sets(0..KEYS));
    let from = source.address().to_string();
    let (archive, again, rows) = (at("archive"), at("again"), at("rows.csv"));
    run(&["backup", &from, "--into", text(&archive)]);
    let lines = (0..KEYS).map(|key| format!("k{key},{key:0100}\n")).collect::<String>();
    std::fs::write(&rows, format!("key,value\n{lines}")).expect("there is room");
    let (loaded, restored) = (start("2"), start("3"));
    let (to_load, to_restore) = (loaded.address().to_string(), restored.address().to_string());
    let load = ["load", text(&rows), "--to", &to_load, "--key", "key", "--value", "value"];
    let backup = ["backup", &from, "--into", text(&again)];
    let restore = ["restore", "--from", text(&archive), "--at", "4000000000000", "--fill", "--to", &to_restore];
    scope(|scope| {
        scope.spawn(|| beside("load", loaded.address(), &load));
        scope.spawn(|| beside("backup", source.address(), &backup));
        scope.spawn(|| beside("restore", restored.address(), &restore));
    });
}
