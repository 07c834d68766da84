//! What the engine's tests share: a store of any size, and values that say whose they are.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::sync::Arc;

use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::{Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Calls, Clock, Deleted, ItemRef, Key, KeyHash, Lookup, Written};

/// The second at which tests begin.
pub const START: u32 = 1_700_000_000;

/// A store, and the clock it goes by.
pub struct Node {
    pub memory: Memory,
    pub clock: Arc<Clock>,
}

/// The seed of this run, from the environment's `MONETA_SEED` or the system; printed.
pub fn seed() -> u64 {
    let seed =
        std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    seed
}

/// A store of one shard with values of up to 1 MiB.
pub fn config(limit: u64) -> MemoryConfig {
    MemoryConfig {
        limit,
        item_max: 1 << 20,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: KeyHash::seeded(0),
        versioning: Default::default(),
    }
}

impl Node {
    pub fn new(config: &MemoryConfig) -> Self {
        let clock = Arc::new(Clock::manual(START));
        let memory = Memory::new(config, Arc::clone(&clock)).expect("a possible configuration");
        Self { memory, clock }
    }

    pub fn write(&self, key: &str, value: &[u8], request: &Write) -> Written {
        self.memory.set(&Key::new(key.as_bytes(), KeyHash::seeded(0)), value, request).now().expect("RAM does not fail")
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Written {
        self.write(key, value, &Write::default())
    }

    /// Sets with a time to live in seconds.
    pub fn set_for(&self, key: &str, value: &[u8], seconds: i64) -> Written {
        self.write(key, value, &Write { exptime: Exptime(seconds), ..Write::default() })
    }

    pub fn append(&self, key: &str, value: &[u8]) -> Written {
        self.write(key, value, &Write { mode: WriteMode::Append, ..Write::default() })
    }

    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let mut value = None;
        let mut show = |item: &ItemRef<'_>| value = Some(item.value.to_vec());
        let key = Key::new(key.as_bytes(), KeyHash::seeded(0));
        match self.memory.get(&key, &Retrieve::default(), &mut show).now().expect("RAM does not fail") {
            Lookup::Visited => value,
            _ => None,
        }
    }

    pub fn delete(&self, key: &str) -> Deleted {
        self.memory
            .delete(&Key::new(key.as_bytes(), KeyHash::seeded(0)), &Delete::default())
            .now()
            .expect("RAM does not fail")
    }

    pub fn verify(&self) {
        self.memory.verify().expect("the books add up");
    }
}

pub fn stored(written: Written) -> bool {
    matches!(written, Written::Stored { .. })
}

/// A value of `length` bytes, at least 24, whose every byte follows from its key, its version and its length.
pub fn signed(key: u64, version: u64, length: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(length + 8);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&version.to_le_bytes());
    value.extend_from_slice(&(length as u64).to_le_bytes());
    let mut word = key ^ version.rotate_left(32) ^ length as u64;
    while value.len() < length {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(length);
    value
}

/// The version of a signed value of `key`.
///
/// # Panics
/// If it is of another key, or torn.
pub fn version_of(key: u64, value: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!(word(0), key, "the value of another key");
    assert_eq!(word(16) as usize, value.len(), "a value of another length than was stored");
    assert!(value == signed(key, word(8), value.len()), "a torn value of key {key}");
    word(8)
}
