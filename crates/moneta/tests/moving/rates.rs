//! How fast a job goes: no faster than it may, and slower where clients have to wait for it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::{Process, moneta, refused, until};
use super::{node, run, send, sets, text};

#[test]
fn a_job_moves_no_more_bytes_and_items_a_second_than_it_may() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, target) = (node("1", &[]), node("2", &[]));
    send(source.connect(), &sets(0..5000));
    let (from, to) = (source.address().to_string(), target.address().to_string());
    for bound in [["--operations", "2000"], ["--rate", "200k"]] {
        let begun = Instant::now();
        run(&["copy", "--from", &from, "--to", &to, bound[0], bound[1]]);
        assert!(begun.elapsed() >= Duration::from_secs(2), "{bound:?} ended after {:?}", begun.elapsed());
    }
    let (rows, backup) = (folder.path().join("rows.csv"), folder.path().join("backup"));
    let lines = (0..5000).map(|key| format!("r{key},{key:0100}\n")).collect::<String>();
    std::fs::write(&rows, format!("key,value\n{lines}")).expect("there is room");
    for job in [
        &["load", text(&rows), "--to", &to, "--key", "key", "--value", "value"][..],
        &["backup", &from, "--into", text(&backup)],
        &["restore", "--from", text(&backup), "--at", "4000000000000", "--fill", "--to", &to],
    ] {
        let begun = Instant::now();
        run(&[job, &["--operations", "4000"]].concat());
        assert!(begun.elapsed() >= Duration::from_secs(1), "{job:?} ended after {:?}", begun.elapsed());
        let error = refused(&mut moneta(&[job, &["--p99-limit", "1.5"]].concat()), 1);
        assert!(error.contains("--p99-limit needs --rate or --operations"), "{error}");
    }
    let error = refused(&mut moneta(&["copy", "--from", &from, "--to", &to, "--p99-limit", "1.5"]), 1);
    assert!(error.contains("--p99-limit needs --rate or --operations"), "{error}");
    // Idle servers do not hold it back: in a while it goes at all of its rate.
    let into = folder.path().join("dump");
    run(&["dump", &from, "--into", text(&into), "--rate", "20m", "--p99-limit", "1.5"]);
}

#[test]
fn a_job_tells_its_rates_by_stage_and_which_one_limits_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, target) = (node("1", &[]), node("2", &[]));
    send(source.connect(), &sets(0..3000));
    let (from, to) = (source.address().to_string(), target.address().to_string());
    let into = folder.path().join("dump");
    let bound = ["--operations", "2000"];
    let copied = stages(&[&["copy", "--from", &from, "--to", &to][..], &bound].concat());
    let dumped = stages(&[&["dump", &from, "--into", text(&into)][..], &bound].concat());
    let populated = stages(&[&["populate", "--from", text(&into), "--to", &to][..], &bound].concat());
    for base in [copied, dumped, populated] {
        assert_eq!(base["limit"], "bound", "{base}");
        let time = |what: &str| base["time"][what].as_f64().expect("a part of the time");
        let all: f64 = ["source", "bound", "target", "work"].into_iter().map(time).sum();
        assert!((all - 1.0).abs() < 0.01, "{base}");
        // All that was read has been written when a job ends.
        assert_eq!(base["read"], base["written"], "{base}");
        let items = base["read"]["items_per_s"].as_f64().expect("a rate") * base["seconds"].as_f64().expect("a time");
        assert!((2900.0..3100.0).contains(&items), "{items} items: {base}");
    }
}

/// The stages of a base, as a job's report has them.
fn stages(arguments: &[&str]) -> Value {
    let printed = run(&[arguments, &["--json"]].concat());
    let mut report: Value =
        serde_json::from_str(printed.lines().last().expect("it prints")).expect("its last line is JSON");
    report["stages"]["base"].take()
}

#[test]
fn a_node_tells_what_online_gets_take_and_what_comes_through_the_batch_port_is_none() {
    let port = moneta_testkit::process::free_port().expect("there is one").to_string();
    let node = node("1", &["--batch-port", &port]);
    let durations = || {
        let answer = node.exchange("stats\r\n");
        let line = answer.lines().find_map(|line| line.strip_prefix("STAT online_get_durations")).map(str::to_owned);
        line.expect("it tells").trim().to_owned()
    };
    let gets = "get none\r\n".repeat(610);
    let batch = super::common::connect(("127.0.0.1", port.parse::<u16>().expect("a port")));
    send(batch, gets.replace("get none", "mg none q").as_bytes());
    assert_eq!(durations(), "");
    node.exchange(&gets);
    let counted: u64 = durations()
        .split(',')
        .map(|word| word.split_once(':').expect("a count").1.parse::<u64>().expect("a number"))
        .sum();
    assert_eq!(counted, 610, "one in 61 stands for all");
}

#[test]
fn changes_that_come_faster_than_the_rate_are_kept_up_with_and_a_short_memory_of_them_is_enough() {
    // The node remembers some seconds of what is written here.
    let (source, target) = (node("1", &["-m", "8", "--feed-memory", "1"]), node("2", &[]));
    let value = "x".repeat(1000);
    let written = |keys: std::ops::Range<u32>| -> Vec<u8> {
        keys.map(|key| format!("set w{} 0 0 1000 noreply\r\n{value}\r\n", key % 500)).collect::<String>().into_bytes()
    };
    // The base takes six seconds.
    send(source.connect(), &sets(0..6000));
    let (from, to) = (source.address().to_string(), target.address().to_string());
    let copying = Process::start(&mut moneta(&["copy", "--from", &from, "--to", &to, "--follow", "--rate", "100k"]));
    let mut stream = source.connect();
    let mut number = 0;
    let mut write = || {
        for _ in 0..50 {
            send(&mut stream, &written(number..number + 20));
            number += 20;
            sleep(Duration::from_millis(40));
        }
    };
    until("all that was there is copied", || {
        write();
        assert!(!copying.has_ended(), "{}", copying.stderr());
        copying.stderr().contains("all that it held is copied")
    });
    assert!(copying.stderr().contains("limited by "), "its lines tell the rates: {}", copying.stderr());
    // Five times the rate is written on, and what is written by then arrives.
    send(source.connect(), b"set last 0 0 4 noreply\r\nthis\r\n");
    until("it arrives", || {
        write();
        assert!(!copying.has_ended(), "{}", copying.stderr());
        target.exchange("get last\r\n").starts_with("VALUE")
    });
    assert!(copying.stderr().contains("changes come faster than the rate allows"), "{}", copying.stderr());
}
