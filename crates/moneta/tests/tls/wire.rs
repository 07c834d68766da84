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

#[test]
fn large_values_and_many_requests_at_once_come_back_whole() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&["-I", "16m", "-m", "256"]), files.client(None));
    let mut stream = connect(&tls, node.address()).expect("a connection");
    let value: Vec<u8> = (0..10_000_000u32).map(|index| (index % 251) as u8).collect();
    let (head, tail) = (format!("set big 0 0 {}\r\n", value.len()), b"\r\n");
    ask(&mut stream, &[head.as_bytes(), &value, tail].concat(), b"STORED\r\n");
    let reply = [format!("VALUE big 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\nEND\r\n"].concat();
    ask(&mut stream, b"get big\r\n", &reply);
    let requests: Vec<u8> = (0..20_000).flat_map(|index| format!("set k{index} 0 0 1\r\nx\r\n").into_bytes()).collect();
    ask(&mut stream, &requests, &b"STORED\r\n".repeat(20_000));
    let requests: Vec<u8> = (0..20_000).flat_map(|index| format!("mg k{index} v\r\n").into_bytes()).collect();
    ask(&mut stream, &requests, &b"VA 1\r\nx\r\n".repeat(20_000));
}

#[test]
fn a_slow_reader_gets_all_and_others_do_not_wait_for_it() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&["-t", "1"]), files.client(None));
    let mut slow = connect(&tls, node.address()).expect("a connection");
    let value = vec![b'v'; 500_000];
    ask(&mut slow, &[b"set a 0 0 500000\r\n", &value[..], b"\r\n"].concat(), b"STORED\r\n");
    let requests = b"get a\r\n".repeat(40);
    slow.write_all(&requests).expect("the node reads");
    // Its socket and the node's bound are full.
    let mut other = connect(&tls, node.address()).expect("a connection");
    for _ in 0..100 {
        ask(&mut other, b"mn\r\n", b"MN\r\n");
    }
    let reply = [b"VALUE a 0 500000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    for _ in 0..40 {
        ask(&mut slow, b"", &reply);
    }
    node.wait_for(|| metric(&node, "client_memory_bytes{kind=\"output\"}") == 0.0, "nothing is held for it");
}

#[test]
fn requests_that_come_with_the_end_of_the_handshake_are_answered() {
    // A client of TLS 1.3 may send them with its last message: no event tells of them later.
    let mut files = Files::new();
    let (node, tls) = (files.node(&[]), files.client(None));
    for _ in 0..20 {
        let mut stream = connect(&tls, node.address()).expect("a connection");
        ask(&mut stream, b"mn\r\n", b"MN\r\n");
    }
}
