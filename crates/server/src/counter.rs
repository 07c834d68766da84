//! A number that one worker writes and that any thread reads.
//!
//! Only its worker writes a counter, so a plain load and store suffice, without a locked instruction.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number written by one thread and read by any.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Only the worker that owns the counter may call this.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Adds one. Only the worker that owns the counter may call this.
    #[inline]
    pub fn bump(&self) {
        self.add(1);
    }

    /// Subtracts one, for gauges such as open connections. Only the worker that owns the counter may call this.
    #[inline]
    pub fn drop_one(&self) {
        self.add(u64::MAX);
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
