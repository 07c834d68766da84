//! What goes over a protected connection.

use std::io::{Read, Write};

use crate::common;
use crate::files::{Files, ask, connect, metric};

#[test]
fn all_three_protocols_are_spoken() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&[]), files.client(None));
    let mut stream = connect(&tls, node.address()).expect("a connection");
    ask(&mut stream, b"set a 1 0 5\r\nhello\r\nget a\r\n", b"STORED\r\nVALUE a 1 5\r\nhello\r\nEND\r\n");
    ask(&mut stream, b"mg a v\r\nmn\r\n", b"VA 5\r\nhello\r\nMN\r\n");
    let mut binary = connect(&tls, node.address()).expect("a connection");
    // NOOP, with an opaque that comes back.
    let noop = |magic: u8| [&[magic, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4][..], &[0; 8]].concat();
    ask(&mut binary, &noop(0x80), &noop(0x81));
    assert_eq!(metric(&node, "tls_connections"), 2.0);
    drop((stream, binary));
    node.wait_for(|| metric(&node, "tls_connections") == 0.0, "closed connections are counted");
}

#[test]
fn plain_text_at_a_protected_port_is_closed_and_counted() {
    let files = Files::new();
    let node = files.node(&[]);
    let mut stream = common::connect(node.address());
    stream.write_all(b"get a\r\n").expect("the node reads");
    let mut answer = Vec::new();
    // An alert, which a client of memcached takes for an error, and the end.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 16 && !answer.starts_with(b"E"), "{answer:?}");
    node.wait_for(|| metric(&node, "tls_handshakes_total{result=\"plain_text\"}") == 1.0, "it is counted");
}
