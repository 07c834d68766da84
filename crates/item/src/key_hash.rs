//! The key hash: a function whose collisions cannot be found without its secret.
//!
//! Engines know keys by bits of their hashes. An engine on SSD takes keys that agree in 40 bits or more for one and lets the
//! newer item replace the other, so a client that can find a key which agrees with another client's can make that item
//! vanish; keys that share a bucket make an index slow. A seed is no protection: of XXH3 and its like there are fixed pairs
//! of keys that collide under one seed in 1,400. AES-CMAC (RFC 4493) is a pseudorandom function: to find a key that agrees
//! with a given one there is no better way than to try them.
//!
//! `docs/decisions/01-keyed-hash.md` has the figures of this and other functions.

mod cmac;

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use cmac::{Hardware, Portable};

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;

/// A hash function with its secret: what turns the bytes of a key into 64 bits.
///
/// It is as large as two words, and is copied with each request. Its secret is never shown, not by [`fmt::Debug`] either.
#[derive(Clone, Copy)]
pub struct KeyHash(Function);

#[derive(Clone, Copy)]
enum Function {
    /// XXH3-64 under a seed.
    Seeded(u64),
    /// AES-CMAC by the processor's instructions, which are there.
    Hardware(&'static Hardware),
    /// AES-CMAC where the processor has no instructions for it: a hundred times slower, and the same hashes.
    Portable(&'static Portable),
}

/// The keyed functions of this process, which live as long as it does: a reference count would cost every request two atomic
/// operations. A node has one; a process that opens a tier again gets the same one again.
static KEYED: Mutex<BTreeMap<[u8; SECRET_BYTES], KeyHash>> = Mutex::new(BTreeMap::new());

impl KeyHash {
    /// AES-128-CMAC under `secret`, of whose 16 bytes the first 8 count, as a little-endian number. Fixed by its
    /// specification, so engines may keep hashes on disk.
    ///
    /// Each secret takes half a KiB for as long as the process lives.
    pub fn keyed(secret: [u8; SECRET_BYTES]) -> Self {
        let mut known = KEYED.lock();
        *known.entry(secret).or_insert_with(|| {
            Self(match Hardware::new(secret) {
                Some(hardware) => Function::Hardware(Box::leak(Box::new(hardware))),
                None => Function::Portable(Box::leak(Box::new(Portable::new(secret)))),
            })
        })
    }

    /// [`KeyHash::keyed`] under a secret from the system's randomness.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn random() -> std::io::Result<Self> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        Ok(Self::keyed(secret))
    }

    /// XXH3-64 under `seed`: for what was written with it, and for what faces no client. Collisions of it can be had.
    pub const fn seeded(seed: u64) -> Self {
        Self(Function::Seeded(seed))
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(self, key: &[u8]) -> u64 {
        match self.0 {
            Function::Seeded(seed) => xxh3_64_with_seed(key, seed),
            Function::Hardware(cmac) => cmac.hash(key),
            Function::Portable(cmac) => cmac.hash(key),
        }
    }

    /// What the function is called; says nothing of its secret.
    pub fn name(self) -> &'static str {
        match self.0 {
            Function::Seeded(_) => "xxh3",
            Function::Hardware(_) | Function::Portable(_) => "aes-cmac",
        }
    }
}

impl PartialEq for KeyHash {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Function::Seeded(one), Function::Seeded(other)) => one == other,
            // There is one of each secret.
            (Function::Hardware(one), Function::Hardware(other)) => std::ptr::eq(one, other),
            (Function::Portable(one), Function::Portable(other)) => std::ptr::eq(one, other),
            _ => false,
        }
    }
}

impl Eq for KeyHash {}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyHash").field(&self.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two keys of 32 bytes that differ in their second half and have one hash under an XXH3 seed in 1,400
    /// (xxHash's issue 1127).
    const PAIR: [[u8; 32]; 2] = [
        *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x51\x15\x12\x10\x40\x44\0\0\0\0\0\x82\x04\0\x01\x05",
        *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xae\xea\xed\xef\xbf\xbb\xff\xff\xff\xff\xff\x7d\xfb\xff\xfe\xfa",
    ];
    /// Functions tried.
    const TRIED: u64 = 1 << 15;

    fn colliding(function: impl Fn(u64) -> KeyHash) -> u64 {
        let collides = |hash: KeyHash| hash.hash(&PAIR[0]) == hash.hash(&PAIR[1]);
        (0..TRIED).map(|number| u64::from(collides(function(number)))).sum()
    }

    #[test]
    fn keys_that_collide_under_many_seeds_do_not_under_a_secret() {
        // Seeds that are spread over all 64 bits, as random ones are.
        let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(colliding(|number| KeyHash::seeded(spread(number))) > 5, "the pair shows what a seed is worth");
        let secret = |number: u64| u128::from(spread(number)).to_le_bytes();
        // Not by `keyed`, which would remember all of them.
        let keyed = |number| KeyHash(Function::Portable(Box::leak(Box::new(Portable::new(secret(number))))));
        assert_eq!(colliding(keyed), 0);
    }

    #[test]
    fn a_secret_makes_one_function_however_often_it_is_asked_for() {
        let (one, other) = (KeyHash::keyed([1; SECRET_BYTES]), KeyHash::keyed([2; SECRET_BYTES]));
        assert_eq!(one, KeyHash::keyed([1; SECRET_BYTES]));
        assert_ne!(one, other);
        assert_ne!(one.hash(b"key"), other.hash(b"key"));
        assert_ne!(KeyHash::random().unwrap(), KeyHash::random().unwrap());
        assert_eq!(KeyHash::seeded(7), KeyHash::seeded(7));
        assert_ne!(KeyHash::seeded(7), KeyHash::seeded(8));
    }

    #[test]
    fn every_bit_of_a_key_and_its_length_change_half_of_the_hash() {
        let hash = KeyHash::keyed([3; SECRET_BYTES]);
        let mut flipped = 0;
        let mut tried = 0;
        for length in 1..=250 {
            let key = vec![0; length];
            let whole = hash.hash(&key);
            assert_ne!(whole, hash.hash(&key[1..]), "{length} bytes and one less");
            for bit in 0..8 * length {
                let mut other = key.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                flipped += u64::from((hash.hash(&other) ^ whole).count_ones());
                tried += 64;
            }
        }
        let share = flipped as f64 / tried as f64;
        assert!((0.499..0.501).contains(&share), "{share} of the bits");
    }

    #[test]
    fn what_is_printed_says_nothing_of_the_secret() {
        assert_eq!(format!("{:?}", KeyHash::keyed([0xAB; SECRET_BYTES])), r#"KeyHash("aes-cmac", ..)"#);
        assert_eq!(format!("{:?}", KeyHash::seeded(0xABCD)), r#"KeyHash("xxh3", ..)"#);
    }
}
