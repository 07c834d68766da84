//! Certificates that are replaced while the node serves.

use std::time::{Duration, SystemTime};

use moneta_certificates::Wanted;
use nix::sys::signal::Signal;

use crate::files::{Files, ask, connect, metric};

fn until(seconds: u64) -> Wanted {
    let now = SystemTime::now();
    let holds = (now - Duration::from_secs(3600), now + Duration::from_secs(seconds));
    Wanted { holds: Some(holds), ..Wanted::hosts(["127.0.0.1"]) }
}

#[test]
fn a_new_certificate_is_shown_to_new_clients_and_open_connections_go_on() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&[]), files.client(None));
    let mut open = connect(&tls, node.address()).expect("a connection");
    let before = metric(&node, "tls_certificate_expires_seconds");
    let another = files.authority.issue(&until(100 * 86_400)).expect("a certificate");
    files.replace(&another);
    node.wait_for(|| metric(&node, "tls_certificate_expires_seconds") < before, "the new one is not in force");
    ask(&mut open, b"mn\r\n", b"MN\r\n");
    ask(&mut connect(&tls, node.address()).expect("a connection"), b"mn\r\n", b"MN\r\n");
    assert!(metric(&node, "tls_reloads_total{result=\"applied\"}") >= 1.0);
}

#[test]
fn what_cannot_be_used_leaves_in_force_what_was_and_is_told() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&[]), files.client(None));
    files.write("cert.pem", "no certificate");
    node.wait_for_log("what was in force stays");
    assert!(metric(&node, "tls_reloads_total{result=\"failed\"}") >= 1.0);
    ask(&mut connect(&tls, node.address()).expect("a connection"), b"mn\r\n", b"MN\r\n");
    // A reload is whole or not at all.
    node.signal(Signal::SIGHUP);
    node.wait_for_log("reload refused, nothing changed");
    let stays = files.authority.issue(&until(86_400 * 50)).expect("a certificate");
    files.replace(&stays);
    node.wait_for(|| metric(&node, "tls_reloads_total{result=\"applied\"}") >= 1.0, "a good one is not taken");
}

#[test]
fn a_certificate_that_ends_soon_or_has_ended_is_complained_about() {
    let mut files = Files::new();
    let soon = files.authority.issue(&until(3 * 86_400)).expect("a certificate");
    files.replace(&soon);
    let node = files.node(&[]);
    node.wait_for_log("expires soon");
    let over = Wanted {
        holds: Some((SystemTime::now() - Duration::from_secs(7200), SystemTime::now() - Duration::from_secs(3600))),
        ..Wanted::hosts(["127.0.0.1"])
    };
    let over = files.authority.issue(&over).expect("a certificate");
    files.replace(&over);
    node.wait_for_log("has expired");
    let client = files.client(None);
    assert!(connect(&client, node.address()).is_err());
    node.wait_for(|| metric(&node, "tls_handshakes_total{result=\"refused\"}") >= 1.0, "the client's word is counted");
}

#[test]
fn refresh_certs_reads_at_once_and_says_what_is_wrong() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&[]), files.client(None));
    let mut open = connect(&tls, node.address()).expect("a connection");
    ask(&mut open, b"refresh_certs\r\nrefresh_certs noreply\r\nmn\r\n", b"OK\r\nMN\r\n");
    files.write("key.pem", "no key");
    ask(&mut open, b"refresh_certs\r\n", b"SERVER_ERROR ");
    let plain = crate::common::Node::start(&[]);
    assert_eq!(plain.exchange("refresh_certs\r\n"), "Error TLS not enabled\r\n");
}

#[test]
fn operators_alone_may_have_certificates_read_where_commands_are_denied() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&["--admin-commands", "none"]), files.client(None));
    let mut open = connect(&tls, node.address()).expect("a connection");
    ask(&mut open, b"refresh_certs\r\n", b"CLIENT_ERROR refresh_certs not allowed\r\n");
}
