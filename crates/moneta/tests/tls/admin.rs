//! Handshakes at the admin port, of which a stranger begins as many as it likes.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use moneta_net::Tls;
use rustix::net::{AddressFamily, SocketType, bind, connect as connect_socket, socket};

use crate::common::{Node, moneta};
use crate::files::{Files, PATIENCE, connect};
use crate::floods::first_message;

/// Handshakes that the stranger begins, all of which the node signs for.
const BEGUN: u64 = 2_000;
const THREADS: u64 = 4;

/// A connection from an address of the stranger's own.
fn stranger(to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).expect("an address");
    connect_socket(&socket, &to).expect("it accepts");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// The head of the answer to a request for `path`.
fn page(tls: &Arc<Tls>, admin: SocketAddr, path: &str) -> String {
    let mut stream = connect(tls, admin).expect("a connection");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

/// Time of a CPU that threads of this name have taken, in ticks of the kernel's.
fn ticks(node: &Node, name: &str) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", node.pid())).expect("it runs");
    let of = |thread: fs::DirEntry| {
        // `ID (NAME) STATE ...`: user and system time are the 12th and 13th word after the name (proc_pid_stat(5)).
        let line = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let (head, rest) = line.rsplit_once(')')?;
        let times = rest.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
        head.ends_with(&format!("({name}")).then(|| times.sum::<u64>())
    };
    threads.filter_map(|thread| of(thread.ok()?)).sum()
}

#[test]
fn a_flood_of_handshakes_at_the_admin_port_costs_its_other_tasks_nothing() {
    let mut files = Files::new();
    let (certificate, key) = (files.name("cert.pem"), files.name("key.pem"));
    let node = Node::run(moneta(&["serve", "-p", "0", "-t", "1", "--admin", "127.0.0.1:0"]).args([
        "--tls-cert",
        &certificate,
        "--tls-key",
        &key,
    ]));
    let line = node.screen.iter().find_map(|line| line.split("https://").nth(1)).expect("it has an admin port");
    let admin: SocketAddr = line.split(['/', ' ']).next().and_then(|text| text.parse().ok()).expect("an address");
    let tls = files.client(None);
    let hello = first_message(&tls);
    // More than it has places for.
    let silent: Vec<TcpStream> = (0..100).map(|_| stranger(admin)).collect();
    let (served, begun) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        let begins = || {
            for _ in 0..BEGUN / THREADS {
                let mut stream = stranger(admin);
                // One whose place another has taken before it was heard does not count.
                while stream.write_all(&hello).and_then(|()| stream.read_exact(&mut [0])).is_err() {
                    assert!(begun.elapsed() < PATIENCE, "it is not heard");
                    stream = stranger(admin);
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(begins)).collect();
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            for path in ["/healthz", "/metrics"] {
                assert_eq!(page(&tls, admin, path), "HTTP/1.1 200 OK", "{path}");
                served.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let (of_handshakes, of_others) = (ticks(&node, "admin-handshake"), ticks(&node, "runtime"));
    let served = served.into_inner();
    println!("{BEGUN} handshakes in {:?}: {of_handshakes} and {of_others} ticks, {served} pages", begun.elapsed());
    assert!(of_handshakes > of_others, "{of_handshakes} ticks beside {of_others} of all that shares its runtime");
    drop(silent);
}
