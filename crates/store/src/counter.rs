//! Numbers that many threads read: one that every thread adds to, and one that a single thread adds to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that any thread adds to: for what is rare enough that threads may share its cache line.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Nothing is written for 0.
    #[inline]
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Relaxed);
        }
    }

    /// Adds one.
    #[inline]
    pub fn bump(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that one thread adds to and any thread reads. A plain load and store suffice, without a locked instruction.
#[derive(Debug, Default)]
pub struct OwnCounter(AtomicU64);

impl OwnCounter {
    /// Adds `amount`. Only the thread that owns the counter may call this.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Adds one. Only the thread that owns the counter may call this.
    #[inline]
    pub fn bump(&self) {
        self.add(1);
    }

    /// Subtracts one, for gauges such as open connections. Only the thread that owns the counter may call this.
    #[inline]
    pub fn drop_one(&self) {
        self.add(u64::MAX);
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_share_a_counter_lose_nothing() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| counter.bump()));
            }
        });
        counter.add(0);
        assert_eq!(counter.get(), 40_000);
    }

    #[test]
    fn the_owner_of_a_counter_may_take_away() {
        let counter = OwnCounter::default();
        counter.add(2);
        counter.drop_one();
        assert_eq!(counter.get(), 1);
    }
}
