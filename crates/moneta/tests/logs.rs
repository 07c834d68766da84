//! Guards the log as something programs read.

mod common;

use common::Node;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A node's whole log, from start to a clean end.
fn whole_log(arguments: &[&str]) -> String {
    let mut node = Node::start(arguments);
    node.signal(Signal::SIGHUP);
    node.wait_for_log("reloaded");
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success());
    node.log()
}

#[test]
fn every_line_of_a_json_log_is_an_object_with_time_level_and_message() {
    let log = whole_log(&["--log-format", "json"]);
    assert!(log.lines().count() >= 3, "{log}");
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "message"] {
            assert!(event[field].is_string(), "no {field}: {line}");
        }
    }
}

#[test]
fn a_text_log_that_is_no_terminal_has_no_colours() {
    let log = whole_log(&[]);
    assert!(log.contains(" INFO ") && log.contains("stopped"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
}

#[test]
fn the_level_leaves_out_what_is_less_grave() {
    let mut node = Node::start(&["--log-level", "error"]);
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success());
    assert_eq!(node.log(), "");
}
