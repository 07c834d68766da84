//! Ten thousand clients on one proxy.

use std::io::{Read, Write};
use std::net::TcpStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::common::connect;
use crate::fleet::{Fleet, ZONES};

const CLIENTS: usize = 10_000;
/// Descriptors that either process needs beside those of clients.
const OTHERS: u64 = 500;

fn exchange(stream: &mut TcpStream, request: &str, expected: &str) {
    stream.write_all(request.as_bytes()).expect("the proxy reads");
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).expect("the proxy answers in time");
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

#[test]
fn ten_thousand_clients_are_served_and_a_node_that_dies_costs_none_of_them() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let clients = CLIENTS.min(usize::try_from(hard.saturating_sub(OTHERS)).unwrap_or(CLIENTS));
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(clients as u64 + OTHERS).min(hard), hard)
        .expect("up to the hard limit");
    let mut fleet = Fleet::start();
    let limit = (clients + 10).to_string();
    let proxy = fleet.proxy("a", &["--max-connections", &limit]);
    let mut crowd: Vec<TcpStream> = (0..clients).map(|_| connect(proxy.process.address())).collect();
    let serve_all = |crowd: &mut [TcpStream], round: usize| {
        // Some hundreds at once, one after the other of each.
        std::thread::scope(|scope| {
            for (part, some) in crowd.chunks_mut(clients.div_ceil(8)).enumerate() {
                scope.spawn(move || {
                    for (number, stream) in some.iter_mut().enumerate() {
                        let (key, value) = (format!("p{part}c{number}"), format!("{round}"));
                        exchange(stream, &format!("set {key} 0 0 1\r\n{value}\r\n"), "STORED\r\n");
                        exchange(stream, &format!("get {key}\r\n"), &format!("VALUE {key} 0 1\r\n{value}\r\nEND\r\n"));
                    }
                });
            }
        });
    };
    serve_all(&mut crowd, 0);
    assert!(proxy.metric("remote_requests_total", "") >= clients as f64 * 4.0, "three writes and a read each");
    assert_eq!(ZONES.map(|zone| proxy.ejections(zone)), [0.0; 3]);
    fleet.kill(0);
    serve_all(&mut crowd, 1);
    assert!(!proxy.is_up("a"));
    // A node's connections are as many as before: clients do not have any to themselves.
    assert!(proxy.metric("remote_connections", "") <= 12.0);
    fleet.restart(0);
    proxy.wait_until_whole();
    drop(crowd);
    let open =
        || proxy.page("/metrics").lines().any(|line| line.starts_with("moneta_connections ") && line.ends_with(" 0"));
    proxy.process.wait_for(open, "the connections are gone");
}
