//! OpenSSL's client, which is what most clients of memcached are built on.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::common::Node;
use crate::files::{Files, metric};

/// What `openssl s_client` prints when it sends `requests` and the node then closes.
fn s_client(node: &Node, files: &Files, more: &[&str], requests: &str) -> Output {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &node.address().to_string(), "-CAfile", &files.name("ca.pem")]);
    command.args(["-verify_return_error", "-verify_ip", "127.0.0.1", "-ign_eof"]).args(more);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    let mut input = child.stdin.take().expect("it is piped");
    // One that is refused reads nothing.
    let _ = input.write_all(requests.as_bytes());
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
