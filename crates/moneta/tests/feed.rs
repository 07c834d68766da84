//! `moneta feed`: what it prints, and two nodes that are each other's copies by it.

mod common;
#[path = "feed/compressed.rs"]
mod compressed;
#[path = "feed/killed.rs"]
mod killed;
#[path = "feed/pasted.rs"]
mod pasted;
#[path = "feed/whole.rs"]
mod whole;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Node, Process, moneta, printed, refused};
use fastrand::Rng;
use moneta_store::Version;

const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u32 = 40;

/// A node of a cluster, and the address of its admin side.
fn node(writer: &str, more: &[&str]) -> (Node, String) {
    let arguments = [&["--cluster", "--writer-id", writer, "--threads", "2"], more];
    let node = Node::start(&arguments.concat());
    let admin = admin_of(&node);
    (node, admin)
}

/// The address of a node's admin side, as its log has it.
fn admin_of(node: &Node) -> String {
    node.wait_for_log("admin HTTP listening");
    let log = node.log();
    let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
    let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
    address.expect("with the address").to_owned()
}

/// A feed that goes on until it is dropped.
fn feed(from: &str, into: &Node, cursor: &std::path::Path) -> Process {
    feed_to(from, &into.address().to_string(), cursor)
}

fn feed_to(from: &str, into: &str, cursor: &std::path::Path) -> Process {
    let mut command: Command = moneta(&["feed", from, "--into", into, "--from", "1h"]);
    Process::start(command.arg("--cursor-file").arg(cursor))
}

#[test]
fn it_prints_what_changed_and_ends() {
    let (node, admin) = node("1", &[]);
    node.exchange(
        "set kept 7 0 5\r\nvalue\r\nset read 0 0 1\r\nx\r\nset gone 0 0 1\r\nx\r\ndelete gone\r\ndelete never\r\n",
    );
    let text = printed(&mut moneta(&["feed", &admin, "--from", "1h", "--values"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.iter().any(|line| line.starts_with("set kept version=") && line.ends_with("flags=7 expiry=0 dmFsdWU="))
    );
    assert!(lines.iter().any(|line| line.starts_with("delete gone version=")), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("delete never version=")), "{text}");
    assert!(!text.contains("set gone"), "it is told as it is now: {text}");
    node.exchange("mg read v\r\nget read\r\nmg read s k\r\n");
    let reads = printed(&mut moneta(&["feed", &admin, "--from", "1h", "--prefix", "read"]));
    let told = reads.lines().filter(|line| line.starts_with("set read ")).count();
    assert_eq!(told, 1, "a read is no change: {reads}");
    // Each bucket of the ring of slots has what the ring places there.
    let bucket = moneta_cluster::RingKind::Slots.hash(b"kept") >> 48;
    for (range, has) in [(format!("{bucket}-{bucket}"), true), (format!("0-{}", bucket - 1), false)] {
        let text = printed(&mut moneta(&["feed", &admin, "--from", "1h", "--slots", &range]));
        assert_eq!(text.contains("set kept "), has, "{range}: {text}");
    }
    let json = printed(&mut moneta(&["feed", &admin, "--from", "1h", "--json", "--prefix", "kep"]));
    assert_eq!(json.lines().filter(|line| line.contains("\"kind\":\"set\"")).count(), 1, "{json}");
    assert!(!json.contains("delete"), "{json}");
}

#[test]
fn a_node_without_a_feed_says_so() {
    let node = Node::start(&[]);
    let error = common::refused(&mut moneta(&["feed", &admin_of(&node)]), 1);
    assert!(error.contains("start it with --cluster"), "{error}");
}

/// What a node holds of each key: value and version.
fn content(node: &Node) -> Vec<String> {
    let asked: String = (0..KEYS).map(|key| format!("mg k{key} v f V D\r\n")).collect();
    let answer = node.exchange(&asked);
    let mut lines = answer.lines();
    let mut held = Vec::new();
    while let Some(line) = lines.next() {
        // Each node has recache tokens for itself.
        let line: String = line.split(' ').filter(|token| !matches!(*token, "W" | "Z")).collect::<Vec<_>>().join(" ");
        match line.starts_with("VA") {
            true => held.push(format!("{line} {}", lines.next().unwrap_or_default())),
            false => held.push(line),
        }
    }
    held
}

/// Writes of every kind to a node, until told to stop.
fn write(node: &Node, seed: u64, stop: &AtomicBool) {
    let mut rng = Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        node.exchange(&some_writes(&mut rng));
        thread::sleep(Duration::from_millis(2));
    }
}

/// Some writes of every kind.
fn some_writes(rng: &mut Rng) -> String {
    (0..20)
        .map(|_| {
            let key = rng.u32(0..KEYS);
            match rng.u8(0..20) {
                0..8 => format!("set k{key} {} 0 3\r\n{:03}\r\n", rng.u8(..), rng.u16(0..1000)),
                8..11 => format!("delete k{key}\r\n"),
                11 => format!("append k{key} 0 0 1\r\n+\r\n"),
                12 => format!("add k{key} 0 0 1\r\n7\r\n"),
                13..15 => format!("incr k{key} 5\r\n"),
                15 => format!("touch k{key} {}\r\n", rng.u32(1000..2000)),
                16 => format!("set k{key} 0 {} 1\r\nt\r\n", rng.u32(1000..3000)),
                17 => format!("md k{key} I\r\n"),
                18 => format!("ms k{key} 2 T0\r\nms\r\n"),
                _ => format!("replace k{key} 3 0 2\r\nre\r\n"),
            }
        })
        .collect()
}

fn ends_alike(one: &Node, other: &Node) {
    let begun = Instant::now();
    loop {
        let (first, second) = (content(one), content(other));
        if first == second {
            assert!(first.iter().any(|line| line.starts_with("VA")), "all is gone: {first:?}");
            return;
        }
        if begun.elapsed() > PATIENCE {
            let differ: Vec<_> = first.iter().zip(&second).filter(|(first, second)| first != second).collect();
            panic!("the nodes differ: {differ:?}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Two nodes that apply each other's feeds hold the same at rest, whatever clients do to both at once.
fn copies_of_each_other(more: [&[&str]; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let seed =
        std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    let ((one, one_admin), (other, other_admin)) = (node("1", more[0]), node("2", more[1]));
    let cursors = [folder.path().join("one"), folder.path().join("other")];
    let _there = feed(&one_admin, &other, &cursors[0]);
    let mut back = feed(&other_admin, &one, &cursors[1]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let (one, other) = (&one, &other);
        scope.spawn(move || write(one, seed, stop));
        scope.spawn(move || write(other, seed ^ 1, stop));
        thread::sleep(Duration::from_millis(1500));
        // It goes on where the file says.
        drop(std::mem::replace(&mut back, feed(&other_admin, one, &cursors[1])));
        thread::sleep(Duration::from_millis(1500));
        stop.store(true, Ordering::Relaxed);
    });
    ends_alike(&one, &other);
    one.exchange("flush_all\r\n");
    one.exchange("set k0 0 0 5\r\nafter\r\n");
    ends_alike(&one, &other);
    assert_eq!(content(&other).iter().filter(|line| line.starts_with("VA")).count(), 1, "the flush is a copy, too");
}

#[test]
fn two_nodes_in_ram_are_copies_of_each_other() {
    copies_of_each_other([&[], &[]]);
}

#[test]
fn a_node_on_an_ssd_and_one_in_ram_are_copies_of_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().display());
    copies_of_each_other([&["--flash", &flash], &[]]);
}

/// The engines on libraries keep versions as well, below RAM and alone.
#[cfg(feature = "lmdb")]
#[test]
fn a_node_on_lmdb_and_one_in_ram_are_copies_of_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let lmdb = format!("{}:64m", folder.path().display());
    copies_of_each_other([&["--lmdb", &lmdb], &[]]);
    let folder = tempfile::tempdir().expect("a folder");
    let lmdb = format!("{}:64m", folder.path().display());
    copies_of_each_other([&["--l1", "none", "--lmdb", &lmdb], &[]]);
}

/// A server that knows no versions, in pieces, is a copy as well.
#[test]
fn a_node_with_its_items_in_a_memcached_and_one_in_ram_are_copies_of_each_other() {
    let server = Node::start(&[]);
    let l1 = format!("remote:{}", server.address());
    copies_of_each_other([&["--l1", &l1], &[]]);
}

/// A node that is killed and comes back takes what it missed, and what it lost with its last second.
#[test]
fn a_node_that_was_killed_catches_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().join("tier").display());
    let (one, one_admin) = node("1", &[]);
    // A free port may be taken before the node is back; the reader finds it by its socket.
    let socket = folder.path().join("socket").display().to_string();
    let start = || {
        let listens = ["serve", "-p", "0", "--listen", "127.0.0.1", "--unix-socket", &socket, "--admin", "off"];
        let is = ["--cluster", "--writer-id", "2", "--flash", &flash];
        Node::run(&mut moneta(&[&listens[..], &is].concat()))
    };
    let killed = start();
    let _feed = feed_to(&one_admin, &socket, &folder.path().join("cursor"));
    let stop = AtomicBool::new(false);
    let back = thread::scope(|scope| {
        let (stop, one) = (&stop, &one);
        scope.spawn(move || write(one, 7, stop));
        thread::sleep(Duration::from_millis(1200));
        // Dropped, it is killed.
        drop(killed);
        thread::sleep(Duration::from_millis(700));
        let back = start();
        thread::sleep(Duration::from_millis(700));
        stop.store(true, Ordering::Relaxed);
        back
    });
    ends_alike(&one, &back);
}

/// A reader of a node on an SSD goes on after a kill of that node, from the log: of what was on the device, nothing is missing,
/// and no gap is told.
#[test]
fn a_reader_goes_on_when_its_source_was_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().join("tier").display());
    let start = || {
        let is = ["--cluster", "--writer-id", "1", "--flash", &flash, "--flash-durability", "every-write"];
        let node = Node::start(&is);
        let admin = admin_of(&node);
        (node, admin)
    };
    let (target, _) = node("2", &[]);
    let (source, admin) = start();
    let sets = |node: &Node, range: std::ops::Range<u32>| {
        let requests: String = range.map(|key| format!("set k{key} 0 0 3\r\n{key:03}\r\n")).collect();
        assert!(!node.exchange(&requests).contains("ERROR"));
    };
    sets(&source, 0..20);
    let cursor = folder.path().join("cursor");
    let reader = feed(&admin, &target, &cursor);
    ends_alike(&source, &target);
    // It writes that down when all of it was taken.
    target.wait_for(|| cursor.exists(), "the reader keeps no cursor");
    // The reader is away while this happens, and the node is killed after it.
    drop(reader);
    sets(&source, 15..30);
    source.exchange("delete k3\r\nmd k4 I\r\ntouch k5 1500\r\n");
    drop(source);
    let (source, admin) = start();
    let place = std::fs::read_to_string(&cursor).expect("it was kept");
    let json = printed(moneta(&["feed", &admin, "--json", "--cursor-file"]).arg(&cursor));
    assert!(!json.contains("\"gap\"") && !json.contains("\"lost\""), "{json}");
    assert!(json.contains("\"key\":\"k3\"") && json.contains("\"key\":\"k29\""), "{json}");
    std::fs::write(&cursor, place).expect("it is written");
    sets(&source, 30..KEYS);
    let _reader = feed(&admin, &target, &cursor);
    ends_alike(&source, &target);
}

#[test]
fn a_cursor_file_is_of_one_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, admin) = node("1", &[]);
    let ((target, _), (other, _)) = (node("2", &[]), node("3", &[]));
    source.exchange("set k 0 0 1\r\nx\r\n");
    let cursor = folder.path().join("cursor");
    let reader = feed(&admin, &target, &cursor);
    target.wait_for(|| cursor.exists(), "the reader keeps no cursor");
    drop(reader);
    // What was written there says nothing of another node: it would lack all of it.
    let address = other.address().to_string();
    let mut command = moneta(&["feed", &admin, "--into", &address, "--cursor-file"]);
    let refused = command.arg(&cursor).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("another target takes another file"), "{said}");
}

/// What a node may have lost with its last second is told, and the feed goes on.
/// A reader that was away for longer than a node remembers deletes has to know.
#[test]
fn each_feed_tells_the_horizon() {
    let (node, admin) = node("1", &["--tombstone-ttl", "100"]);
    let answer = node.exchange("stats\r\nchanges since 0\r\nquit\r\n");
    let last_of = |what: &str, place: usize| {
        let line = answer.lines().rev().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{answer}"));
        line.split(' ').nth(place).and_then(|word| word.parse::<u64>().ok()).expect("a number")
    };
    let (seconds, told) = (last_of("STAT horizon ", 2), last_of("AT ", 3));
    assert_eq!(told.div_ceil(1000), seconds);
    assert!(seconds > 1_700_000_000, "{seconds}");
    let page = common::connect(&*admin);
    let page = common::exchange(page, "GET /changes?since=0 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(page.contains(&format!("\"horizon\":{told}")), "{page}");
}

/// The version that a node gives a write.
fn version_of(node: &Node) -> u64 {
    let answer = node.exchange("ms key 5 c\r\nvalue\r\nquit\r\n");
    let version = answer.trim().strip_prefix("HD c").and_then(|version| version.parse().ok());
    version.unwrap_or_else(|| panic!("{answer}"))
}

/// A node keeps versions free above those that it gave out, so that none comes twice after a kill. It must not serve while they
/// are ahead of the clock: other copies would refuse what is written, and writes through a proxy would find something newer.
#[test]
fn versions_are_not_ahead_of_the_clock_behind_a_kill() {
    let mut places = vec![("--flash", "200m")];
    if cfg!(feature = "lmdb") {
        places.push(("--lmdb", "100m"));
    }
    for (flag, bytes) in places {
        let folder = tempfile::tempdir().expect("a folder");
        let place = format!("{}:{bytes}", folder.path().join("tier").display());
        let (killed, _) = node("1", &[flag, &place]);
        let (other, _) = node("2", &[]);
        version_of(&killed);
        drop(killed);
        let (again, _) = node("1", &[flag, &place]);
        let version = version_of(&again);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("behind 1970").as_millis() as u64;
        let ahead = Version(version).millis().saturating_sub(now);
        assert_eq!(ahead, 0, "{flag}: milliseconds that a version is ahead of the clock");
        let answer = other.exchange(&format!("ms key 5 V{version}\r\nvalue\r\nquit\r\n"));
        assert_eq!(answer, "HD\r\n", "{flag}");
    }
}

#[test]
fn a_kill_without_a_sync_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().join("tier").display());
    let (killed, admin) = node("1", &["--flash", &flash]);
    let cursor = folder.path().join("cursor");
    let from_cursor = |admin: &str| printed(moneta(&["feed", admin, "--json", "--cursor-file"]).arg(&cursor));
    from_cursor(&admin);
    drop(killed);
    let (back, admin) = node("1", &["--flash", &flash]);
    back.exchange("set k 0 0 1\r\nx\r\n");
    let json = from_cursor(&admin);
    assert!(json.contains("\"kind\":\"lost\"") && json.contains("\"key\":\"k\""), "{json}");
    assert!(!json.contains("\"gap\"") && !from_cursor(&admin).contains("\"lost\""), "{json}");
}

/// Who must not list keys is not told of changes either.
#[test]
fn the_feed_is_not_told_where_keys_are_secrets() {
    let (node, admin) = node("1", &["-X"]);
    assert_eq!(node.exchange("changes since 0\r\n"), "CLIENT_ERROR changes not allowed\r\n");
    let told = refused(&mut moneta(&["feed", &admin]), 1);
    assert!(told.contains("keys are secrets"), "{told}");
}

/// `changes`, on any listener: what changed, in a form that any client can read, while it changes.
#[test]
fn the_feed_is_told_on_each_listener() {
    use std::io::{BufRead, BufReader, Read, Write};
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().display());
    for (more, is_batch) in [(&["--flash", &flash][..], true), (&[], false)] {
        let (node, admin) = node("1", &[more, &["--batch-port", "0"]].concat());
        let listening = node.listening();
        let batch = listening.iter().find_map(|address| address.strip_suffix(" (batch)")).expect("it has a batch port");
        let batch = if is_batch { batch } else { &node.address().to_string() };
        node.exchange("set before 5 0 3\r\n\r\n\0\r\n");
        let connect = || common::connect(batch);
        let mut stream = connect();
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
        stream
            .write_all(b"changes since x\r\nchanges since 0 values follow name tap rate 100000000\r\n")
            .expect("sent");
        let mut lines = BufReader::new(stream);
        let mut next = || {
            let mut line = String::new();
            lines.read_line(&mut line).expect("a line comes");
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let length = match words[0].as_str() {
                "SET" => words[1].parse::<usize>().expect("a number") + words[2].parse::<usize>().expect("a number"),
                "DELETE" => words[1].parse().expect("a number"),
                _ => return (words, Vec::new()),
            };
            let mut body = vec![0; length + 2];
            lines.read_exact(&mut body).expect("the body comes");
            assert_eq!(&body[length..], b"\r\n");
            body.truncate(length);
            (words, body)
        };
        assert_eq!(next().0.join(" "), "CLIENT_ERROR bad command line format");
        let mut until = |kind: &str, body: &[u8]| {
            loop {
                let (words, found) = next();
                if words[0] == kind && found == body {
                    return words;
                }
            }
        };
        let set = until("SET", b"before\r\n\0");
        assert_eq!((&set[4][..], &set[5][..], &set[7][..]), ("5", "0", "0"), "flags, expiry, as of now: {set:?}");
        node.exchange("delete before\r\n");
        until("DELETE", b"before");
        node.exchange("flush_all\r\n");
        until("FLUSH", b"");
        let told = until("AT", b"");
        let listed = printed(&mut moneta(&["feed", "list", &admin]));
        assert!(listed.lines().any(|line| line.starts_with("tap ") && line.contains("yes")), "{listed}");
        // Until now, from where the other is.
        let mut stream = connect();
        node.exchange("set after 0 0 1\r\nx\r\n");
        stream
            .write_all(format!("changes cursor {} prefix af slots 0-65535\r\nquit\r\n", told[1]).as_bytes())
            .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it ends");
        assert!(text.contains("SET 5 - ") && text.contains("\r\nafter\r\n") && text.ends_with("END\r\n"), "{text}");
    }
}

/// A reader changes its rate on the connection on which it is sent: what would have taken hours comes at once.
#[test]
fn a_reader_changes_its_rate_while_it_reads() {
    use std::io::{BufRead, BufReader, Read, Write};
    let (node, _) = node("1", &[]);
    let value = "v".repeat(50_000);
    let sets: String = (0..40).map(|key| format!("set k{key} 0 0 50000\r\n{value}\r\n")).collect();
    assert!(!node.exchange(&sets).contains("ERROR"));
    let mut stream = common::connect(node.address());
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    stream.write_all(b"changes since 0 values rate 10\r\n").expect("sent");
    let mut lines = BufReader::new(stream.try_clone().expect("another handle"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line comes");
    assert!(line.starts_with("GAP ") && line.trim_end().ends_with(" start"), "{line}");
    // In pieces, and with what waits until the feed has ended.
    for piece in ["ra", "te 2", "0\r\nrate 0\r\nmn\r\n", "quit\r\n"] {
        stream.write_all(piece.as_bytes()).expect("sent");
        stream.flush().expect("sent");
        thread::sleep(Duration::from_millis(20));
    }
    let mut rest = Vec::new();
    lines.read_to_end(&mut rest).expect("it ends");
    assert!(rest.ends_with(b"END\r\nMN\r\n"), "{}", rest[rest.len().saturating_sub(100)..].escape_ascii());
    assert!(rest.len() > 2_000_000, "{} bytes", rest.len());
}
