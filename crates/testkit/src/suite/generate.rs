//! Random sequences: few keys so that operations meet, and every option often enough that they combine.

use fastrand::Rng;
use moneta_store::request::{Arithmetic, Create, Delete, Exptime, KEY_MAX, Retrieve, Write, WriteMode};

use super::cas_book::EXPLICIT;
use super::operation::{CasChoice, Operation, Payload};
use super::options::{Mode, Options, START};

/// What a seed unfolds into.
pub(super) struct Sequence {
    /// The keys that operations name by number.
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) operations: Vec<Operation>,
}

/// Values that `incr` and `decr` find interesting.
const TEXTS: [&str; 16] = [
    "",
    "0",
    "1",
    "9",
    "10",
    "99",
    "100",
    "007",
    "5  ",
    "5 abc",
    "abc",
    "5a",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999",
];

/// Unfolds `seed`.
pub(super) fn sequence(options: Options, seed: u64) -> Sequence {
    let mut generator = Generator::new(options, seed);
    let asked = std::iter::repeat_with(|| generator.operation()).filter(|operation| (options.asks)(operation));
    let operations = asked.take(options.operations).collect();
    let key = if options.plain_keys { plain_key } else { key };
    Sequence { keys: (0..generator.keys).map(key).collect(), operations }
}

/// A key of printable ASCII, short or as long as can be.
fn plain_key(number: usize) -> Vec<u8> {
    if number.is_multiple_of(4) { format!("{number:a>KEY_MAX$}") } else { format!("key:{number}") }.into_bytes()
}

/// The key of a number: short and long, text and any bytes, down to one byte and up to 250.
fn key(number: usize) -> Vec<u8> {
    match number % 4 {
        0 => format!("key:{number}").into_bytes(),
        1 => [&b"\xff\0\r\n "[..], &(number as u64).to_le_bytes()].concat(),
        2 => format!("{number:a>KEY_MAX$}").into_bytes(),
        _ if number < 256 => vec![number as u8],
        _ => (number as u32).to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect(),
    }
}

struct Generator {
    rng: Rng,
    mode: Mode,
    keys: usize,
    value_max: usize,
    restarts: bool,
    real_time: bool,
    /// Most bytes of an ordinary value in this sequence.
    ordinary: usize,
}

impl Generator {
    fn new(options: Options, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let most = options.keys.max(1);
        let (keys, ordinary) = match options.mode {
            Mode::Exact => (rng.choice([1, 4, 20, most]), rng.choice([16, 2 << 10, 40 << 10])),
            Mode::Lossy => (rng.choice([most / 4, most]), rng.choice([40 << 10, 64 << 10])),
        };
        Self {
            mode: options.mode,
            keys: keys.unwrap_or(most).clamp(1, most),
            value_max: options.config.value_max,
            restarts: options.restarts,
            real_time: options.real_time,
            ordinary: ordinary.unwrap_or(16).min(options.config.value_max),
            rng,
        }
    }

    /// True `percent` times in a hundred.
    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(0..100) < percent
    }

    fn sometimes<T>(&mut self, percent: u8, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.chance(percent).then(|| make(self))
    }

    fn key(&mut self) -> usize {
        self.rng.usize(0..self.keys)
    }

    fn operation(&mut self) -> Operation {
        match self.rng.u16(0..1000) {
            0..5 if self.restarts => Operation::Restart { kill: self.rng.bool() },
            0..400 => Operation::Get { key: self.key(), request: self.retrieve() },
            400..700 => self.set(),
            700..780 => self.delete(),
            780..890 => self.arithmetic(),
            890..900 => Operation::Peek { key: self.key() },
            900..905 => Operation::Prefetch { keys: (0..self.rng.usize(0..8)).map(|_| self.key()).collect() },
            // Memory gets short only where things stay: few flushes and, below, few expiries.
            905..908 if self.mode == Mode::Lossy && !self.chance(10) => self.set(),
            905..908 => Operation::Flush { delay: self.flush_delay() },
            908..950 if self.real_time => self.set(),
            908..950 => Operation::Advance { seconds: self.passing_seconds() },
            950..990 => Operation::WalkOn,
            990..996 => Operation::WalkAll,
            _ if self.mode == Mode::Lossy => Operation::Resize { percent: self.rng.u64(50..=100) },
            _ => Operation::WalkAll,
        }
    }

    fn retrieve(&mut self) -> Retrieve {
        let vivify = self.sometimes(8, Self::exptime);
        Retrieve {
            touch: self.sometimes(12, Self::exptime),
            vivify,
            recache: self.sometimes(15, Self::exptime),
            new_cas: if vivify.is_some() { self.sometimes(30, Self::explicit_cas) } else { None },
            bump: !self.chance(20),
            claim: self.chance(50),
            brief: false,
        }
    }

    fn set(&mut self) -> Operation {
        let mode = match self.rng.u8(0..100) {
            _ if self.mode == Mode::Lossy && self.chance(40) => WriteMode::Set,
            0..50 => WriteMode::Set,
            50..62 => WriteMode::Add,
            62..72 => WriteMode::Replace,
            72..86 => WriteMode::Append,
            _ => WriteMode::Prepend,
        };
        let compare = self.sometimes(25, Self::cas_choice);
        let request = Write {
            mode,
            flags: self.flags(),
            exptime: self.exptime(),
            compare: None,
            new_cas: self.sometimes(8, Self::explicit_cas),
            invalidate: self.chance(if compare.is_some() { 40 } else { 3 }),
            vivify: self.sometimes(25, Self::exptime),
        };
        Operation::Set { key: self.key(), value: self.payload(), request, compare }
    }

    fn delete(&mut self) -> Operation {
        let request = Delete {
            compare: None,
            new_cas: self.sometimes(10, Self::explicit_cas),
            invalidate: self.chance(40),
            touch: self.sometimes(30, Self::exptime),
            drop_value: self.chance(15),
        };
        Operation::Delete { key: self.key(), request, compare: self.sometimes(20, Self::cas_choice) }
    }

    fn arithmetic(&mut self) -> Operation {
        let request = Arithmetic {
            delta: self.number(),
            decrement: self.chance(45),
            create: self.sometimes(40, |this| Create { initial: this.number(), exptime: this.exptime() }),
            touch: self.sometimes(15, Self::exptime),
            compare: None,
            new_cas: self.sometimes(8, Self::explicit_cas),
        };
        Operation::Arithmetic { key: self.key(), request, compare: self.sometimes(15, Self::cas_choice) }
    }

    fn number(&mut self) -> u64 {
        match self.rng.u8(0..10) {
            0..5 => self.rng.u64(0..3),
            5..8 => self.rng.u64(0..1000),
            8 => self.rng.u64(..),
            _ => u64::MAX,
        }
    }

    fn flags(&mut self) -> u32 {
        match self.rng.u8(0..4) {
            0 | 1 => 0,
            2 => self.rng.u32(1..100),
            _ => self.rng.choice([u32::MAX, 1 << 31, 1 << 16]).unwrap_or(0),
        }
    }

    fn payload(&mut self) -> Payload {
        let length = match self.rng.u8(0..100) {
            0..30 => {
                let text = self.rng.choice(TEXTS).unwrap_or("0");
                return Payload::Text(text.to_owned());
            }
            30..40 => 0,
            40..60 => self.rng.usize(1..64),
            60..97 if self.mode == Mode::Lossy => self.rng.usize(self.ordinary / 2..=self.ordinary),
            60..97 => self.rng.usize(0..=self.ordinary),
            97 | 98 => self.rng.usize(0..=self.value_max),
            _ => self.value_max + self.rng.usize(0..3),
        };
        Payload::Bytes { length, fill: self.rng.u64(..) }
    }

    fn cas_choice(&mut self) -> CasChoice {
        match self.rng.u8(0..100) {
            0..60 => CasChoice::Current,
            60..85 => CasChoice::Older,
            _ => CasChoice::Unknown,
        }
    }

    fn explicit_cas(&mut self) -> u64 {
        EXPLICIT + self.rng.u64(0..8)
    }

    fn exptime(&mut self) -> Exptime {
        if self.mode == Mode::Lossy && self.chance(75) {
            return Exptime::NEVER;
        }
        if self.real_time {
            return self.far_or_dead();
        }
        let start = i64::from(START);
        Exptime(match self.rng.u8(0..100) {
            0..40 => 0,
            40..65 => self.rng.i64(1..10),
            65..82 => self.rng.i64(10..300),
            82..86 => self.rng.i64(-3..0),
            86 => Exptime::RELATIVE_MAX,
            87 | 88 => Exptime::RELATIVE_MAX + 1,
            89..97 => start + self.rng.i64(1..600),
            97 => i64::from(u32::MAX),
            _ => i64::MAX,
        })
    }

    /// Where time passes by itself: nothing that a slow run could reach.
    fn far_or_dead(&mut self) -> Exptime {
        Exptime(match self.rng.u8(0..100) {
            0..50 => 0,
            50..85 => self.rng.i64(100_000..1_000_000),
            85..90 => self.rng.i64(-3..0),
            _ => Exptime::RELATIVE_MAX,
        })
    }

    fn flush_delay(&mut self) -> Exptime {
        if self.real_time {
            return Exptime(self.rng.i64(-1..=0));
        }
        let start = i64::from(START);
        Exptime(match self.rng.u8(0..10) {
            0..4 => 0,
            4 => -1,
            5..9 => self.rng.i64(1..60),
            _ => start + self.rng.i64(0..600),
        })
    }

    fn passing_seconds(&mut self) -> u32 {
        match self.rng.u8(0..100) {
            0..65 => 1,
            65..85 => self.rng.u32(2..10),
            85..98 => self.rng.u32(10..100),
            _ => self.rng.u32(100..3_000_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn keys_are_distinct_and_of_every_allowed_length_class() {
        let keys: HashSet<_> = (0..5000).map(key).collect();
        assert_eq!(keys.len(), 5000);
        assert!(keys.iter().all(|key| (1..=KEY_MAX).contains(&key.len())));
        assert!(keys.iter().any(|key| key.len() == 1) && keys.iter().any(|key| key.len() == KEY_MAX));
    }

    #[test]
    fn lossy_sequences_store_more_than_fits() {
        let options = Options::lossy();
        for seed in 0..5 {
            let mut lengths = HashMap::new();
            for operation in sequence(options, seed).operations {
                let Operation::Set { key, value: Payload::Bytes { length, .. }, request, .. } = operation else {
                    continue;
                };
                if request.mode == WriteMode::Set && length <= options.config.value_max {
                    lengths.insert(key, length as u64);
                }
            }
            let stored: u64 = lengths.values().sum();
            assert!(stored > options.config.memory, "seed {seed} stores {stored} bytes");
        }
    }

    #[test]
    fn a_seed_always_unfolds_into_the_same_sequence() {
        let one = sequence(Options::exact(), 7);
        let two = sequence(Options::exact(), 7);
        assert_eq!((one.keys, one.operations), (two.keys, two.operations));
        assert_ne!(sequence(Options::exact(), 8).operations, sequence(Options::exact(), 7).operations);
    }
}
