//! OpenSSL's client, which is what most clients of memcached are built on.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::Node;
use crate::files::{Files, metric};

/// What `openssl s_client` prints when it sends `requests` and the node then closes.
fn s_client(node: &Node, files: &Files, more: &[&str], requests: &str) -> Output {
    run(node, files, &[&["-ign_eof"], more].concat(), &[requests])
}

/// The same where lines that begin with a letter are commands to OpenSSL: what is between two of them is written by itself.
fn interactive(node: &Node, files: &Files, more: &[&str], requests: &str) -> Output {
    run(node, files, more, &requests.split_inclusive('\n').collect::<Vec<_>>())
}

fn run(node: &Node, files: &Files, more: &[&str], requests: &[&str]) -> Output {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &node.address().to_string(), "-CAfile", &files.name("ca.pem")]);
    command.args(["-verify_return_error", "-verify_ip", "127.0.0.1"]).args(more);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    let mut input = child.stdin.take().expect("it is piped");
    // One that is refused reads nothing.
    for (index, part) in requests.iter().enumerate() {
        // OpenSSL looks for its commands at the begin of what it reads at once.
        thread::sleep(Duration::from_millis(if index == 0 { 0 } else { 200 }));
        let _ = input.write_all(part.as_bytes());
    }
    let output = child.wait_with_output().expect("it ends");
    drop(input);
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

const REQUESTS: &str = "set a 1 0 5\r\nhello\r\nget a\r\nquit\r\n";
const REPLIES: &str = "STORED\r\nVALUE a 1 5\r\nhello\r\nEND\r\n";

#[test]
fn openssl_is_served_by_both_versions() {
    let files = Files::new();
    let node = files.node(&[]);
    for (flag, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let output = s_client(&node, &files, &[flag], REQUESTS);
        let said = text(&output);
        assert!(said.contains(REPLIES) && said.contains(version) && said.contains("Verify return code: 0"), "{said}");
    }
    assert_eq!(metric(&node, "tls_handshakes_total{result=\"done\"}"), 2.0);
    let refused = text(&s_client(&node, &files, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], REQUESTS));
    assert!(!refused.contains("STORED"), "{refused}");
}

#[test]
fn a_session_goes_on_with_its_ticket() {
    let files = Files::new();
    let node = files.node(&[]);
    let session = files.name("session");
    for version in ["-tls1_2", "-tls1_3"] {
        let first = text(&s_client(&node, &files, &[version, "-sess_out", &session], REQUESTS));
        assert!(first.contains("New, "), "{first}");
        let second = text(&s_client(&node, &files, &[version, "-sess_in", &session], REQUESTS));
        assert!(second.contains("Reused, ") && second.contains(REPLIES), "{second}");
    }
    assert_eq!(metric(&node, "tls_handshakes_total{result=\"resumed\"}"), 2.0);
}

#[test]
fn keys_are_updated_and_nothing_is_negotiated_again() {
    let files = Files::new();
    let node = files.node(&[]);
    // Lines that OpenSSL's client takes for itself: a new key of its own, and of both sides.
    let updates = "set a 1 0 5\r\nhello\r\n\nk\nmn\r\n\nK\nget a\r\nquit\r\n";
    let said = text(&interactive(&node, &files, &["-tls1_3"], updates));
    assert!(said.contains("KEYUPDATE") && said.contains("MN\r\n") && said.contains("VALUE a 1 5\r\nhello"), "{said}");
    let said = text(&interactive(&node, &files, &["-tls1_2"], "mn\r\n\nR\nmn\r\n"));
    assert!(said.contains("RENEGOTIATING") && said.contains("no renegotiation"), "{said}");
}
