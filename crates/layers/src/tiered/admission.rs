//! How much may be written to the lower tier: a daily budget, to make a device last.
//!
//! The budget is a token bucket: it begins full, holds at most a day's bytes and is filled evenly. So in the long run no more
//! than the budget is written a day, and a nightly load may take a day's worth at once. What cannot be paid for in full is
//! not written.

use parking_lot::Mutex;

const SECONDS_OF_A_DAY: u64 = 24 * 60 * 60;

/// The budget.
#[derive(Debug)]
pub(super) struct Admission {
    bytes_per_day: u64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Bytes times the seconds of a day: what a second brings is then a whole number.
    tokens: u128,
    second: u32,
}

impl Admission {
    /// A full budget.
    pub(super) fn new(bytes_per_day: u64, now: u32) -> Self {
        let bucket = Bucket { tokens: Self::full(bytes_per_day), second: now };
        Self { bytes_per_day, bucket: Mutex::new(bucket) }
    }

    fn full(bytes_per_day: u64) -> u128 {
        u128::from(bytes_per_day) * u128::from(SECONDS_OF_A_DAY)
    }

    /// Whether `bytes` may be written now; takes them from the budget if so.
    pub(super) fn admit(&self, bytes: usize, now: u32) -> bool {
        let mut bucket = self.bucket.lock();
        let passed = now.saturating_sub(bucket.second);
        let income = u128::from(passed) * u128::from(self.bytes_per_day);
        bucket.second = bucket.second.max(now);
        bucket.tokens = (bucket.tokens + income).min(Self::full(self.bytes_per_day));
        let price = bytes as u128 * u128::from(SECONDS_OF_A_DAY);
        match bucket.tokens.checked_sub(price) {
            Some(left) => {
                bucket.tokens = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_s_worth_may_go_at_once_and_comes_back_evenly() {
        let budget = Admission::new(SECONDS_OF_A_DAY * 10, 100);
        assert!(budget.admit(SECONDS_OF_A_DAY as usize * 10, 100));
        assert!(!budget.admit(1, 100));
        assert!(!budget.admit(11, 101), "a second brings ten bytes");
        assert!(budget.admit(10, 101));
        assert!(!budget.admit(1, 101));
        assert!(!budget.admit(1, 50), "a clock that goes back brings nothing");
        assert!(budget.admit(SECONDS_OF_A_DAY as usize * 10, 101 + 3 * SECONDS_OF_A_DAY as u32));
        assert!(!budget.admit(1, 101 + 3 * SECONDS_OF_A_DAY as u32), "no more than a day's worth is saved up");
    }

    #[test]
    fn a_small_budget_still_brings_something() {
        let budget = Admission::new(100, 0);
        assert!(budget.admit(100, 0));
        assert!(!budget.admit(1, 863));
        assert!(budget.admit(1, 864));
    }
}
