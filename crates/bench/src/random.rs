//! Deterministic randomness: a stateless mixer for what must be a function of a key, and a seeded generator for streams.

use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Mixes 64 bits so that every input bit reaches every output bit.
///
/// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[inline]
pub fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Mixes two numbers into one; the order matters.
#[inline]
pub fn mix2(first: u64, second: u64) -> u64 {
    mix(mix(first) ^ second)
}

/// A fast generator for one stream of a run; streams of one seed are independent of each other.
pub fn generator(seed: u64, stream: u64) -> SmallRng {
    SmallRng::seed_from_u64(mix2(seed, stream))
}

/// Maps 64 random bits to [0, 1) with the 53 bits a double holds.
#[inline]
pub fn unit(random: u64) -> f64 {
    const STEP: f64 = 1.0 / (1u64 << 53) as f64;
    (random >> 11) as f64 * STEP
}
