//! How much may be written to the lower tier: a daily budget, to make a device last.
//!
//! The budget is a token bucket: it begins full, holds at most a day's bytes and is filled evenly. So in the long run no more
//! than the budget is written a day, and a nightly load may take a day's worth at once. What cannot be paid for in full is
//! not written.
//!
//! While the bucket is near empty, what it has goes to what is worth most for its bytes. It is filled by the millisecond, so
//! it seldom holds more than a few items then, and of those that come the small ones find enough. A key that nothing is known of
//! has to find [`UNKNOWN`] times its bytes: it leaves the rest to keys that were lately withheld and are written again. Most
//! keys that are written once are never asked for.

use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;

const MILLIS_OF_A_DAY: u64 = 24 * 60 * 60 * 1000;
/// How many times its bytes an unknown key has to find in the bucket. Measured, in `docs/decisions/12-carrying.md`.
const UNKNOWN: u128 = 4;
/// Keys that are remembered as withheld, at most; two bytes each.
const REMEMBERED: usize = 1 << 16;

/// The budget.
#[derive(Debug)]
pub(super) struct Admission {
    bytes_per_day: u64,
    bucket: Mutex<Bucket>,
    withheld: Withheld,
}

#[derive(Debug)]
struct Bucket {
    /// Bytes times the milliseconds of a day: what a millisecond brings is then a whole number.
    tokens: u128,
    millis: u64,
}

/// What is known of a key that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It is in use: what is written was made from the item that is there.
    InUse,
    /// Its hash.
    Hash(u64),
}

impl Admission {
    /// A full budget, at a time in milliseconds.
    pub(super) fn new(bytes_per_day: u64, now: u64) -> Self {
        let bucket = Bucket { tokens: Self::full(bytes_per_day), millis: now };
        Self { bytes_per_day, bucket: Mutex::new(bucket), withheld: Withheld::new() }
    }

    fn full(bytes_per_day: u64) -> u128 {
        u128::from(bytes_per_day) * u128::from(MILLIS_OF_A_DAY)
    }

    /// Whether `bytes` may be written at the millisecond `now`; takes them from the budget if so.
    pub(super) fn admit(&self, bytes: usize, known: Known, now: u64) -> bool {
        let full = Self::full(self.bytes_per_day);
        let mut bucket = self.bucket.lock();
        let passed = now.saturating_sub(bucket.millis);
        let income = u128::from(passed) * u128::from(self.bytes_per_day);
        bucket.millis = bucket.millis.max(now);
        bucket.tokens = (bucket.tokens + income).min(full);
        let price = bytes as u128 * u128::from(MILLIS_OF_A_DAY);
        let is_known = match known {
            Known::InUse => true,
            Known::Hash(hash) => self.withheld.has(hash),
        };
        // A full bucket is enough for whatever it covers.
        let needed = if is_known { price } else { (price * UNKNOWN).min(full).max(price) };
        let admitted = bucket.tokens >= needed;
        if admitted {
            bucket.tokens -= price;
        }
        admitted
    }

    /// Remembers that a key was withheld.
    pub(super) fn note_withheld(&self, hash: u64) {
        self.withheld.note(hash);
    }
}

/// The keys that were withheld last: of those that share a place, the last one.
#[derive(Debug)]
struct Withheld(Box<[AtomicU16]>);

impl Withheld {
    fn new() -> Self {
        Self((0..REMEMBERED).map(|_| AtomicU16::new(0)).collect())
    }

    /// A key's place, and what stands for the key there; 0 stands for none.
    fn place(&self, hash: u64) -> (&AtomicU16, u16) {
        (&self.0[hash as usize % REMEMBERED], (hash >> 48) as u16 | 1)
    }

    fn note(&self, hash: u64) {
        let (place, tag) = self.place(hash);
        place.store(tag, Ordering::Relaxed);
    }

    fn has(&self, hash: u64) -> bool {
        let (place, tag) = self.place(hash);
        place.load(Ordering::Relaxed) == tag
    }
}

#[cfg(test)]
mod tests {
    use super::Known::{Hash, InUse};
    use super::*;

    const SECOND: u64 = 1000;
    const SECONDS_OF_A_DAY: u64 = MILLIS_OF_A_DAY / SECOND;

    #[test]
    fn a_day_is_saved_up_and_no_more() {
        let budget = Admission::new(SECONDS_OF_A_DAY * 10, 100 * SECOND);
        assert!(budget.admit(SECONDS_OF_A_DAY as usize * 10, Hash(1), 100 * SECOND));
        assert!(!budget.admit(1, InUse, 100 * SECOND));
        assert!(!budget.admit(11, InUse, 101 * SECOND), "a second brings ten bytes");
        assert!(budget.admit(10, InUse, 101 * SECOND));
        assert!(!budget.admit(1, InUse, 101 * SECOND));
        assert!(!budget.admit(1, InUse, 50 * SECOND), "a clock that goes back brings nothing");
        assert!(!budget.admit(1, InUse, 101 * SECOND + 99));
        assert!(budget.admit(1, InUse, 101 * SECOND + 100), "a byte in a tenth of a second");
        assert!(budget.admit(SECONDS_OF_A_DAY as usize * 10, InUse, 102 * SECOND + 3 * MILLIS_OF_A_DAY));
        assert!(!budget.admit(1, InUse, 102 * SECOND + 3 * MILLIS_OF_A_DAY), "no more than a day's worth is saved up");
    }

    #[test]
    fn a_small_budget_still_brings_something() {
        let budget = Admission::new(100, 0);
        assert!(budget.admit(100, Hash(1), 0));
        assert!(!budget.admit(1, InUse, 863 * SECOND));
        assert!(budget.admit(1, InUse, 864 * SECOND));
    }

    #[test]
    fn what_is_left_goes_to_what_was_withheld_before_and_to_what_is_small() {
        let budget = Admission::new(SECONDS_OF_A_DAY * 1000, 0);
        assert!(budget.admit(SECONDS_OF_A_DAY as usize * 1000, Hash(1), 0));
        assert!(!budget.admit(300, Hash(1), SECOND), "a thousand bytes are not four times its own");
        budget.note_withheld(1);
        assert!(budget.admit(250, Hash(2), SECOND), "it is smaller");
        assert!(!budget.admit(300, Hash(2), SECOND) && !budget.admit(300, Hash(1 + (1 << 60)), SECOND));
        assert!(budget.admit(300, Hash(1), SECOND), "it was withheld before");
        assert!(budget.admit(300, InUse, SECOND));
        assert!(!budget.admit(300, InUse, SECOND), "the rest does not cover it");
    }
}
