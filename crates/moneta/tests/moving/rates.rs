//! How fast a job goes: no faster than it may, and slower where clients have to wait for it.

use std::thread::sleep;
use std::time::{Duration, Instant};

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
    let error = refused(&mut moneta(&["copy", "--from", &from, "--to", &to, "--p99-limit", "1.5"]), 1);
    assert!(error.contains("--p99-limit needs --rate or --operations"), "{error}");
    // Idle servers do not hold it back: in a while it goes at all of its rate.
    let into = folder.path().join("dump");
    run(&["dump", &from, "--into", text(&into), "--rate", "20m", "--p99-limit", "1.5"]);
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
    // Five times the rate is written on, and what is written by then arrives.
    send(source.connect(), b"set last 0 0 4 noreply\r\nthis\r\n");
    until("it arrives", || {
        write();
        assert!(!copying.has_ended(), "{}", copying.stderr());
        target.exchange("get last\r\n").starts_with("VALUE")
    });
    assert!(copying.stderr().contains("changes come faster than the rate allows"), "{}", copying.stderr());
}
