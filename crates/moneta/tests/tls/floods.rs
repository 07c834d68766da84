//! Handshakes that do not end, and many at once, beside connections that are open.

use std::cell::Cell;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::common;
use crate::files::{Files, PATIENCE, ask, connect, metric};

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&["--tls-handshakes", "4", "-c", "100"]), files.client(None));
    let mut open = connect(&tls, node.address()).expect("a connection");
    let silent: Vec<TcpStream> = (0..60).map(|_| common::connect(node.address())).collect();
    for _ in 0..10 {
        ask(&mut open, b"mn\r\n", b"MN\r\n");
        ask(&mut connect(&tls, node.address()).expect("a place"), b"mn\r\n", b"MN\r\n");
    }
    node.wait_for(|| metric(&node, "tls_handshakes_under_way") <= 4.0, "there are more than may be");
    assert!(metric(&node, "tls_handshakes_total{result=\"displaced\"}") >= 1.0);
    drop(silent);
}

#[test]
fn one_that_takes_too_long_is_closed_and_one_that_sends_byte_by_byte_is_no_exception() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&["--tls-handshake-timeout", "1"]), files.client(None));
    let mut open = connect(&tls, node.address()).expect("a connection");
    let trickles = common::connect(node.address());
    let _silent = common::connect(node.address());
    // The begin of a record that is never whole, a byte with each look.
    let sent = Cell::new(0);
    let sends_on = || {
        let byte = [0x16, 3, 1, 1, 0].get(sent.replace(sent.get() + 1)).copied().unwrap_or(1);
        let _ = (&trickles).write_all(&[byte]);
    };
    let is_closed = || metric(&node, "tls_handshakes_total{result=\"timeout\"}") == 2.0;
    node.wait_for(
        || {
            sends_on();
            is_closed()
        },
        "they are not closed",
    );
    ask(&mut open, b"mn\r\n", b"MN\r\n");
}

#[test]
fn a_flood_of_handshakes_of_which_half_never_finish_leaves_open_connections_theirs() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&["--tls-handshakes", "32"]), files.client(None));
    let mut open = connect(&tls, node.address()).expect("a connection");
    ask(&mut open, b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut halves = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(mut half) = TcpStream::connect(node.address()) {
                        let _ = half.write_all(&[0x16, 3, 1]);
                        halves.push(half);
                    }
                    if halves.len() > 40 {
                        halves.remove(0);
                    }
                    if let Ok(mut whole) = connect(&tls, node.address()) {
                        ask(&mut whole, b"mn\r\n", b"MN\r\n");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // Asked all the time: each answer comes, in its order.
        for count in 0.. {
            ask(&mut open, b"get a\r\nmn\r\n", b"VALUE a 0 1\r\nx\r\nEND\r\nMN\r\n");
            if count >= 2000 && done.load(Ordering::Relaxed) >= 100 {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    ask(&mut open, b"mn\r\n", b"MN\r\n");
}

#[test]
fn places_count_from_the_first_byte_on() {
    let mut files = Files::new();
    let (node, tls) = (files.node(&["-c", "3", "--tls-handshake-timeout", "1"]), files.client(None));
    let silent: Vec<TcpStream> = (0..3).map(|_| common::connect(node.address())).collect();
    node.wait_for(|| metric(&node, "tls_handshakes_under_way") == 3.0, "they are not under way");
    assert!(connect(&tls, node.address()).is_err(), "a fourth has no place");
    node.wait_for(
        || connect(&tls, node.address()).is_ok_and(|mut stream| stream.write_all(b"mn\r\n").is_ok()),
        "places do not come back",
    );
    drop(silent);
}

/// As when a switch comes back: whole handshakes at first, with tickets the second time, by far more clients than have a place.
#[test]
fn clients_that_reconnect_at_once_are_all_served() {
    const CLIENTS: usize = 200;
    const CONNECTIONS: usize = 4;
    let mut files = Files::new();
    let node = files.node(&["-c", "2000", "--tls-handshakes", "16", "-t", "2"]);
    let tls: Vec<_> = (0..CLIENTS).map(|_| files.client(None)).collect();
    let resumed = || metric(&node, "tls_handshakes_total{result=\"resumed\"}");
    for wave in 0..2 {
        let open: Vec<_> = thread::scope(|scope| {
            let client = |tls| {
                let node = &node;
                scope.spawn(move || {
                    let one = || {
                        let begun = Instant::now();
                        // One that a busy machine has kept from its handshake may have to make room.
                        loop {
                            match connect(tls, node.address()) {
                                Ok(stream) => return stream,
                                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
                            }
                        }
                    };
                    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| one()).collect();
                    streams.iter_mut().for_each(|stream| ask(stream, b"mn\r\n", b"MN\r\n"));
                    streams
                })
            };
            let clients: Vec<_> = tls.iter().map(client).collect();
            clients.into_iter().flat_map(|client| client.join().expect("each is served")).collect()
        });
        assert_eq!(metric(&node, "tls_connections"), (CLIENTS * CONNECTIONS) as f64);
        assert!(metric(&node, "tls_handshakes_under_way") <= 16.0);
        assert!(wave == 0 || resumed() > 0.0, "tickets are of use");
        drop(open);
        node.wait_for(|| metric(&node, "tls_connections") == 0.0, "closed connections are counted");
    }
}
