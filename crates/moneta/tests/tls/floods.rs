//! Handshakes that do not end, beside connections that are open.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use moneta_net::{Address, Connector, Endpoint, HostPort, Opening, Stream, Tls};

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

/// Threads of a flood, and what each of them holds open of handshakes that it never finishes: together far more than there are places.
const THREADS: u64 = 4;
const HELD: usize = 128;
/// What a flood may cost, bytes: the places with all that their clients may send, and workers' buffers; less than 8 KiB a handshake.
const MEMORY: u64 = 32 << 20;

/// `each` handshakes that are finished, and as many that are not, at `a_second` of both if the machine can do that, where `places` may be
/// under way at once; an open connection is served all the while.
fn flood(each: u64, places: u32, a_second: Option<u64>) {
    let mut files = Files::new();
    let (node, tls) = (files.node(&["--tls-handshakes", &places.to_string(), "-c", "2000"]), files.client(None));
    let hello = first_message(&tls);
    let mut open = connect(&tls, node.address()).expect("a connection");
    ask(&mut open, b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    let before = node.peak_bytes();
    let (begun, mut asked) = (Instant::now(), 0);
    let is_bounded = || metric(&node, "tls_handshakes_under_way") <= f64::from(places);
    let unfinished = |count: u64| {
        let half = common::connect(node.address());
        // Nothing, the begin of a record, or all that a client says first: then the node has signed, and waits.
        let says = [&[][..], &[0x16, 3, 1], &hello][(count % 3) as usize];
        let _ = (&half).write_all(says);
        half
    };
    let one_thread = || {
        let mut halves = VecDeque::new();
        for count in 0..each / THREADS {
            let due = a_second.map(|rate| begun + Duration::from_secs(2 * THREADS * count) / rate as u32);
            thread::sleep(due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now())));
            halves.push_back(unfinished(count));
            if halves.len() > HELD {
                halves.pop_front();
            }
            ask(&mut connect_at_last(&tls, node.address()), b"mn\r\n", b"MN\r\n");
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one_thread)).collect();
        // Asked all the time: each answer comes, in its order.
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            ask(&mut open, b"get a\r\nmn\r\n", b"VALUE a 0 1\r\nx\r\nEND\r\nMN\r\n");
            asked += 1;
            assert!(asked % 512 != 0 || is_bounded(), "there are more than may be");
        }
        threads.into_iter().for_each(|thread| thread.join().expect("each is served"));
    });
    let counted = |result: &str| metric(&node, &format!("tls_handshakes_total{{result=\"{result}\"}}"));
    let (whole, displaced) = (counted("done") + counted("resumed"), counted("displaced"));
    let grown = node.peak_bytes().saturating_sub(before);
    println!(
        "{whole} whole handshakes, {displaced} displaced, in {:?}; {asked} times asked; {grown} bytes",
        begun.elapsed()
    );
    assert!(whole > each as f64 && displaced >= 1.0);
    assert!(asked >= each, "asked {asked} times beside {each} whole handshakes");
    assert!(grown < MEMORY, "{grown} bytes");
    node.wait_for(|| metric(&node, "tls_handshakes_under_way") == 0.0, "those whose clients are gone are under way");
    for _ in 0..10 {
        ask(&mut connect(&tls, node.address()).expect("a connection"), b"mn\r\n", b"MN\r\n");
    }
    ask(&mut open, b"mn\r\n", b"MN\r\n");
}

/// The first message of a client's handshake.
pub fn first_message(tls: &Arc<Tls>) -> Vec<u8> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let number = listener.local_addr().expect("it listens");
    let connector = Connector::Tls(tls.connector().expect("it believes somebody"));
    let endpoint = Endpoint { connector, ..Endpoint::new(Address::Tcp(HostPort::from(number))) };
    let (mut client, _) = endpoint.begin(Some(number)).expect("it connects");
    let (mut server, _) = listener.accept().expect("it comes");
    let opening = client.open().expect("it begins");
    assert_eq!(opening, Opening::UnderWay);
    let mut head = [0; 5];
    server.read_exact(&mut head).expect("a record");
    let mut message = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    server.read_exact(&mut message).expect("its rest");
    [&head[..], &message].concat()
}

/// A connection over TLS; one that a busy machine has kept from its handshake may have to make room, and is made again.
pub fn connect_at_last(tls: &Arc<Tls>, address: SocketAddr) -> Stream {
    let begun = Instant::now();
    loop {
        match connect(tls, address) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

#[test]
fn a_flood_of_handshakes_of_which_half_never_finish_leaves_open_connections_theirs() {
    flood(400, 32, None);
}

#[test]
#[ignore = "seconds on a machine that does nothing else: make test-tls"]
fn two_thousand_handshakes_a_second_of_which_half_never_finish() {
    flood(5_000, 256, Some(2_000));
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
