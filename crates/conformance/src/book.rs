//! What the writer of a load knows of its keys, so that whatever a node serves can be judged: each key has one writer, which
//! notes what it sent and what was acknowledged. Values say which they are, and are compared whole, so that one mixed of two
//! is no value at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::client::{Address, Client};

/// Requests sent in a row before the replies are read.
const BATCH: usize = 16;
/// How often a load does that at least, so that it is one even where its thread hardly runs.
const LEAST_BATCHES: usize = 10;
/// How long a reply may take before it counts as a hang: far more than any answer takes, also on a loaded machine.
pub const REPLY_LIMIT: Duration = Duration::from_secs(20);
/// How often a check asks again for a key that could not be read, and the pause between.
const ATTEMPTS: usize = 400;
const PAUSE: Duration = Duration::from_millis(50);

/// What is known of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// That it was sent: it may be there, or not, or come to be.
    Sent,
    /// That the node took it.
    Acknowledged(Instant),
    /// That it was served after a start.
    Kept,
}

/// What a key held from some moment on.
#[derive(Clone, Copy, Debug)]
struct KeyState {
    /// `None`: nothing.
    version: Option<u32>,
    seen: Seen,
}

/// What a check takes for possible from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newer {
    /// What was found is all there is.
    Gone,
    /// A tier that was not asked may have something newer.
    MayLive,
}

/// How a load is made up.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Keys of a writer.
    pub keys: usize,
    /// Values are shorter than this, in bytes, but for one in 64.
    pub usual: usize,
    /// Those are shorter than this.
    pub longest: usize,
    /// Whether requests may be refused; without it a refusal fails the test.
    pub may_fail: bool,
}

/// How many replies there were of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes that were acknowledged.
    pub acknowledged: usize,
    /// Reads that were answered, with a value or without.
    pub read: usize,
    /// Requests that were refused.
    pub refused: usize,
}

/// One writer's keys.
#[derive(Debug)]
pub struct Book {
    writer: usize,
    shape: Shape,
    keys: Vec<Vec<KeyState>>,
    next_version: u32,
    rng: fastrand::Rng,
    /// What was answered so far.
    pub tally: Tally,
}

/// What one request was, to know its reply by.
enum AskedOfKey {
    Write { key: usize, state: usize },
    Read { key: usize, newest: usize },
}

/// The reply to a read of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value, if there is one.
    Found(Option<Vec<u8>>),
    /// An error, as the server worded it.
    Refused(String),
}

impl Book {
    /// A book of nothing, for a writer of this number.
    pub fn new(writer: usize, seed: u64, shape: Shape) -> Self {
        let nothing = KeyState { version: None, seen: Seen::Kept };
        let rng = fastrand::Rng::with_seed(seed.wrapping_add(writer as u64));
        Self { writer, shape, keys: vec![vec![nothing]; shape.keys], next_version: 1, rng, tally: Tally::default() }
    }

    /// What a key is called.
    pub fn name(&self, key: usize) -> String {
        format!("{}:{key}", self.writer)
    }

    fn value(&self, key: usize, version: u32) -> Vec<u8> {
        let mut value = format!("{}:{key}:{version}:", self.writer).into_bytes();
        let mut random = fastrand::Rng::with_seed(u64::from(version));
        let limit = if random.u8(..64) == 0 { self.shape.longest } else { self.shape.usual };
        value.extend((0..random.usize(0..limit)).map(|_| random.u8(..)));
        value
    }

    /// Writes and reads as fast as the node answers, until it is `over`, but for a few requests at least.
    ///
    /// # Errors
    /// When the connection breaks, or a reply takes longer than [`REPLY_LIMIT`].
    ///
    /// # Panics
    /// When a reply is wrong: something that was never written, or is older than what was acknowledged.
    pub fn load(&mut self, address: &Address, over: &AtomicBool) -> Result<()> {
        let mut client = Client::connect(address)?;
        client.set_read_limit(REPLY_LIMIT);
        let mut batches = 0;
        while batches < LEAST_BATCHES || !over.load(Ordering::Relaxed) {
            batches += 1;
            let (bytes, asked) = self.batch();
            client.send(&bytes)?;
            for one in asked {
                self.reply(&mut client, one)?;
            }
        }
        Ok(())
    }

    fn batch(&mut self) -> (Vec<u8>, Vec<AskedOfKey>) {
        let (mut bytes, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..BATCH {
            let key = self.rng.usize(0..self.shape.keys);
            let name = self.name(key);
            let version = match self.rng.u8(0..10) {
                0 => None,
                1 | 2 => {
                    bytes.extend(read_request(&name));
                    asked.push(AskedOfKey::Read { key, newest: self.keys[key].len() - 1 });
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
            asked.push(AskedOfKey::Write { key, state: self.keys[key].len() });
            self.keys[key].push(KeyState { version, seen: Seen::Sent });
        }
        (bytes, asked)
    }

    fn reply(&mut self, client: &mut Client, asked: AskedOfKey) -> Result<()> {
        match asked {
            AskedOfKey::Write { key, state } => match client.line()?.as_str() {
                "STORED" | "DELETED" | "NOT_FOUND" => {
                    self.keys[key][state].seen = Seen::Acknowledged(Instant::now());
                    self.tally.acknowledged += 1;
                }
                refusal => self.refused("a write", refusal),
            },
            // Replies come in order: what was sent before and not acknowledged by now was refused, and may be there or not.
            AskedOfKey::Read { key, newest } => match read_answer(client)? {
                Answer::Found(found) => {
                    let oldest = self.oldest(key, newest, |seen| *seen != Seen::Sent);
                    assert!(self.find(key, oldest, newest, &found).is_some(), "{}", self.wrong(key, oldest, &found));
                    self.tally.read += 1;
                }
                Answer::Refused(refusal) => self.refused("a read", &refusal),
            },
        }
        Ok(())
    }

    fn refused(&mut self, what: &str, refusal: &str) {
        assert!(refusal.starts_with("SERVER_ERROR"), "{what} was answered with {refusal:?}");
        assert!(self.shape.may_fail, "{what} was refused: {refusal}");
        self.tally.refused += 1;
    }

    /// Reads all keys: each holds something it was given, and nothing older than what `had_to_be_kept`. From then on that is
    /// what is known.
    ///
    /// # Errors
    /// When a key holds anything else, or cannot be read for long.
    pub fn check(&mut self, client: &mut Client, newer: Newer, had_to_be_kept: impl Fn(&Seen) -> bool) -> Result<()> {
        for key in 0..self.shape.keys {
            let found = self.read(client, key)?;
            let newest = self.keys[key].len() - 1;
            let oldest = self.oldest(key, newest, &had_to_be_kept);
            let place = self.find(key, oldest, newest, &found).with_context(|| self.wrong(key, oldest, &found))?;
            let states = &mut self.keys[key];
            match newer {
                Newer::Gone => states.truncate(place + 1),
                Newer::MayLive => states[place + 1..].iter_mut().for_each(|state| state.seen = Seen::Sent),
            }
            states.drain(..place);
            states[0].seen = Seen::Kept;
        }
        Ok(())
    }

    fn read(&self, client: &mut Client, key: usize) -> Result<Option<Vec<u8>>> {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            client.send(&read_request(&self.name(key)))?;
            match read_answer(client)? {
                Answer::Found(found) => return Ok(found),
                Answer::Refused(refusal) => {
                    ensure!(self.shape.may_fail, "key {} cannot be read: {refusal}", self.name(key));
                    last = refusal;
                    sleep(PAUSE);
                }
            }
        }
        bail!("key {} cannot be read: {last}", self.name(key))
    }

    /// Where the last state is, up to `newest`, that has to be there if nothing newer is.
    fn oldest(&self, key: usize, newest: usize, has_to_be_there: impl Fn(&Seen) -> bool) -> usize {
        self.keys[key][..=newest].iter().rposition(|state| has_to_be_there(&state.seen)).unwrap_or(0)
    }

    fn find(&self, key: usize, oldest: usize, newest: usize, found: &Option<Vec<u8>>) -> Option<usize> {
        let fits = |state: &KeyState| state.version.map(|version| self.value(key, version)) == *found;
        self.keys[key][oldest..=newest].iter().rposition(fits).map(|place| oldest + place)
    }

    fn wrong(&self, key: usize, oldest: usize, found: &Option<Vec<u8>>) -> String {
        let head = found.as_ref().map(|value| String::from_utf8_lossy(&value[..value.len().min(20)]).into_owned());
        let (before, states) = self.keys[key].split_at(oldest);
        let before = &before[before.len().saturating_sub(3)..];
        format!("key {} holds {head:?}, but had {before:?} and then is one of {states:?}", self.name(key))
    }
}

/// Asks for the value of a key. By a meta command, as a classic `get` tells a failure as a miss.
pub fn read_request(key: &str) -> Vec<u8> {
    format!("mg {key} v\r\n").into_bytes()
}

/// The reply to a [`read_request`].
pub fn read_answer(client: &mut Client) -> Result<Answer> {
    let head = client.line()?;
    if head == "EN" {
        return Ok(Answer::Found(None));
    }
    let Some(length) = head.strip_prefix("VA ") else { return Ok(Answer::Refused(head)) };
    let value = client.bytes(length.parse()?)?;
    let end = client.bytes(2)?;
    ensure!(end == b"\r\n", "after the value came {end:?}");
    Ok(Answer::Found(Some(value)))
}
