//! What moves items in bulk, beyond one dump and one populate: several populators, foreign files, rates, nodes that fill themselves.

#[path = "../common/mod.rs"]
mod common;

mod anew;
mod cachemover;
mod days;
mod filling;
mod forgotten;
mod hostile;
mod killed;
mod rates;
mod room;
mod sharing;

use std::io::{Read, Write};
use std::path::Path;

use common::{Node, moneta, printed};

fn node(writer: &str, more: &[&str]) -> Node {
    Node::start(&[&["--cluster", "--writer-id", writer, "--threads", "1"], more].concat())
}

/// A run that ends by itself; what it prints.
fn run(arguments: &[&str]) -> String {
    printed(&mut moneta(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// Both hold the same keys, values and flags.
fn verify(one: &str, other: &str) {
    let ended = common::output(&mut moneta(&["verify", one, other, "--settle", "0.1"]));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

/// Sends requests of which all but the last are answered by nothing, and waits for the answer of that, `mn`.
fn send(mut stream: impl Read + Write, requests: &[u8]) {
    stream.write_all(requests).and_then(|()| stream.write_all(b"mn\r\n")).expect("it reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"MN\r\n", "every request is without an answer");
}

/// Sets of these keys, with values of 100 bytes. A base by a list of keys has a segment for 4,096 of them at least.
fn sets(keys: std::ops::Range<u32>) -> Vec<u8> {
    keys.map(|key| format!("set k{key} {key} 0 100 noreply\r\n{key:0100}\r\n")).collect::<String>().into_bytes()
}

/// The number after `"NAME":` in a report.
fn number(report: &str, name: &str) -> u64 {
    let rest = report.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name}: {report}")).1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name} is no number: {report}"))
}

/// How many items a node says that it has.
fn items(node: &Node) -> u64 {
    let answer = node.exchange("stats\r\n");
    let line = answer.lines().find_map(|line| line.strip_prefix("STAT curr_items "));
    line.and_then(|count| count.trim().parse().ok()).expect("it tells")
}
