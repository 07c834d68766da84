//! Guards the commands for one item: what a script reads from them, and how they end.

mod common;

use std::io::Write;
use std::process::{Output, Stdio};

use common::{Node, moneta, output};

/// Runs `moneta` with these arguments against a server.
fn run(node: &Node, arguments: &[&str]) -> Output {
    output(moneta(arguments).args(["--server", &node.address().to_string()]))
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_item_is_stored_read_touched_and_deleted() {
    let node = Node::start(&[]);
    assert_eq!(text(&run(&node, &["set", "k", "a value", "--ttl", "90d", "--flags", "7"])), "");
    assert_eq!(text(&run(&node, &["get", "k"])), "a value");
    let meta: serde_json::Value = serde_json::from_str(&text(&run(&node, &["meta", "k", "--json"]))).unwrap();
    assert_eq!((&meta["bytes"], &meta["flags"]), (&7.into(), &7.into()));
    let ttl = meta["ttl"].as_i64().unwrap();
    assert!((89 * 86_400..=90 * 86_400).contains(&ttl), "{ttl}");
    let cas = meta["cas"].as_str().unwrap().to_owned();

    text(&run(&node, &["touch", "k", "0"]));
    assert!(text(&run(&node, &["meta", "k"])).contains("ttl      for ever\n"));
    assert_eq!(run(&node, &["set", "k", "other", "--mode", "add"]).status.code(), Some(3));
    text(&run(&node, &["set", "k", " and more", "--mode", "append"]));
    assert_eq!(text(&run(&node, &["get", "k"])), "a value and more");
    assert_eq!(run(&node, &["delete", "k", "--cas", &cas]).status.code(), Some(3), "it has changed");
    text(&run(&node, &["delete", "k"]));
    for gone in [&["get", "k"][..], &["delete", "k"], &["touch", "k", "5"], &["meta", "k"]] {
        let ended = run(&node, gone);
        assert_eq!((ended.status.code(), &*ended.stdout), (Some(3), &b""[..]), "{gone:?}: {ended:?}");
    }
}

#[test]
fn bytes_of_any_kind_go_through_standard_input_and_base64() {
    let node = Node::start(&[]);
    let value: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let mut command = moneta(&["set", "AP8g", "--key64", "--server", &node.address().to_string()]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&value).unwrap();
    assert!(child.wait().unwrap().success());
    let read = run(&node, &["get", "AP8g", "--key64"]);
    assert!(read.status.success() && read.stdout == value, "{:?}", read.status);
    let json: serde_json::Value =
        serde_json::from_str(&text(&run(&node, &["get", "AP8g", "--key64", "--json"]))).unwrap();
    assert_eq!(json["key64"], "AP8g");
}

#[test]
fn statistics_are_listed_and_a_refusal_is_told() {
    let node = Node::start(&[]);
    assert!(text(&run(&node, &["stats"])).lines().any(|line| line == "curr_items 0"));
    let settings: serde_json::Value =
        serde_json::from_str(&text(&run(&node, &["stats", "settings", "--json"]))).unwrap();
    assert_eq!(settings["maxbytes"], 64 << 20);
    assert_eq!(text(&run(&node, &["stats", "reset"])), "RESET\n");
    let refused = run(&node, &["stats", "nothing"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("refuses"), "{refused:?}");
    let nobody = output(&mut moneta(&["get", "k", "--server", "127.0.0.1:1"]));
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
}
