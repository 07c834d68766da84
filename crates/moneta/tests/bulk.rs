//! `moneta dump`, `populate` and `copy` between real processes. What they must not do shows nowhere else: lose a key, bring back what
//! was deleted, put an older item over a newer one, or take a part for the whole.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use common::{Memcached, Node, PATIENCE, Process, Signal, file, moneta, printed, refused, until};
use fastrand::Rng;

/// Keys of the larger tests.
const KEYS: u32 = 3000;

fn node(writer: &str, more: &[&str]) -> Node {
    Node::start(&[&["--cluster", "--writer-id", writer, "--threads", "2"], more].concat())
}

/// A run that ends by itself; what it prints.
fn run(arguments: &[&str]) -> String {
    printed(&mut moneta(arguments))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// Both hold the same keys, values and flags, and the same ends of life but for what rounding makes of them.
fn verify(one: &str, other: &str) {
    let ended = common::output(&mut moneta(&["verify", one, other, "--settle", "0.1"]));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

/// Keys and ends of life as a server lists them.
fn ends_of_life(mut stream: impl Read + Write) -> BTreeMap<String, i64> {
    stream.write_all(b"lru_crawler metadump hash\r\n").expect("it reads");
    // memcached does not look at what comes with the request, such as a `quit`.
    let (mut listed, mut part) = (Vec::new(), [0; 1 << 14]);
    while !listed.ends_with(b"END\r\n") {
        let read = stream.read(&mut part).expect("it answers");
        assert!(read > 0, "it closes before the list has ended");
        listed.extend_from_slice(&part[..read]);
    }
    let listed = String::from_utf8(listed).expect("a list is text");
    let word = |line: &str, name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)).map(String::from);
    let of_line = |line: &str| Some((word(line, "key=")?, word(line, "exp=")?.parse().ok()?));
    listed.lines().filter_map(of_line).collect()
}

/// Sends requests of which all but the last are answered by nothing, and waits for the answer of that, `mn`.
fn send(mut stream: impl Read + Write, requests: &[u8]) {
    stream.write_all(requests).and_then(|()| stream.write_all(b"mn\r\n")).expect("it reads");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"MN\r\n", "every request is without an answer");
}

/// Many items of all kinds of flags, lengths and lives.
fn many(rng: &mut Rng, keys: u32) -> Vec<u8> {
    let mut requests = Vec::new();
    for key in 0..keys {
        let (flags, life) = (rng.u32(..), [0, 0, 1000, 100_000][rng.usize(0..4)]);
        let value = vec![b'a' + (key % 26) as u8; rng.usize(0..2000)];
        requests.extend_from_slice(format!("set k{key} {flags} {life} {} noreply\r\n", value.len()).as_bytes());
        requests.extend_from_slice(&value);
        requests.extend_from_slice(b"\r\n");
    }
    requests
}

fn seed() -> u64 {
    let seed = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    seed
}

#[test]
fn all_of_a_memcached_comes_to_a_node_and_back_to_another_memcached() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let memcached = Memcached::start(&[]);
    let back = Memcached::start(&[]);
    send(common::connect_unix(memcached.path()).expect("it listens"), &many(&mut Rng::with_seed(seed()), KEYS));
    let target = node("1", &[]);
    let address = target.address().to_string();
    let (there, again) = (at("there"), at("back"));
    // Keys are listed while they are read by others.
    scope(|scope| {
        let path = memcached.path();
        let gets: String = (0..KEYS).map(|key| format!("mg k{key} q\r\n")).collect();
        scope.spawn(move || {
            for _ in 0..20 {
                let mut stream = common::connect_unix(path).expect("it listens");
                stream.write_all(gets.as_bytes()).and_then(|()| stream.write_all(b"quit\r\n")).expect("it reads");
                stream.read_to_end(&mut Vec::new()).expect("it answers");
            }
        });
        let report = run(&["dump", text(path), "--into", text(&there), "--json", "--segment-size", "200k"]);
        assert!(report.contains(&format!("\"items\":{KEYS},")) && report.contains("\"by\":\"list\""), "{report}");
    });
    let report = run(&["populate", "--from", text(&there), "--to", &address, "--json"]);
    assert!(report.contains(&format!("\"created\":{KEYS},")), "{report}");
    verify(text(memcached.path()), &address);
    let connect = |memcached: &Memcached| common::connect_unix(memcached.path()).expect("it listens");
    let ends = ends_of_life(connect(&memcached));
    assert_eq!(ends.len(), KEYS as usize);
    assert!(ends == ends_of_life(target.connect()), "the second in which each item dies is kept");
    run(&["dump", &address, "--into", text(&again), "--no-compression"]);
    run(&["populate", "--from", text(&again), "--to", text(back.path())]);
    verify(text(memcached.path()), text(back.path()));
    assert!(ends == ends_of_life(connect(&back)), "the second in which each item dies is kept");
    // Nothing newer is replaced.
    target.exchange("set k0 0 0 5\r\nnewer\r\ndelete k1\r\n");
    let report = run(&["populate", "--from", text(&there), "--to", &address, "--json"]);
    assert!(report.contains(&format!("\"created\":1,\"there\":{}", KEYS - 1)), "{report}");
    assert!(target.exchange("get k0\r\n").contains("newer"));
}

#[test]
fn a_part_is_what_prefix_slots_and_life_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let memcached = Memcached::start(&[]);
    let items = "set a:1 0 0 1 noreply\r\nx\r\nset a:2 0 20 1 noreply\r\nx\r\nset b:1 0 0 1 noreply\r\nx\r\n";
    send(common::connect_unix(memcached.path()).expect("it listens"), items.as_bytes());
    let all = at("all");
    run(&["dump", text(memcached.path()), "--into", text(&all)]);
    let part = at("part");
    let dump = ["dump", text(memcached.path()), "--into", text(&part), "--json", "--prefix", "a:", "--ttl-over", "100"];
    let report = run(&dump);
    assert!(report.contains("\"items\":1,"), "{report}");
    assert!(report.contains("\"short_lived\":1,\"unwanted\":1"), "{report}");
    let error = refused(&mut moneta(&["dump", text(memcached.path()), "--into", text(&part)]), 1);
    assert!(error.contains("prefix a: ttl over 100, and this would be one of"), "{error}");
    let bucket = moneta_cluster::RingKind::Slots.hash(b"b:1") >> 48;
    let target = node("1", &[]);
    let address = target.address().to_string();
    run(&["populate", "--from", text(&all), "--to", &address, "--slots", &format!("{bucket}-{bucket}")]);
    assert_eq!(target.exchange("get a:1 a:2 b:1\r\n"), "VALUE b:1 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn a_directory_is_of_one_dump_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let memcached = Memcached::start(&[]);
    let other = Memcached::start(&[]);
    let (path, into) = (text(memcached.path()).to_owned(), at("dump"));
    send(common::connect_unix(memcached.path()).expect("it listens"), &many(&mut Rng::with_seed(1), 50));
    let error = refused(&mut moneta(&["dump", &path, "--into", text(&into), "--follow"]), 1);
    assert!(error.contains("tells no feed"), "{error}");
    run(&["dump", &path, "--into", text(&into)]);
    let error = refused(&mut moneta(&["dump", text(other.path()), "--into", text(&into)]), 1);
    assert!(error.contains("base is a dump of"), "{error}");
    let target = node("1", &[]);
    let address = target.address().to_string();
    let error = refused(&mut moneta(&["populate", "--from", text(&into), "--to", &address, "--follow"]), 1);
    assert!(error.contains("without a feed"), "{error}");
    let error = refused(&mut moneta(&["populate", "--from", text(&at("none")), "--to", &address]), 1);
    assert!(error.contains("no directory"), "{error}");
    let error = refused(&mut moneta(&["copy", "--from", &address, "--to", &address]), 1);
    assert!(error.contains("copied to itself"), "{error}");
    // A bit that has flipped in the middle of what was written.
    let segment = fs::read_dir(into.join("base")).expect("it is there").map(|entry| entry.expect("it is there").path());
    let segment = segment.into_iter().find(|path| path.extension().is_some_and(|end| end == "segment"));
    let segment = segment.expect("there is one");
    let mut bytes = fs::read(&segment).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).expect("it can be written");
    let error = refused(&mut moneta(&["populate", "--from", text(&into), "--to", &address]), 1);
    assert!(error.contains("damaged"), "{error}");
    assert_eq!(target.exchange("get k0\r\n"), "END\r\n", "nothing of a damaged block is taken");
}

/// The same, where no file may become longer than half a MiB: a signal that would end the process is ignored, as on a disk that is full.
fn limited(arguments: &[&str]) -> std::process::Command {
    let plain = moneta(arguments);
    let mut command = moneta_testkit::process::clean("bash");
    command.args(["-c", "trap '' XFSZ; ulimit -f 512; exec \"$@\"", "bash"]);
    command.arg(plain.get_program()).args(plain.get_args());
    command
}

#[test]
fn a_full_disk_is_told_by_its_folder_and_not_by_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let source = node("1", &[]);
    let mut rng = Rng::with_seed(seed());
    let sets = (0..KEYS).map(|key| {
        let value: String = (0..1000).map(|_| rng.alphanumeric()).collect();
        format!("set k{key} 0 0 1000 noreply\r\n{value}\r\n")
    });
    send(source.connect(), sets.collect::<String>().as_bytes());
    let address = source.address().to_string();
    let (dump, backup) = (at("dump"), at("backup"));
    for (command, into) in [("dump", &dump), ("backup", &backup)] {
        let arguments = [command, &address, "--into", text(into)];
        let said = refused(&mut limited(&arguments), 1);
        let words = [".segment: File too large", &format!(", in {}\n", text(into))];
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(!said.contains(&address), "it is no fault of the server: {said}");
        run(&arguments);
    }
    let target = node("2", &[]);
    run(&["populate", "--from", text(&dump), "--to", &target.address().to_string()]);
    verify(&address, &target.address().to_string());
}

/// What a node holds of each key: value, flags, version and end of life.
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

fn ends_alike(source: &Node, target: &Node) {
    let begun = Instant::now();
    loop {
        let (first, second) = (content(source), content(target));
        if first == second {
            assert!(first.iter().any(|line| line.starts_with("VA")), "all is gone");
            return;
        }
        if begun.elapsed() > PATIENCE {
            let differ: Vec<_> = first.iter().zip(&second).filter(|(first, second)| first != second).collect();
            let shown = &differ[..differ.len().min(10)];
            panic!("{} keys differ, as (source, target): {shown:?}", differ.len());
        }
        sleep(Duration::from_millis(100));
    }
}

/// Some writes of every kind.
fn some_writes(rng: &mut Rng) -> String {
    (0..30)
        .map(|_| {
            let key = rng.u32(0..KEYS);
            match rng.u8(0..16) {
                0..7 => format!("set k{key} {} 0 5\r\n{:05}\r\n", rng.u32(..), rng.u16(..)),
                7..11 => format!("delete k{key}\r\n"),
                11 => format!("append k{key} 0 0 1\r\n+\r\n"),
                12 => format!("touch k{key} {}\r\n", rng.u32(1000..2000)),
                13 => format!("set k{key} 0 1 1\r\nt\r\n"),
                14 => format!("md k{key} I\r\n"),
                _ => format!("add k{key} 0 0 3\r\nnew\r\n"),
            }
        })
        .collect()
}

/// Dump and populate, both with --follow, are killed at random points while the source is written, flushed, and its items expire.
/// At the end the target holds what the source does: nothing older, nothing deleted, every key.
fn follows_through_kills(source: &Node, by: &str) {
    let mut rng = Rng::with_seed(seed());
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    send(source.connect(), &many(&mut rng, KEYS));
    let target = node("2", &[]);
    let (from, to) = (source.address().to_string(), target.address().to_string());
    let (archive, cursor) = (at("archive"), at("cursor"));
    let dump = || {
        let pace = ["--rate", "4m", "--segment-size", "100k"];
        Process::start(moneta(&["dump", &from, "--into", text(&archive), "--follow"]).args(pace))
    };
    let populate = || {
        let is = ["populate", "--from", text(&archive), "--to", &to, "--follow", "--cursor-file", text(&cursor)];
        Process::start(&mut moneta(&is))
    };
    fs::create_dir(&archive).expect("there is room");
    let (mut dumping, mut populating) = (dump(), populate());
    for round in 0..8 {
        for _ in 0..rng.u32(2..10) {
            source.exchange(&some_writes(&mut rng));
        }
        if round == 4 {
            source.exchange("flush_all\r\n");
            send(source.connect(), &many(&mut rng, KEYS / 2));
        }
        sleep(Duration::from_millis(rng.u64(0..700)));
        // Dropped, it is killed.
        if rng.bool() {
            drop(dumping);
            dumping = dump();
        } else {
            drop(populating);
            populating = populate();
        }
    }
    source.exchange(&some_writes(&mut rng));
    ends_alike(source, &target);
    assert!(archive.join("base/DONE").is_file());
    for process in [&mut populating, &mut dumping] {
        process.signal(Signal::SIGTERM);
        let status = process.wait();
        assert!(status.success(), "{status}: {}", process.messages());
    }
    // A second target is populated from the same files from their begin.
    let late = node("3", &[]);
    let follower = Process::start(&mut moneta(&[
        "populate",
        "--from",
        text(&archive),
        "--to",
        &late.address().to_string(),
        "--follow",
    ]));
    ends_alike(source, &late);
    drop(follower);
    let report = run(&["dump", &from, "--into", text(&at("another")), "--json"]);
    assert!(report.contains(&format!("\"by\":\"{by}\"")), "{report}");
}

#[test]
fn what_changes_on_a_node_with_an_ssd_is_followed_through_kills() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().display());
    follows_through_kills(&node("1", &["--flash", &flash]), "feed");
}

#[test]
fn what_changes_on_a_node_in_ram_is_followed_through_kills() {
    follows_through_kills(&node("1", &[]), "list");
}

/// A node with an SSD tier whose log has gone round: what its feed does not reach is not there, and what was deleted is not told.
#[test]
fn the_base_of_a_log_that_went_round_is_what_the_node_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = node("1", &["--flash", &format!("{}:160m", folder.path().join("tier").display()), "-m", "16"]);
    let mut rng = Rng::with_seed(seed());
    let value = "v".repeat(20_000);
    for _ in 0..10 {
        let sets = (0..1000).map(|_| format!("set k{} 0 0 20000 noreply\r\n{value}\r\n", rng.u32(0..KEYS)));
        send(source.connect(), sets.collect::<String>().as_bytes());
        let deletes: String = (0..100).map(|_| format!("delete k{} noreply\r\n", rng.u32(0..KEYS))).collect();
        send(source.connect(), deletes.as_bytes());
    }
    let target = node("2", &["-m", "256"]);
    let (archive, to) = (folder.path().join("archive"), target.address().to_string());
    let report = run(&["dump", &source.address().to_string(), "--into", text(&archive), "--json"]);
    assert!(report.contains("\"by\":\"feed\""), "{report}");
    let report = run(&["populate", "--from", text(&archive), "--to", &to, "--json"]);
    let (held, came) = (content(&source), content(&target));
    let differ = held.iter().zip(&came).filter(|(held, came)| held != came).count();
    assert_eq!(differ, 0, "of {} keys: {report}", held.iter().filter(|line| line.starts_with("VA")).count());
}

#[test]
fn a_ring_that_went_round_is_a_gap_and_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = node("1", &["-m", "8"]);
    let (from, archive) = (source.address().to_string(), folder.path().join("archive"));
    source.exchange("set k0 0 0 1\r\nx\r\n");
    run(&["dump", &from, "--into", text(&archive)]);
    for _ in 0..4 {
        send(source.connect(), &many(&mut Rng::with_seed(2), KEYS));
    }
    let error = refused(&mut moneta(&["dump", &from, "--into", text(&archive), "--follow"]), 1);
    assert!(error.contains("are missing (ring): begin with a new base"), "{error}");
}

#[test]
fn a_replica_is_copied_to_one_with_another_ring_and_follows_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let sources = [node("1", &[]), node("2", &[])];
    let targets = [node("3", &[]), node("4", &[]), node("5", &[])];
    let mut topology = "epoch = 1\nring = \"slots\"\n".to_owned();
    for (replica, zone, nodes) in [("a1", "a", &sources[..]), ("b1", "b", &targets[..])] {
        let nodes = nodes.iter().enumerate().map(|(slot, node)| format!("\"s{slot}={}\"", node.address()));
        let nodes = nodes.collect::<Vec<_>>().join(", ");
        topology += &format!("\n[[replica]]\nname = \"{replica}\"\nzone = \"{zone}\"\nnodes = [{nodes}]\n");
    }
    let topology = file(folder.path(), "topology.toml", &topology);
    let route = run(&["route", &topology, "k0"]);
    assert!(route.contains("a1"), "{route}");
    let ring = |nodes: &[Node]| {
        let nodes: Vec<_> = nodes
            .iter()
            .enumerate()
            .map(|(slot, node)| moneta_cluster::topology::Node {
                slot: format!("s{slot}"),
                address: node.address().into(),
                admin: None,
                weight: 1,
            })
            .collect();
        moneta_cluster::Ring::new(moneta_cluster::RingKind::Slots, &nodes).expect("it is one")
    };
    let placed = ring(&sources);
    for key in 0..500 {
        let key = format!("k{key}");
        sources[placed.node(key.as_bytes())].exchange(&format!("set {key} 7 1000 {}\r\n{key}\r\n", key.len()));
    }
    let copy = ["copy", "--from", "a1", "--to", "b1", "--topology", &topology];
    let report = run(&[&copy[..], &["--json"]].concat());
    assert!(report.contains("\"taken\":500,"), "{report}");
    run(&["verify", "a1", "b1", "--topology", &topology, "--settle", "0.1", "--ttl-tolerance", "0"]);
    let mut following = Process::start(moneta(&copy).arg("--follow"));
    following.until("both are followed", || following.stderr().matches("changes follow").count() == 2);
    let changed = &sources[placed.node(b"k1")];
    changed.exchange("set k1 0 0 5\r\nnewer\r\n");
    let place = &targets[ring(&targets).node(b"k1")];
    until("a change follows", || place.exchange("get k1\r\n").contains("newer"));
    changed.exchange("delete k1\r\n");
    until("a delete follows", || place.exchange("get k1\r\n") == "END\r\n");
    following.signal(Signal::SIGTERM);
    assert!(following.wait().success());
}
