//! A node with an SSD tier, killed again and again under full load: what it serves after each start was written for that
//! key, and is not older than what the node had promised to keep.
//!
//! Each key has one writer, which knows what it wrote and what was acknowledged when. What a start served once is on the
//! device: no later one may serve anything older.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use moneta_conformance::client::{Address, Client};
use moneta_conformance::server::Server;

const WRITERS: usize = 3;
/// Few, so that each is overwritten long before its record is the oldest on the device: nothing is evicted.
const KEYS: usize = 700;
const BATCH: usize = 16;
/// How long a write may wait in RAM.
const INTERVAL: Duration = Duration::from_millis(100);
/// How much longer a machine that is busy may take to have it written.
const SLACK: Duration = Duration::from_secs(3);

/// What a key held from some moment on.
#[derive(Clone, Copy, Debug)]
struct State {
    /// `None`: nothing.
    version: Option<u32>,
    seen: Seen,
}

/// What the node has said of a state.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// Nothing yet.
    Sent,
    /// That it took it.
    Acknowledged(Instant),
    /// It served it after a start.
    Kept,
}

/// One writer's keys.
struct Book {
    writer: usize,
    keys: Vec<Vec<State>>,
    next_version: u32,
    rng: fastrand::Rng,
}

/// What one request was, to know its reply by.
enum Asked {
    Write { key: usize, state: usize },
    Read { key: usize, version: Option<u32> },
}

impl Book {
    fn new(writer: usize, seed: u64) -> Self {
        let nothing = State { version: None, seen: Seen::Kept };
        let rng = fastrand::Rng::with_seed(seed + writer as u64);
        Self { writer, keys: vec![vec![nothing]; KEYS], next_version: 1, rng }
    }

    fn name(&self, key: usize) -> String {
        format!("{}:{key}", self.writer)
    }

    fn value(&self, key: usize, version: u32) -> Vec<u8> {
        let mut value = format!("{}:{key}:{version}:", self.writer).into_bytes();
        let mut random = fastrand::Rng::with_seed(u64::from(version));
        value.extend((0..random.usize(0..2500)).map(|_| random.u8(..)));
        value
    }

    /// Writes and reads as fast as the node answers, until the connection breaks.
    fn load(&mut self, address: &Address) -> Result<()> {
        let mut client = Client::connect(address)?;
        loop {
            let (bytes, asked) = self.batch();
            client.send(&bytes)?;
            for one in asked {
                self.reply(&mut client, one)?;
            }
        }
    }

    fn batch(&mut self) -> (Vec<u8>, Vec<Asked>) {
        let (mut bytes, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..BATCH {
            let key = self.rng.usize(0..KEYS);
            let name = self.name(key);
            let last = self.keys[key].last().and_then(|state| state.version);
            let version = match self.rng.u8(0..10) {
                0 => None,
                1 => {
                    bytes.extend(format!("get {name}\r\n").bytes());
                    asked.push(Asked::Read { key, version: last });
                    continue;
                }
                _ => Some(self.next_version),
            };
            match version {
                None => bytes.extend(format!("delete {name}\r\n").bytes()),
                Some(version) => {
                    self.next_version += 1;
                    let value = self.value(key, version);
                    bytes.extend(format!("set {name} 0 0 {}\r\n", value.len()).bytes());
                    bytes.extend(value);
                    bytes.extend(b"\r\n");
                }
            }
            asked.push(Asked::Write { key, state: self.keys[key].len() });
            self.keys[key].push(State { version, seen: Seen::Sent });
        }
        (bytes, asked)
    }

    fn reply(&mut self, client: &mut Client, asked: Asked) -> Result<()> {
        match asked {
            Asked::Write { key, state } => {
                let line = client.line()?;
                assert!(
                    ["STORED", "DELETED", "NOT_FOUND"].contains(&line.as_str()),
                    "a write was answered with {line:?}"
                );
                self.keys[key][state].seen = Seen::Acknowledged(Instant::now());
            }
            Asked::Read { key, version } => {
                let expected = version.map(|version| self.value(key, version));
                let found = read_value(client)?;
                assert!(found == expected, "key {} does not hold version {version:?}", self.name(key));
            }
        }
        Ok(())
    }

    /// Reads all keys after a start: each holds something it was given, and nothing older than what had to be kept.
    fn check(&mut self, client: &mut Client, had_to_be_kept: impl Fn(&Seen) -> bool) -> Result<()> {
        for key in 0..KEYS {
            client.send(format!("get {}\r\n", self.name(key)).as_bytes())?;
            let found = read_value(client)?;
            let states = &self.keys[key];
            let kept = states.iter().rposition(|state| had_to_be_kept(&state.seen)).unwrap_or(0);
            let fits = |state: &&State| state.version.map(|version| self.value(key, version)) == found;
            let state = states[kept..].iter().rfind(fits).copied();
            let head = found.as_ref().map(|value| String::from_utf8_lossy(&value[..value.len().min(20)]).into_owned());
            let state = state.with_context(|| {
                format!("key {} holds {head:?}, but is one of {:?}", self.name(key), &states[kept..])
            })?;
            self.keys[key] = vec![State { seen: Seen::Kept, ..state }];
        }
        Ok(())
    }
}

/// The reply to a `get` of one key.
fn read_value(client: &mut Client) -> Result<Option<Vec<u8>>> {
    let head = client.line()?;
    if head == "END" {
        return Ok(None);
    }
    let length: usize = head.split(' ').nth(3).with_context(|| format!("odd reply {head:?}"))?.parse()?;
    let value = client.bytes(length)?;
    let end = client.bytes("\r\nEND\r\n".len())?;
    ensure!(end == b"\r\nEND\r\n", "after the value came {end:?}");
    Ok(Some(value))
}

fn start(folder: &Path, durability: &str) -> Result<Server> {
    let device = format!("{}:256m", folder.display());
    let interval = format!("{}ms", INTERVAL.as_millis());
    Server::start_moneta(|port| {
        let port = port.to_string();
        let line: [&str; 21] = [
            "serve",
            "-p",
            &port,
            "-l",
            "127.0.0.1",
            "--admin",
            "off",
            "-m",
            "64",
            "-t",
            "2",
            "-I",
            "64k",
            "--flash",
            &device,
            "--flash-region-size",
            "1m",
            "--flash-flush-interval",
            &interval,
            "--flash-durability",
            durability,
        ];
        line.into_iter().map(OsString::from).collect()
    })
}

fn kill_again_and_again(times: usize, durability: &str, had_to_be_kept: impl Fn(&Seen, Instant) -> bool) -> Result<()> {
    let seed = fastrand::u64(0..1 << 40);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir()?;
    let mut books: Vec<Book> = (0..WRITERS).map(|writer| Book::new(writer, seed)).collect();
    for round in 0..times {
        let mut server = start(folder.path(), durability)?;
        let killed = AtomicBool::new(false);
        let address = server.address().clone();
        let killed_at = std::thread::scope(|scope| {
            for book in &mut books {
                let (address, killed) = (&address, &killed);
                scope.spawn(move || {
                    let ended = book.load(address).expect_err("the load goes on until the node ends");
                    assert!(killed.load(Ordering::Acquire), "a connection broke by itself: {ended:#}");
                });
            }
            sleep(Duration::from_millis(rng.u64(100..900)));
            killed.store(true, Ordering::Release);
            let killed_at = Instant::now();
            server.stop_by_signal(libc::SIGKILL).map(|_| killed_at)
        })?;
        drop(server);
        let server = start(folder.path(), durability)?;
        let mut client = server.connect()?;
        for book in &mut books {
            book.check(&mut client, |seen| had_to_be_kept(seen, killed_at))
                .with_context(|| format!("round {round}"))?;
        }
        // The next round's start is after another kill, of a node that only read.
    }
    Ok(())
}

#[test]
fn a_node_that_is_killed_keeps_all_but_the_last_interval() -> Result<()> {
    kill_again_and_again(20, "interval", |seen, killed_at| match seen {
        Seen::Sent => false,
        Seen::Acknowledged(moment) => killed_at.saturating_duration_since(*moment) > INTERVAL + SLACK,
        Seen::Kept => true,
    })
}

#[test]
fn a_node_that_writes_before_it_answers_keeps_everything_it_acknowledged() -> Result<()> {
    kill_again_and_again(8, "every-write", |seen, _| !matches!(seen, Seen::Sent))
}
