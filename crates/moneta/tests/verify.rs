//! `moneta verify`, from outside: what it prints, and with which status it ends.

mod common;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use common::{Node, Process, Signal, file, moneta, output};

/// Two nodes in RAM; the second lacks a key, has one that the first lacks, and three others in another form.
fn different() -> (Node, Node) {
    let (a, b) = (Node::start(&[]), Node::start(&[]));
    let mut common = String::new();
    for number in 0..100 {
        common += &format!("set same:{number} 0 0 1\r\nx\r\n");
    }
    a.exchange(&common);
    b.exchange(&common);
    a.exchange(
        "set value 0 0 3\r\nold\r\nset flags 1 0 1\r\nx\r\nset expiry 0 0 1\r\nx\r\nset gone 7 3000 4\r\nhere\r\n",
    );
    b.exchange("set value 0 0 3\r\nodd\r\nset flags 2 0 1\r\nx\r\nset expiry 0 900 1\r\nx\r\nset extra 0 0 1\r\nx\r\n");
    (a, b)
}

fn verify(a: &Node, b: &Node, options: &[&str]) -> Command {
    let (a, b) = (a.address().to_string(), b.address().to_string());
    let mut command = moneta(&["verify", &a, &b, "--settle", "0.1", "--timeout", "60"]);
    command.args(options);
    command
}

/// Standard output of a run that ends with `status`, and has nothing to complain of.
fn ended(mut command: Command, status: i32) -> String {
    let Output { status: ended, stdout, stderr } = output(&mut command);
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!((ended.code(), &*stderr), (Some(status), ""), "{stdout}");
    stdout.into_owned()
}

#[test]
fn differences_are_listed_and_repaired() {
    let (a, b) = different();
    let report = ended(verify(&a, &b, &[]), 1);
    for line in [
        "compared                         104",
        "equal                            100",
        "different                          5",
        "  only in A                        1",
        "  gone  4 bytes, flags 7, expires in ",
        "  value  A: 3 bytes, B: 3 bytes, from byte 1 on",
        "  flags  A: 1, B: 2",
        "  expiry  A: never expires, B: expires in ",
        "  extra  1 bytes, flags 0, never expires",
        "\nDifferent. (",
    ] {
        assert!(report.contains(line), "{line:?} is not in {report}");
    }

    let report = ended(verify(&a, &b, &["--repair", "a-to-b"]), 1);
    assert!(report.contains("  extra  only the target has it, and deleting was not asked for"), "{report}");
    let report = ended(verify(&a, &b, &["--repair", "a-to-b", "--delete-extra"]), 0);
    assert!(report.contains("\nEqual after repair. ("), "{report}");
    assert_eq!(ended(verify(&a, &b, &["--quiet"]), 0), "");
    assert_eq!(b.exchange("get value extra\r\n"), "VALUE value 0 3\r\nold\r\nEND\r\n");
}

#[test]
fn reports_come_as_json_too() {
    let (a, b) = different();
    let text = ended(verify(&a, &b, &["--json", "--examples", "1", "--ignore-ttl"]), 1);
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["conclusion"], &report["incomplete"]), (&"different".into(), &serde_json::Value::Null));
    assert_eq!((&report["counts"]["different"], &report["counts"]["expiry"]), (&4.into(), &0.into()));
    assert_eq!(report["a"]["protocol"], "meta");
    let example = serde_json::json!({
        "key": "value",
        "a": { "size": 3, "flags": 0, "ttl": -1 },
        "b": { "size": 3, "flags": 0, "ttl": -1 },
        "differs_at": 1,
    });
    assert_eq!(report["examples"]["value"], serde_json::json!([example]));
}

#[test]
fn keys_may_come_from_a_file_or_standard_input() {
    let (a, b) = different();
    let folder = tempfile::tempdir().expect("a folder");
    let keys = file(folder.path(), "keys", "same:1\nsame:2\n");
    let report = ended(verify(&a, &b, &["--keys", &keys]), 0);
    assert!(report.contains("compared                           2"), "{report}");

    let mut command = verify(&a, &b, &["--keys", "-", "--json"]);
    let (mut process, pipes) = Process::start_raw(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    pipes.stdin.expect("piped").write_all(b"same:1\nextra\n").expect("it reads");
    let report: serde_json::Value = serde_json::from_reader(pipes.stdout.expect("piped")).expect("JSON");
    assert_eq!(process.wait().code(), Some(1));
    assert_eq!((&report["counts"]["compared"], &report["counts"]["only_in_b"]), (&2.into(), &1.into()));
}

#[test]
fn a_signal_ends_it_with_what_it_has() {
    let (a, b) = different();
    let mut command = verify(&a, &b, &["--json", "--rate", "1", "--keys", "-"]);
    let (mut process, pipes) = Process::start_raw(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut stdin = pipes.stdin.expect("piped");
    // More than are compared before the signal comes: at this rate, 104 keys take as many seconds.
    let keys: String = (0..100).map(|number| format!("same:{number}\n")).collect();
    stdin.write_all(keys.as_bytes()).expect("it reads");
    drop(stdin);
    // It is ready for signals before it asks the first server what it is.
    process.until("it begins", || !a.exchange("stats\r\n").contains("STAT cmd_meta 0\r\n"));
    process.signal(Signal::SIGINT);
    let report: serde_json::Value = serde_json::from_reader(pipes.stdout.expect("piped")).expect("JSON");
    assert_eq!(process.wait().code(), Some(2));
    assert_eq!((&report["incomplete"], &report["conclusion"]), (&"interrupted".into(), &"incomplete".into()));
}

#[test]
fn what_cannot_be_done_ends_with_status_2() {
    let node = Node::start(&[]);
    let address = node.address().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = folder.path().join("nothing").to_str().expect("a plain name").to_owned();
    for (b, options, words) in [
        (&nowhere, &[][..], "moneta: B ("),
        (&"nonsense".to_owned(), &[], "neither HOST:PORT nor the path"),
        (&address, &["--sample", "2"], "expected 0.01 or 1%"),
        (&address, &["--delete-extra"], "--repair"),
        (&address, &["--batch", "0"], "a batch has 1 to 10000 keys"),
        (&address, &["--keys", &nowhere], "/nothing: "),
    ] {
        let message = common::refused(moneta(&["verify", &address, b]).args(options), 2);
        assert!(message.contains(words), "{b} {options:?}: {message}");
    }
}
