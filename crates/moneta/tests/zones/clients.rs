//! Clients in two zones: each writes a range of keys and journals what was acknowledged, so it knows what a read may show.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::network::Network;

/// Clients in each zone.
const CLIENTS: usize = 2;
/// Keys of each client.
const KEYS: usize = 1500;
/// Counters of each client.
const COUNTERS: usize = 50;
/// Between two operations of a client.
const PAUSE: Duration = Duration::from_micros(1500);
/// How long a write may take to be seen through another proxy.
const LATE: Duration = Duration::from_secs(1);
/// The longest that a client waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// One operation, as its client saw it.
#[derive(Clone, Copy)]
pub struct Sample {
    pub at: Instant,
    pub took: Duration,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Hit,
    /// Of a key that was stored and not deleted.
    Miss,
    Written,
    Error,
    /// A read showed what had been replaced.
    Old,
    /// A read of another client's key showed what was replaced, and acknowledged to that one, more than [`LATE`] before.
    Late,
}

/// What a key may hold: what was acknowledged last, or what was sent since then and has an outcome that is not known. `None`:
/// nothing.
#[derive(Clone, Debug)]
pub struct Known {
    pub key: String,
    pub may: Vec<Option<String>>,
}

/// All that clients saw.
pub struct Seen {
    pub began: Instant,
    pub samples: Vec<Sample>,
    pub journal: Vec<Known>,
    /// Old values, in words.
    pub told: Vec<String>,
}

pub struct Clients {
    began: Instant,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Client>>,
}

impl Clients {
    /// `proxies`: zones, and where their proxies serve.
    pub fn start(network: &Network, proxies: &[(&'static str, String)]) -> Self {
        let (began, over) = (Instant::now(), Arc::<AtomicBool>::default());
        let of_zone = |zone: &&str| (0..CLIENTS).map(|number| format!("{zone}{number}")).collect::<Vec<_>>();
        let names: Vec<String> = proxies.iter().flat_map(|(zone, _)| of_zone(zone)).collect();
        let recent = || Arc::new((0..KEYS).map(|_| Recent::default()).collect::<Vec<_>>());
        let all: Vec<(String, Arc<Vec<Recent>>)> = names.into_iter().map(|name| (name, recent())).collect();
        let mut threads = Vec::new();
        std::thread::scope(|scope| {
            let mut starting = Vec::new();
            for (zone, address) in proxies {
                for number in 0..CLIENTS {
                    let (over, address, name) = (Arc::clone(&over), address.clone(), format!("{zone}{number}"));
                    let (own, others) = all.iter().cloned().partition::<Vec<_>, _>(|(other, _)| *other == name);
                    // The thread that starts a client is in its zone, and so the client is.
                    starting.push(scope.spawn(move || {
                        network.enter(zone);
                        let client = Client::new(name, address, Arc::clone(&own[0].1), others);
                        std::thread::spawn(move || client.run(&over))
                    }));
                }
            }
            threads.extend(starting.into_iter().map(|thread| thread.join().expect("a client starts")));
        });
        Self { began, over, threads }
    }

    pub fn stop(self) -> Seen {
        self.over.store(true, Ordering::Relaxed);
        let clients: Vec<Client> = self.threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        let (mut samples, mut journal, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for client in clients {
            samples.extend(client.samples);
            journal.extend(client.known);
            told.extend(client.told);
        }
        Seen { began: self.began, samples, journal, told }
    }
}

/// The numbers of a key's last acknowledged writes, and when they were. All clients see it.
type Recent = Mutex<VecDeque<(Instant, u64)>>;

struct Client {
    name: String,
    own: Arc<Vec<Recent>>,
    /// The other clients, and what they wrote.
    others: Vec<(String, Arc<Vec<Recent>>)>,
    address: String,
    connection: Option<BufReader<TcpStream>>,
    known: Vec<Known>,
    samples: Vec<Sample>,
    told: Vec<String>,
    rng: fastrand::Rng,
    written: u64,
}

impl Client {
    fn new(name: String, address: String, own: Arc<Vec<Recent>>, others: Vec<(String, Arc<Vec<Recent>>)>) -> Self {
        let key = |number| Known { key: format!("{name}:{number}"), may: vec![None] };
        let known = (0..KEYS + COUNTERS).map(key).collect();
        let rng = fastrand::Rng::with_seed(name.bytes().map(u64::from).sum());
        Self {
            name,
            address,
            own,
            others,
            connection: None,
            known,
            samples: Vec::new(),
            told: Vec::new(),
            rng,
            written: 0,
        }
    }

    fn run(mut self, over: &AtomicBool) -> Self {
        for number in 0..KEYS {
            self.set(number);
        }
        while !over.load(Ordering::Relaxed) {
            let (number, counter) = (self.rng.usize(..KEYS), KEYS + self.rng.usize(..COUNTERS));
            match self.rng.u32(..100) {
                0..55 => self.get(number),
                55..75 => self.get_of_another(number),
                75..93 => self.set(number),
                93..95 => self.delete(number),
                _ => self.count(counter),
            }
            std::thread::sleep(PAUSE);
        }
        self
    }

    /// The answer to a request: its first line, and the value after it.
    fn ask(&mut self, request: &str) -> std::io::Result<(String, String)> {
        if self.connection.is_none() {
            let stream = TcpStream::connect_timeout(&self.address.parse().expect("an address"), PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            self.connection = Some(BufReader::new(stream));
        }
        let connection = self.connection.as_mut().expect("it was made");
        connection.get_mut().write_all(request.as_bytes())?;
        let (mut line, mut value) = (String::new(), String::new());
        connection.read_line(&mut line)?;
        if let Some(length) = line.strip_prefix("VALUE ").and_then(|rest| rest.trim().rsplit(' ').next()) {
            let length: usize = length.parse().map_err(std::io::Error::other)?;
            let mut bytes = vec![0; length + 2];
            connection.read_exact(&mut bytes)?;
            bytes.truncate(length);
            value = String::from_utf8(bytes).map_err(std::io::Error::other)?;
            connection.read_line(&mut String::new())?;
        }
        if line.is_empty() {
            Err(std::io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok((line.trim().to_owned(), value))
        }
    }

    /// Asks, and judges the answer.
    fn timed(&mut self, request: &str, judge: impl FnOnce(&mut Self, Option<(String, String)>) -> End) {
        let at = Instant::now();
        let answer = self.ask(request);
        let took = at.elapsed();
        if answer.is_err() {
            self.connection = None;
        }
        let end = judge(self, answer.ok());
        self.samples.push(Sample { at, took, end });
    }

    fn get(&mut self, number: usize) {
        let key = self.known[number].key.clone();
        self.timed(&format!("get {key}\r\n"), |client, answer| {
            let may = &client.known[number].may;
            match answer {
                Some((line, value)) if line.starts_with("VALUE") => {
                    if may.iter().any(|may| may.as_ref() == Some(&value)) {
                        return End::Hit;
                    }
                    client.told.push(format!("{:?}: {key} shows {value}, and may hold {may:?}", at_now()));
                    End::Old
                }
                Some((line, _)) if line == "END" => {
                    if may.contains(&None) {
                        End::Hit
                    } else {
                        End::Miss
                    }
                }
                _ => End::Error,
            }
        });
    }

    /// Reads what another client has written, in this zone or the other.
    fn get_of_another(&mut self, number: usize) {
        let (name, recent) = self.others[self.rng.usize(..self.others.len())].clone();
        let before = Instant::now();
        self.timed(&format!("get {name}:{number}\r\n"), |client, answer| match answer {
            Some((line, value)) if line.starts_with("VALUE") => {
                let shown = number_of(&value);
                let recent = recent[number].lock().expect("no panic");
                let settled = recent.iter().filter(|(at, _)| *at + LATE < before).map(|(_, number)| *number).max();
                if settled.is_none_or(|settled| shown >= settled) {
                    return End::Hit;
                }
                client.told.push(format!("{:?}: {name}:{number} shows {value}, and held {settled:?}", at_now()));
                End::Late
            }
            Some((line, _)) if line == "END" => End::Hit,
            _ => End::Error,
        });
    }

    /// What a write leaves, by its answer: `done` if it was taken.
    fn wrote(&mut self, number: usize, value: Option<String>, done: Option<bool>) -> End {
        let may = &mut self.known[number].may;
        match done {
            Some(true) => {
                *may = vec![value];
                End::Written
            }
            _ => {
                may.push(value);
                End::Error
            }
        }
    }

    fn set(&mut self, number: usize) {
        self.written += 1;
        let (key, value) = (self.known[number].key.clone(), format!("{}-{}", self.name, self.written));
        self.timed(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()), |client, answer| {
            let done = answer.map(|(line, _)| line == "STORED");
            if done == Some(true) {
                let mut recent = client.own[number].lock().expect("no panic");
                recent.push_back((Instant::now(), client.written));
                if recent.len() > 16 {
                    recent.pop_front();
                }
            }
            client.wrote(number, Some(value), done)
        });
    }

    fn delete(&mut self, number: usize) {
        let key = self.known[number].key.clone();
        self.timed(&format!("delete {key}\r\n"), |client, answer| {
            let done = answer.map(|(line, _)| line == "DELETED" || line == "NOT_FOUND");
            client.wrote(number, None, done)
        });
    }

    /// Adds one to a counter that no other client has.
    fn count(&mut self, number: usize) {
        let key = self.known[number].key.clone();
        self.timed(&format!("ma {key} N0 J1 v\r\n"), |client, answer| {
            let Some((line, _)) = answer.filter(|(line, _)| line.starts_with("VA ")) else {
                let may = &mut client.known[number].may;
                let most = may.iter().flatten().filter_map(|may| may.parse::<u64>().ok()).max().unwrap_or(0);
                may.push(Some((most + 1).to_string()));
                return End::Error;
            };
            let mut value = String::new();
            let read = client.connection.as_mut().map(|connection| connection.read_line(&mut value));
            let (Some(Ok(_)), Ok(value)) = (read, value.trim().parse::<u64>()) else {
                client.connection = None;
                client.told.push(format!("{key}: no number behind {line}"));
                return End::Error;
            };
            let may = &mut client.known[number].may;
            let is_next =
                may.iter().any(|may| value == may.as_ref().map_or(1, |may| may.parse::<u64>().unwrap_or(0) + 1));
            if !is_next {
                client.told.push(format!("{:?}: {key} counts to {value}, and held {may:?}", at_now()));
            }
            *may = vec![Some(value.to_string())];
            if is_next { End::Written } else { End::Old }
        });
    }
}

/// The number of the write that a value is of.
fn number_of(value: &str) -> u64 {
    value.rsplit('-').next().and_then(|number| number.parse().ok()).expect("a value of these clients")
}

/// The second of the hour, to find the moment in logs.
fn at_now() -> Duration {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(0) % 3_600_000)
}
