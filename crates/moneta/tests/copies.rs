//! Three nodes that are copies of one another by `moneta feed`, as processes: clients write to all of them with every command,
//! nodes are killed at any moment, and one is away for longer than deletes are remembered. At rest no acknowledged write is lost
//! and no two nodes differ. `MONETA_COPIES_SECONDS` makes it longer, `MONETA_SEED` repeats the clients' choices.

mod common;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Node, Process, connect_unix, moneta, output};
use fastrand::Rng;

const COPIES: usize = 3;
/// Keys that are only written, and keys that are deleted, too.
const KEYS: [(&str, u32); 2] = [("kept", 30), ("deleted", 30)];
const PATIENCE: Duration = Duration::from_secs(90);
/// How far versions may be from the order of time: clocks here are one, but a node's versions are ahead of it after a kill.
const APART: Duration = Duration::from_secs(4);

/// A write that was answered with its version.
#[derive(Clone, Debug)]
struct Written {
    version: u64,
    /// `None`: what was there with more after it, or a number.
    value: Option<String>,
    answered: Instant,
}

/// What clients know of a key.
#[derive(Default)]
struct Known {
    newest: Option<Written>,
    /// Writes that may have been made, and of which no client knows the version.
    doubts: u32,
    /// When a delete of it, or of everything, was sent last.
    deleted: Option<Instant>,
}

#[derive(Default)]
struct Journal {
    keys: Mutex<HashMap<String, Known>>,
    writes: std::sync::atomic::AtomicU64,
}

impl Journal {
    fn note<T>(&self, key: &str, note: impl FnOnce(&mut Known) -> T) -> T {
        note(self.keys.lock().expect("no panic").entry(key.to_owned()).or_default())
    }

    fn written(&self, key: &str, version: u64, value: Option<String>) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let written = Written { version, value, answered: Instant::now() };
        self.note(key, |known| {
            if known.newest.as_ref().is_none_or(|newest| newest.version < version) {
                known.newest = Some(written);
            }
        });
    }
}

/// Where the nodes keep their items. What they acknowledged is there after a kill.
#[derive(Clone, Copy, Debug)]
enum Tier {
    Flash,
    #[cfg(feature = "lmdb")]
    Lmdb,
}

impl Tier {
    fn options(self, place: &Path) -> Vec<String> {
        let options = match self {
            Self::Flash => ["--flash-durability", "every-write", "--flash"].as_slice(),
            #[cfg(feature = "lmdb")]
            Self::Lmdb => &["--lmdb"],
        };
        let place = format!("{}:200m", place.display());
        options.iter().map(|option| (*option).to_owned()).chain([place]).collect()
    }
}

/// A node, its place, and those that read it.
struct Copy {
    number: usize,
    tier: Tier,
    folder: PathBuf,
    node: Option<Node>,
    readers: Vec<Process>,
}

impl Copy {
    fn socket(folder: &Path, number: usize) -> PathBuf {
        folder.join(format!("socket{number}"))
    }

    /// Starts the node, and for each other one what brings its changes there.
    fn start(&mut self) {
        let folder = &self.folder;
        let tier = self.tier.options(&folder.join(format!("tier{}", self.number)));
        let (socket, writer) = (Self::socket(folder, self.number), (self.number + 1).to_string());
        let is = ["--cluster", "--writer-id", &writer, "--threads", "1", "--tombstone-ttl", "4"];
        let mut command = moneta(&["serve", "-p", "0", "--listen", "127.0.0.1", "--admin", "127.0.0.1:0"]);
        command.args(is).args(tier).arg("--unix-socket").arg(socket);
        let node = Node::run(&mut command);
        node.wait_for_log("admin HTTP listening");
        let log = node.log();
        let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.expect("with the address");
        self.readers = (0..COPIES)
            .filter(|other| *other != self.number)
            .map(|other| {
                let mut command = moneta(&["feed", address, "--from", "1h", "--follow", "--into"]);
                command.arg(Self::socket(folder, other)).arg("--cursor-file");
                command.arg(folder.join(format!("cursor{}-{other}", self.number)));
                Process::start(&mut command)
            })
            .collect();
        self.node = Some(node);
    }

    /// As `kill -9`.
    fn kill(&mut self) {
        self.readers.clear();
        self.node = None;
    }
}

/// A client's connection: one request, one answer.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(socket: &Path) -> Option<Self> {
        connect_unix(socket).ok().map(|stream| Self(BufReader::new(stream)))
    }

    /// The lines of the answer: a value has two.
    fn ask(&mut self, request: &str) -> Option<Vec<String>> {
        self.0.get_mut().write_all(request.as_bytes()).ok()?;
        let mut lines = vec![self.line()?];
        if lines[0].starts_with("VA ") {
            lines.push(self.line()?);
        }
        Some(lines)
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(1..) if line.ends_with('\n') => Some(line.trim_end().to_owned()),
            _ => None,
        }
    }
}

fn token(line: &str, flag: char) -> Option<u64> {
    line.split(' ').skip(1).find_map(|token| token.strip_prefix(flag)?.parse().ok())
}

/// One command of a client. `None`: it was not answered.
fn command(client: &mut Client, rng: &mut Rng, journal: &Journal) -> Option<()> {
    let (class, count) = KEYS[rng.usize(0..KEYS.len())];
    let key = format!("{class}{}", rng.u32(0..count));
    let may_go = class == "deleted";
    let value = format!("{}", rng.u64(1..1 << 40));
    let length = value.len();
    // Until it is answered.
    journal.note(&key, |known| known.doubts += 1);
    let settle = || {
        journal.note(&key, |known| known.doubts -= 1);
        Some(())
    };
    let wrote = |client: &mut Client, request: String, value: Option<String>| {
        let answer = client.ask(&request)?;
        // Appends make numbers too long.
        let is_no_number = answer[0].contains("cannot increment or decrement");
        assert!(is_no_number || !answer[0].contains("ERROR"), "{request:?}: {answer:?}");
        if let (true, Some(version)) = (answer[0].starts_with("HD"), token(&answer[0], 'c')) {
            journal.written(&key, version, value);
        }
        settle()
    };
    match rng.u8(0..40) {
        0..12 => wrote(client, format!("ms {key} {length} c\r\n{value}\r\n"), Some(value)),
        12..15 => wrote(client, format!("ms {key} {length} c ME\r\n{value}\r\n"), Some(value)),
        15..18 => wrote(client, format!("ms {key} {length} c MR\r\n{value}\r\n"), Some(value)),
        18..21 => wrote(client, format!("ms {key} 1 c MA\r\n7\r\n"), None),
        21..23 => wrote(client, format!("ms {key} 1 c MP\r\n7\r\n"), None),
        23..26 => wrote(client, format!("ma {key} c D3\r\n"), None),
        26..29 => {
            let answer = client.ask(&format!("mg {key} c\r\n"))?;
            match token(&answer[0], 'c') {
                Some(cas) => wrote(client, format!("ms {key} {length} C{cas} c\r\n{value}\r\n"), Some(value)),
                None => settle(),
            }
        }
        29 => {
            // It lengthens a life, and changes no version.
            client.ask(&format!("touch {key} 0\r\n"))?;
            settle()
        }
        30 if may_go => {
            // It shortens a life: a version that is not told. So it stays in doubt.
            client.ask(&format!("touch {key} {}\r\n", rng.u32(1000..2000)))?;
            Some(())
        }
        31..35 if may_go => {
            journal.note(&key, |known| known.deleted = Some(Instant::now()));
            client.ask(&format!("delete {key}\r\n"))?;
            settle()
        }
        35 if may_go => {
            client.ask(&format!("md {key} I\r\n"))?;
            Some(())
        }
        36 if rng.u8(0..200) == 0 => {
            let now = Instant::now();
            journal.keys.lock().expect("no panic").values_mut().for_each(|known| known.deleted = Some(now));
            settle();
            client.ask("flush_all\r\n").map(drop)
        }
        _ => {
            client.ask(&format!("mg {key} v t\r\n"))?;
            settle()
        }
    }
}

/// A client that writes to a node until told to stop, whatever becomes of the node.
fn client(socket: &Path, seed: u64, journal: &Journal, stop: &AtomicBool) {
    let mut rng = Rng::with_seed(seed);
    while !stop.load(Ordering::Relaxed) {
        let Some(mut client) = Client::connect(socket) else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        while !stop.load(Ordering::Relaxed) && command(&mut client, &mut rng, journal).is_some() {
            thread::sleep(Duration::from_micros(rng.u64(0..3000)));
        }
    }
}

fn keys() -> impl Iterator<Item = String> {
    KEYS.into_iter().flat_map(|(class, count)| (0..count).map(move |number| format!("{class}{number}")))
}

/// What a node has: of each key version, expiry, flags and value.
fn content(socket: &Path) -> Vec<Vec<String>> {
    let mut client = Client::connect(socket).expect("it runs");
    keys()
        .map(|key| client.ask(&format!("mg {key} V D f v\r\n")).expect("it answers").into_iter().map(bare).collect())
        .collect()
}

/// Without what a node tells its own readers: who is to fetch a stale item anew.
fn bare(line: String) -> String {
    line.split(' ').filter(|token| !matches!(*token, "W" | "Z")).collect::<Vec<_>>().join(" ")
}

/// Waits until all nodes hold the same.
fn at_rest(folder: &Path) -> Vec<Vec<String>> {
    let begun = Instant::now();
    loop {
        let all: Vec<_> = (0..COPIES).map(|number| content(&Copy::socket(folder, number))).collect();
        if all.iter().all(|held| *held == all[0]) {
            return all.into_iter().next().expect("there are some");
        }
        if begun.elapsed() > PATIENCE {
            let differ: Vec<_> = keys()
                .enumerate()
                .filter(|(at, _)| all.iter().any(|held| held[*at] != all[0][*at]))
                .map(|(at, key)| format!("{key}: {:?}", all.iter().map(|held| &held[at]).collect::<Vec<_>>()))
                .collect();
            panic!("the nodes differ: {differ:#?}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Kills nodes and starts them again, until the time is over; one is away for longer than deletes are remembered.
fn play(copies: &mut [Copy], rng: &mut Rng, until: Instant) {
    let mut rounds = 0;
    while Instant::now() < until || rounds < 2 {
        thread::sleep(Duration::from_millis(rng.u64(200..2500)));
        let copy = &mut copies[rng.usize(0..COPIES)];
        copy.kill();
        thread::sleep(match rounds {
            1 => Duration::from_secs(7),
            _ => Duration::from_millis(rng.u64(0..1200)),
        });
        copy.start();
        rounds += 1;
    }
    println!("{rounds} kills");
}

#[test]
fn at_rest_the_newest_acknowledged_write_of_each_key_is_on_all_copies() {
    run(Tier::Flash);
}

#[cfg(feature = "lmdb")]
#[test]
fn at_rest_the_newest_acknowledged_write_of_each_key_is_on_all_copies_on_lmdb() {
    run(Tier::Lmdb);
}

fn run(tier: Tier) {
    let folder = tempfile::tempdir().expect("a folder");
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("MONETA_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    let until = Instant::now() + Duration::from_secs(number("MONETA_COPIES_SECONDS").unwrap_or(15));
    let copy = |number| Copy { number, tier, folder: folder.path().into(), node: None, readers: Vec::new() };
    let mut copies: Vec<Copy> = (0..COPIES).map(copy).collect();
    copies.iter_mut().for_each(Copy::start);
    let (journal, stop) = (Journal::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (journal, stop) = (&journal, &stop);
        for writer in 0..COPIES * 2 {
            let socket = Copy::socket(folder.path(), writer % COPIES);
            scope.spawn(move || client(&socket, seed.wrapping_add(writer as u64), journal, stop));
        }
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            play(&mut copies, &mut Rng::with_seed(seed), until);
        }));
        stop.store(true, Ordering::Relaxed);
        played.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let held = at_rest(folder.path());
    let known = journal.keys.lock().expect("no panic");
    let (mut present, mut checked) = (0, 0);
    for (key, held) in keys().zip(held) {
        let Some(Known { newest: Some(newest), doubts, deleted }) = known.get(&key) else { continue };
        let deleted_late = deleted.is_some_and(|deleted| deleted + APART > newest.answered);
        if held.len() < 2 {
            assert!(deleted_late, "{key} is gone, and no client deleted it after {newest:?}");
            continue;
        }
        present += 1;
        let version = token(&held[0], 'V').expect("it was asked for");
        assert!(version >= newest.version, "{key} is {held:?}, older than {newest:?}");
        if *doubts == 0 && version == newest.version {
            checked += 1;
            assert!(newest.value.as_ref().is_none_or(|value| *value == held[1]), "{key} is {held:?}, not {newest:?}");
        }
        assert!(*doubts > 0 || version == newest.version, "{key} is {held:?}, which no client wrote after {newest:?}");
    }
    println!(
        "{} writes, {present} keys at rest, {checked} of them without doubt",
        journal.writes.load(Ordering::Relaxed)
    );
    assert!(journal.writes.load(Ordering::Relaxed) > 200 && present > 0, "hardly anything was done");
    for (one, other) in [(0, 1), (1, 2), (2, 0)] {
        let sockets = [one, other].map(|number| Copy::socket(folder.path(), number));
        let compared = output(moneta(&["verify"]).args(sockets).args(["--settle", "0.2", "--timeout", "60"]));
        let report = String::from_utf8_lossy(&compared.stdout);
        assert_eq!(compared.status.code(), Some(0), "nodes {one} and {other}: {report}");
    }
}
