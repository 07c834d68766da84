//! Guards the sums of docs/operating.md: what a process may hold at most, added up from its options, against the most that it was
//! seen to hold (VmHWM) under clients that read nothing, send halves and ask for as much as they may.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Node, connect, file, until};
use rustix::net::sockopt::set_socket_recv_buffer_size;

const MIB: usize = 1 << 20;
const KIB: usize = 1 << 10;
/// Of the nodes, in MiB.
const MEMORY: usize = 96;
/// Of nodes and proxies, in MiB.
const CLIENT_MEMORY: usize = 48;
const THREADS: usize = 2;
/// Largest value, and default of the option.
const ITEM_MAX: usize = MIB;
/// Default of the option.
const OUTPUT_LIMIT: usize = 256 * KIB;
/// Keys with values as large as they may be, and how many a `get` names.
const LARGE: usize = 40;
const PER_GET: usize = 40;
/// How long all of them attack.
const LENGTH: Duration = Duration::from_secs(3);

/// What docs/operating.md adds up for every process: clients, workers, connections, answers of the feed, the log, `stats detail`,
/// the admin side, the program.
fn server_sum(connections: usize) -> usize {
    let workers = THREADS * (64 * KIB + OUTPUT_LIMIT + 3 * ITEM_MAX);
    let feed_answers = 4 * (4 * MIB + 3 * ITEM_MAX);
    let (log, prefixes, admin, program) = (8 * MIB, 12 * MIB, 8 * MIB, 20 * MIB);
    CLIENT_MEMORY * MIB + workers + connections * 4 * KIB + feed_answers + log + prefixes + admin + program
}

/// The binary, with an allocator that gives buffers from 256 KiB on back as they are freed: docs/operating.md adds up what a
/// process holds, and glibc keeps up to 100 MiB more of freed ones for seconds (docs/decisions/23-freed-memory.md).
fn moneta(arguments: &[&str]) -> Command {
    let mut command = common::moneta(arguments);
    command.env("MALLOC_MMAP_THRESHOLD_", (256 * KIB).to_string());
    command
}

fn admin(node: &Node) -> SocketAddr {
    let line = node.screen.iter().find(|line| line.starts_with("admin on")).expect("it has an admin port");
    line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok()).expect("an address")
}

/// A connection that reads as little as the kernel lets it.
fn deaf(address: SocketAddr) -> TcpStream {
    let stream = connect(address);
    set_socket_recv_buffer_size(&stream, 4096).expect("it can be set");
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("it can be set");
    stream
}

fn store_large(address: SocketAddr) {
    let mut stream = connect(address);
    // A value that no allocator and no compressor makes smaller.
    let value: Vec<u8> = (0..ITEM_MAX - 4096).map(|place| (place * 31 % 251) as u8).collect();
    for number in 0..LARGE {
        // A node may take longer for it than a proxy waits, on a loaded machine.
        for attempt in 0.. {
            stream.write_all(format!("set large:{number} 0 0 {}\r\n", value.len()).as_bytes()).expect("it reads");
            stream.write_all(&value).and_then(|()| stream.write_all(b"\r\nmn\r\n")).expect("it reads");
            let mut answer = Vec::new();
            while !answer.ends_with(b"MN\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("it answers");
                answer.push(byte[0]);
            }
            if answer == b"STORED\r\nMN\r\n" {
                break;
            }
            assert!(attempt < 50, "{}", answer.escape_ascii());
        }
    }
}

/// Everything at once that takes a process's memory: unread large values, requests that never end, unread dumps, watchers, and,
/// where the process has one, the unread feed over HTTP and over the data port. What is refused or closed comes again.
fn attack(node: &Node) -> usize {
    let (data, http) = (node.address(), admin(node));
    let keys = |from: usize| (0..PER_GET).map(|place| format!(" large:{}", (from + place) % LARGE)).collect::<String>();
    let begin = Instant::now();
    let mut open: Vec<TcpStream> = Vec::new();
    let mut most = 0;
    for round in 0.. {
        if begin.elapsed() > LENGTH {
            break;
        }
        let mut send = |address, request: &[u8]| {
            let mut stream = deaf(address);
            // A server that takes no more has as much as it wants.
            let _ = stream.write_all(request);
            open.push(stream);
        };
        for place in 0..8 {
            send(data, format!("get{}\r\n", keys(round + place)).repeat(4).as_bytes());
            send(data, format!("get large:{place}\r\n").repeat(40).as_bytes());
            send(data, format!("mg large:{place} v\r\n").repeat(40).as_bytes());
            let mut half = format!("set half 0 0 {}\r\n", ITEM_MAX - 4096).into_bytes();
            half.resize(half.len() + ITEM_MAX - 8192, b'x');
            send(data, &half);
        }
        let prefixed: String = (0..200).map(|number| format!("get {number:0>200}{round}:a\r\n")).collect();
        send(data, format!("stats detail on\r\n{prefixed}").as_bytes());
        for request in ["stats detail dump\r\n", "lru_crawler mgdump all\r\n", "watch fetchers mutations\r\n"] {
            send(data, request.as_bytes());
        }
        for _ in 0..8 {
            send(http, b"GET /changes?since=0&values=1&limit=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
            send(http, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        send(data, b"changes since 0 values\r\n");
        most = most.max(open.len());
        let kept = open.len().saturating_sub(600);
        open.drain(..kept);
    }
    most
}

/// Few clients that ask for all large values at once and read none.
fn ask_for_all(node: &Node) {
    let keys: String = (0..LARGE).map(|number| format!(" large:{number}")).collect();
    let request = format!("get{keys}\r\n");
    for _ in 0..3 {
        let ask = || {
            let mut stream = deaf(node.address());
            let _ = stream.write_all(request.as_bytes());
            stream
        };
        let open: Vec<TcpStream> = std::iter::repeat_with(ask).take(24).collect();
        std::thread::sleep(Duration::from_secs(1));
        drop(open);
    }
}

/// Whether a new client is answered.
fn answers(address: SocketAddr) -> bool {
    let (mut stream, mut answer) = (connect(address), [0; 4]);
    let answered = stream.write_all(b"mn\r\n").and_then(|()| stream.read_exact(&mut answer));
    answered.is_ok() && &answer == b"MN\r\n"
}

#[test]
fn a_node_holds_no_more_than_its_options_add_up_to() {
    let [memory, client_memory, threads] = [MEMORY, CLIENT_MEMORY, THREADS].map(|number| number.to_string());
    let node = Node::run(&mut moneta(&[
        "serve",
        "-p",
        "0",
        "--admin",
        "127.0.0.1:0",
        "-m",
        &memory,
        "--client-memory",
        &client_memory,
        "-t",
        &threads,
        "--cluster",
        "--feed-memory",
        "1",
        "-c",
        "2000",
    ]));
    store_large(node.address());
    ask_for_all(&node);
    let connections = attack(&node);
    let feed = MEMORY * MIB / 100;
    let (sum, seen) = (MEMORY * MIB + feed + server_sum(connections), node.peak_bytes() as usize);
    println!("a node of {} MiB at most held {} MiB", sum / MIB, seen / MIB);
    assert!(seen <= sum, "{} MiB are more than {} MiB", seen / MIB, sum / MIB);
    // While it has no more memory for clients, it may close one that comes.
    until("it goes on", || answers(node.address()));
}

#[test]
fn a_proxy_holds_no_more_than_its_options_add_up_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let [memory, client_memory, threads] = [MEMORY, CLIENT_MEMORY, THREADS].map(|number| number.to_string());
    let nodes = ["a", "b"].map(|_| {
        Node::run(moneta(&["serve", "-p", "0", "--admin", "off", "--cluster", "-t", "1"]).args(["-m", &memory]))
    });
    let replicas = nodes
        .iter()
        .zip(["a", "b"])
        .map(|(node, zone)| format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={}\"]\n", node.address()));
    let topology = format!("epoch = 1\n{}", replicas.collect::<String>());
    let topology = file(folder.path(), "topology.toml", &topology);
    let arguments =
        ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", &topology, "--zone", "a", "-c", "2000"];
    let options = ["-t", &threads, "--client-memory", &client_memory, "--node-buffer", "4m", "--hint-memory", "4m"];
    let options = options.into_iter().chain(["--node-timeout", "5s"]);
    let proxy = Node::run(moneta(&arguments).args(options));
    store_large(proxy.address());
    ask_for_all(&proxy);
    let connections = attack(&proxy);
    // Of each node: hints, and for each connection to it (one, and one for large values) the requests that wait and the reply
    // that arrives.
    let of_nodes = nodes.len() * (4 * MIB + THREADS * 2 * (4 * MIB + 3 * ITEM_MAX));
    let (sum, seen) = (of_nodes + server_sum(connections), proxy.peak_bytes() as usize);
    println!("a proxy of {} MiB at most held {} MiB", sum / MIB, seen / MIB);
    assert!(seen <= sum, "{} MiB are more than {} MiB", seen / MIB, sum / MIB);
    until("it goes on", || answers(proxy.address()));
}
