//! What was done to each key, and so what a restart may show of it.

use std::ops::Range;

/// One change of a key.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// Its number among all operations.
    operation: usize,
    /// The version stored; `None`: the key holds nothing from here on.
    version: Option<u32>,
    /// Second at which it dies; `u32::MAX`: never.
    expiry: u32,
}

/// A flush that waited.
#[derive(Clone, Copy, Debug)]
struct Delayed {
    /// The operation that asked for it.
    asked: usize,
    /// What had been done when its moment came.
    came: usize,
}

/// All keys' histories.
#[derive(Debug)]
pub struct History {
    keys: Vec<Vec<Event>>,
    operations: usize,
    delayed: Vec<Delayed>,
}

/// The name of a key.
pub fn name(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// The value of a version: it names its key and version.
pub fn value(number: usize, version: u32) -> Vec<u8> {
    let seed = (number as u64) << 32 | u64::from(version);
    let mut random = fastrand::Rng::with_seed(seed);
    let length = match random.u8(0..100) {
        0..50 => random.usize(0..100),
        50..95 => random.usize(100..5000),
        _ => random.usize(5000..40_000),
    };
    let mut bytes = format!("{number}:{version};").into_bytes();
    bytes.extend((0..length).map(|_| random.u8(..)));
    bytes
}

/// The version that a value is of.
pub fn version_of(number: usize, shown: &[u8]) -> Result<u32, String> {
    let head = shown.split(|byte| *byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(head).map_err(|_| "a value that was never written".to_string())?;
    let version = text.strip_prefix(&format!("{number}:")).and_then(|version| version.parse().ok());
    let version = version.ok_or_else(|| format!("the value of another key, or none: {text:?}"))?;
    if value(number, version) == shown { Ok(version) } else { Err(format!("version {version}, but not all of it")) }
}

impl History {
    /// Of so many keys, that all hold nothing.
    pub fn new(keys: usize) -> Self {
        Self { keys: vec![Vec::new(); keys], operations: 0, delayed: Vec::new() }
    }

    pub fn keys(&self) -> Range<usize> {
        0..self.keys.len()
    }

    /// How many operations there were.
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// The version that a key would get next.
    pub fn next_version(&self, key: usize) -> u32 {
        self.keys[key].iter().filter_map(|event| event.version).max().map_or(0, |version| version + 1)
    }

    /// A key was given a version, or has none from now on.
    pub fn note(&mut self, key: usize, version: Option<u32>, expiry: u32) {
        self.operations += 1;
        self.keys[key].push(Event { operation: self.operations, version, expiry });
    }

    /// The version that a key has now got another time to live.
    pub fn note_touch(&mut self, key: usize, expiry: u32) {
        let version = self.keys[key].last().and_then(|event| event.version);
        self.note(key, version, expiry);
    }

    /// Everything was flushed.
    pub fn note_flush(&mut self) {
        self.operations += 1;
        let event = Event { operation: self.operations, version: None, expiry: u32::MAX };
        self.keys.iter_mut().for_each(|events| events.push(event));
    }

    /// A flush that was asked for by operation `asked` has come.
    pub fn note_delayed_flush(&mut self, asked: usize) {
        self.note_flush();
        self.delayed.push(Delayed { asked, came: self.operations });
    }

    /// Something was asked for that changes no key.
    pub fn note_other(&mut self) -> usize {
        self.operations += 1;
        self.operations
    }

    /// Whether `shown` is what a key may show in the second `now`, when all operations up to `durable` are known to be on
    /// the device and those after it may be. `may_miss`: it may always show nothing. Tells the version it is.
    pub fn check(
        &self,
        key: usize,
        shown: Option<&[u8]>,
        durable: usize,
        now: u32,
        may_miss: bool,
    ) -> Result<Option<u32>, String> {
        let nothing = Event { operation: 0, version: None, expiry: u32::MAX };
        let events = &self.keys[key];
        let newer = events.iter().filter(|event| event.operation > durable);
        let last = events.iter().rfind(|event| event.operation <= durable).unwrap_or(&nothing);
        // A flush that is known to be on the device and whose moment is over takes what was stored before it came.
        let flushed =
            |event: &Event| self.delayed.iter().any(|flush| flush.asked <= durable && event.operation < flush.came);
        let alive = |event: &Event| event.version.filter(|_| event.expiry > now && !flushed(event));
        let allowed: Vec<_> = std::iter::once(last).chain(newer).map(alive).collect();
        let shown = shown.map(|shown| version_of(key, shown)).transpose()?;
        if allowed.contains(&shown) || (shown.is_none() && may_miss) {
            return Ok(shown);
        }
        Err(format!("key {key} shows {shown:?}, but {last:?} is durable, and it may be one of {allowed:?}"))
    }
}
