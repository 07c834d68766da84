//! Values that say which key and which write they belong to, so that any value read can be checked on its own.
//!
//! ```text
//! 0        4        8                                    length
//! +--------+--------+------------------------------------+
//! | version|  tag   | bytes of the pool from the offset  |
//! +--------+--------+------------------------------------+
//! ```
//! Tag and offset are a hash of seed, key, version and length, so a value of another key, of another length, cut short or
//! mixed from two writes does not pass. Values shorter than the header hold the first bytes of a hash of the key alone.

use crate::keys::Key;
use crate::random::{mix, mix2};

/// Bytes before the body: version and tag, four bytes each, little-endian.
pub const HEADER: usize = 8;
/// Size of the pool bodies are cut from: small enough to stay in a core's cache.
const POOL: usize = 64 * 1024;

/// Writes and checks values.
#[derive(Debug)]
pub struct Values {
    seed: u64,
    pool: Vec<u8>,
}

impl Values {
    /// Values of one seed; runs with the same seed can check each other's values.
    pub fn new(seed: u64) -> Self {
        let pool = (0..POOL as u64 / 8).flat_map(|word| mix2(seed, word).to_le_bytes()).collect();
        Self { seed, pool }
    }

    /// Appends the value of `length` bytes that write `version` stores under `key`.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>, key: Key, version: u32, length: usize) {
        if length < HEADER {
            out.extend_from_slice(&self.short(key)[..length]);
            return;
        }
        let hash = self.hash(key, version, length);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&(hash as u32).to_le_bytes());
        let mut offset = (hash >> 32) as usize % POOL;
        let mut left = length - HEADER;
        while left > 0 {
            let part = left.min(POOL - offset);
            out.extend_from_slice(&self.pool[offset..offset + part]);
            left -= part;
            offset = 0;
        }
    }

    /// The version a value claims; values too short to hold one are version 0.
    pub fn version(data: &[u8]) -> u32 {
        match data.first_chunk::<4>() {
            Some(bytes) if data.len() >= HEADER => u32::from_le_bytes(*bytes),
            _ => 0,
        }
    }

    /// Checks that some write stored exactly `data` under `key`.
    ///
    /// The length is not compared with what the load stores; the caller knows that, see [`Values::version`].
    ///
    /// # Errors
    /// What is wrong with the bytes.
    #[inline]
    pub fn check(&self, key: Key, data: &[u8]) -> Result<(), String> {
        if data.len() < HEADER {
            return if data == &self.short(key)[..data.len()] {
                Ok(())
            } else {
                Err("the bytes are not this key's".to_owned())
            };
        }
        let hash = self.hash(key, Self::version(data), data.len());
        if data[4..HEADER] != (hash as u32).to_le_bytes() {
            return Err("the tag does not fit key, version and length".to_owned());
        }
        let mut offset = (hash >> 32) as usize % POOL;
        let mut body = &data[HEADER..];
        while !body.is_empty() {
            let part = body.len().min(POOL - offset);
            if body[..part] != self.pool[offset..offset + part] {
                return Err(format!("the body is wrong after byte {}", data.len() - body.len()));
            }
            body = &body[part..];
            offset = 0;
        }
        Ok(())
    }

    #[inline]
    fn hash(&self, key: Key, version: u32, length: usize) -> u64 {
        mix2(self.seed ^ key.identity(), (u64::from(version) << 32) ^ length as u64)
    }

    fn short(&self, key: Key) -> [u8; HEADER] {
        mix(self.seed ^ key.identity()).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeySpace;

    fn key(number: u64) -> Key {
        Key { space: KeySpace::Value, number }
    }

    fn value(values: &Values, number: u64, version: u32, length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        values.append(&mut out, key(number), version, length);
        assert_eq!(out.len(), length);
        out
    }

    #[test]
    fn every_written_value_passes_for_its_own_key() {
        let values = Values::new(7);
        for length in [0, 1, 7, 8, 9, 100, 1024, POOL, 3 * POOL + 5] {
            let data = value(&values, 42, 3, length);
            values.check(key(42), &data).unwrap();
        }
    }

    #[test]
    fn a_value_of_another_key_is_detected() {
        let values = Values::new(7);
        for length in [4, 7, 8, 100] {
            assert!(values.check(key(43), &value(&values, 42, 3, length)).is_err(), "length {length}");
        }
    }

    #[test]
    fn every_single_flipped_byte_is_detected() {
        let values = Values::new(7);
        let data = value(&values, 42, 3, 100);
        for index in 0..data.len() {
            let mut wrong = data.clone();
            wrong[index] ^= 1;
            assert!(values.check(key(42), &wrong).is_err(), "byte {index}");
        }
    }

    #[test]
    fn a_value_cut_short_or_mixed_from_two_writes_is_detected() {
        let values = Values::new(7);
        let first = value(&values, 42, 3, 100);
        let second = value(&values, 42, 4, 100);
        assert!(values.check(key(42), &first[..99]).is_err());
        let torn = [&first[..50], &second[50..]].concat();
        assert!(values.check(key(42), &torn).is_err());
    }
}
