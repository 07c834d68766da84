//! What tells entries that may be read from those that may not: each names the epoch it was written in.
//!
//! An epoch is a 64-bit number. It begins anywhere, by chance, so that no process takes another's entries for its own; each
//! stripe of keys adds its own count. A count grows when the outcome of a change is unknown: everything written in the
//! stripe before, or is still to be written by a command that hangs somewhere, is of an epoch that is over. A flush is a new
//! beginning for all of them.
//!
//! ```text
//!   epoch of a key = beginning + count of its stripe       an entry may be read  ⇔  it names this very number
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::stripes::{STRIPES, Stripes};

/// The epochs of all keys.
pub(super) struct Epochs {
    beginnings: RwLock<Beginnings>,
    counts: Box<[AtomicU64]>,
    ended: AtomicU64,
    /// For tests that show what epochs are good for: every entry may be read.
    ignored: bool,
}

/// Where epochs begin, now and from a moment on.
#[derive(Clone, Copy)]
struct Beginnings {
    first: u64,
    /// Unix second; `u32::MAX`: never.
    moment: u32,
    second: u64,
}

impl Beginnings {
    fn at(&self, now: u32) -> u64 {
        if now >= self.moment { self.second } else { self.first }
    }
}

impl Epochs {
    pub(super) fn new() -> Self {
        let beginnings = Beginnings { first: fastrand::u64(..), moment: u32::MAX, second: 0 };
        Self {
            beginnings: RwLock::new(beginnings),
            counts: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            ended: AtomicU64::new(0),
            ignored: false,
        }
    }

    /// Epochs that nothing goes by.
    #[cfg(feature = "testing")]
    pub(super) fn ignored() -> Self {
        Self { ignored: true, ..Self::new() }
    }

    /// The epoch of a hash.
    pub(super) fn current(&self, hash: u64, now: u32) -> u64 {
        let beginning = self.beginnings.read().at(now);
        beginning.wrapping_add(self.counts[Stripes::index(hash)].load(Ordering::Acquire))
    }

    /// Whether an entry of this epoch may be read.
    pub(super) fn is_current(&self, hash: u64, epoch: u64, now: u32) -> bool {
        self.ignored || epoch == self.current(hash, now)
    }

    /// Ends the epoch of a hash.
    pub(super) fn end(&self, hash: u64) {
        self.counts[Stripes::index(hash)].fetch_add(1, Ordering::AcqRel);
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// How many have been ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Ends all epochs now. What was to end at a moment still to come ends then as well.
    pub(super) fn renew(&self, now: u32) {
        let mut beginnings = self.beginnings.write();
        let fresh = fastrand::u64(..);
        if now >= beginnings.moment { beginnings.second = fresh } else { beginnings.first = fresh }
    }

    /// Ends all epochs when `moment` comes, which may be past, and at no moment named before.
    pub(super) fn end_all(&self, moment: u32, now: u32) {
        let mut beginnings = self.beginnings.write();
        *beginnings = Beginnings { first: beginnings.at(now), moment, second: fastrand::u64(..) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_the_very_epoch_may_be_read() {
        let epochs = Epochs::new();
        let (hash, other) = (0, 1 << 24);
        let (old, untouched) = (epochs.current(hash, 10), epochs.current(other, 10));
        assert!(epochs.is_current(hash, old, 10));
        epochs.end(hash);
        assert!(!epochs.is_current(hash, old, 10));
        assert!(epochs.is_current(hash, epochs.current(hash, 10), 10));
        assert!(epochs.is_current(other, untouched, 10), "other stripes go on");
        assert!(!Epochs::new().is_current(other, untouched, 10), "nor is it another process's");
    }

    #[test]
    fn a_flush_ends_all_at_its_moment_and_a_later_one_replaces_it() {
        let epochs = Epochs::new();
        let old = epochs.current(0, 10);
        epochs.end_all(20, 10);
        assert!(epochs.is_current(0, old, 19) && !epochs.is_current(0, old, 20));
        epochs.end_all(30, 15);
        assert!(epochs.is_current(0, old, 29) && !epochs.is_current(0, old, 30));
        let new = epochs.current(0, 31);
        epochs.end_all(31, 31);
        assert!(!epochs.is_current(0, new, 31) && !epochs.is_current(0, old, 31));
    }
}
