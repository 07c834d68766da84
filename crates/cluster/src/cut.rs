//! Whether this process was cut off from most copies.
//!
//! The near copies of a process that is cut off with them lack what others write meanwhile. When it is connected again, those
//! others give them what they lack, but only after their next probe, which comes after up to half the time that the nodes were
//! away. Until then reads go to far copies first.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is added to half the time of a cut, in milliseconds: until the first hints have arrived.
const MORE: u64 = 2_000;
/// Probes are not further apart than this, in milliseconds.
const MOST: u64 = 60_000;

/// When it was cut off last. Times are in milliseconds since the Unix epoch.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// Since when most copies are away; 0: they are not.
    since: AtomicU64,
    /// Until when the near copies may lack what others wrote.
    doubt_until: AtomicU64,
}

impl Cut {
    /// Takes note of whether most copies are reached at `now`. Called by one thread, a few times a second.
    pub(crate) fn note(&self, reaches_most: bool, now: u64) {
        let since = self.since.load(Ordering::Relaxed);
        match (reaches_most, since) {
            (true, 0) => {}
            (false, 0) => self.since.store(now.max(1), Ordering::Relaxed),
            (false, _) => {}
            (true, since) => {
                let pause = (now.saturating_sub(since) / 2).min(MOST);
                self.doubt_until.store(now + pause + MORE, Ordering::Relaxed);
                self.since.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Whether the near copies may lack what others wrote.
    #[inline]
    pub(crate) fn doubts_near(&self, now: u64) -> bool {
        let until = self.doubt_until.load(Ordering::Relaxed);
        // Much later than that only where the clock has gone back.
        until > now && until - now <= 2 * (MOST + MORE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_back_makes_no_doubt_longer() {
        let cut = Cut::default();
        cut.note(false, 10_000_000);
        cut.note(true, 10_000_100);
        assert!(cut.doubts_near(10_000_100) && !cut.doubts_near(1_000_000));
    }

    #[test]
    fn near_copies_are_doubted_for_a_while_behind_a_cut() {
        let cut = Cut::default();
        cut.note(true, 1_000);
        assert!(!cut.doubts_near(1_000));
        cut.note(false, 2_000);
        cut.note(false, 20_000);
        assert!(!cut.doubts_near(20_000), "while it is cut off there are no others");
        cut.note(true, 32_000);
        assert!(cut.doubts_near(32_000) && cut.doubts_near(48_999) && !cut.doubts_near(49_000));
        cut.note(false, 100_000);
        cut.note(true, 10_000_000);
        assert!(cut.doubts_near(10_061_999) && !cut.doubts_near(10_062_000));
    }
}
