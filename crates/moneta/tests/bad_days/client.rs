//! A client that keeps a journal: what each key may hold by what was acknowledged, and how long each request took.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::connect;

/// One command at a time on one connection.
pub struct Client {
    stream: TcpStream,
    /// By key: the last value that was acknowledged, and those of later writes whose outcome is unknown.
    journal: BTreeMap<String, Vec<String>>,
    /// How long each request took since these were taken last.
    took: Vec<Duration>,
    writes: usize,
    /// The key whose last write had no answer.
    unanswered: Option<String>,
}

impl Client {
    pub fn of(address: SocketAddr) -> Self {
        Self { stream: connect(address), journal: BTreeMap::new(), took: Vec::new(), writes: 0, unanswered: None }
    }

    /// Goes on with its journal on another connection.
    pub fn move_to(&mut self, address: SocketAddr) {
        self.stream = connect(address);
    }

    /// Sends a command, and `mn` after it; what comes before the answer to that. The error: the connection has ended.
    pub fn try_ask(&mut self, command: &str) -> std::io::Result<String> {
        let began = Instant::now();
        self.stream.write_all(format!("{command}\r\nmn\r\n").as_bytes())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 16 << 10]);
        while !answer.ends_with(b"MN\r\n") {
            match self.stream.read(&mut buffer)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => answer.extend_from_slice(&buffer[..count]),
            }
        }
        self.took.push(began.elapsed());
        answer.truncate(answer.len() - 4);
        Ok(String::from_utf8(answer).expect("text"))
    }

    pub fn ask(&mut self, command: &str) -> String {
        self.try_ask(command).expect("the proxy answers")
    }

    /// Sets a key to a value that no write had before. True: it was acknowledged.
    pub fn set(&mut self, key: &str) -> bool {
        self.writes += 1;
        let value = format!("{key}-{}", self.writes);
        // Unknown until its answer is there.
        self.journal.entry(key.into()).or_default().push(value.clone());
        let answer = self.try_ask(&format!("set {key} 0 0 {}\r\n{value}", value.len()));
        if answer.is_err() {
            self.unanswered = Some(key.to_owned());
        } else if self.unanswered.as_deref() == Some(key) {
            self.unanswered = None;
        }
        let stored = answer.as_deref().is_ok_and(|answer| answer == "STORED\r\n");
        if stored {
            self.journal.insert(key.into(), vec![value]);
        } else if let Ok(answer) = answer {
            assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
        }
        stored
    }

    /// Reads a key, which must hold what the journal says. True: it was answered, and not with an error.
    pub fn check(&mut self, key: &str) -> bool {
        let answer = self.ask(&format!("get {key}"));
        if answer.starts_with("SERVER_ERROR") {
            return false;
        }
        assert!(self.fits(key, &answer), "{key} shows {answer:?}, not one of {:?}", self.journal.get(key));
        true
    }

    /// Whether the answer to a `get` is what the journal says.
    pub fn fits(&self, key: &str, answer: &str) -> bool {
        let held = answer.strip_prefix(&format!("VALUE {key} 0 ")).and_then(|rest| rest.split("\r\n").nth(1));
        self.journal.get(key).is_some_and(|values| held.is_some_and(|held| values.iter().any(|value| value == held)))
    }

    pub fn keys(&self) -> Vec<String> {
        self.journal.keys().cloned().collect()
    }

    /// Sets and reads each key once; how many of the writes and of the reads succeeded.
    pub fn round(&mut self, keys: std::ops::Range<usize>) -> (usize, usize) {
        let (mut stored, mut read) = (0, 0);
        for key in keys {
            let key = format!("key{key}");
            stored += usize::from(self.set(&key));
            read += usize::from(self.check(&key));
        }
        (stored, read)
    }

    /// The longest request since this was asked last, and how many took longer than `long`.
    pub fn slowest(&mut self, long: Duration) -> (Duration, usize) {
        let took = std::mem::take(&mut self.took);
        let over = took.iter().filter(|took| **took > long).count();
        (took.into_iter().max().unwrap_or_default(), over)
    }
}

impl Client {
    /// Whether a write of this key has no known outcome.
    pub fn is_unknown(&self, key: &str) -> bool {
        self.journal.get(key).is_some_and(|values| values.len() > 1 || self.unanswered.as_deref() == Some(key))
    }
}

impl Client {
    /// Takes over what another client's journal says of a key.
    pub fn learn(&mut self, other: &Self, key: &str) {
        let values = other.journal.get(key).expect("it was written").clone();
        self.journal.insert(key.into(), values);
    }
}
