//! Time as a cache sees it: whole Unix seconds, from a clock that tests can turn by hand.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the Unix epoch, read without a system call: whoever turns an event loop calls [`Clock::refresh`], and
/// everyone else reads the cell.
#[derive(Debug)]
pub struct Clock {
    now: AtomicU32,
    manual: bool,
}

impl Clock {
    /// A clock that follows the system's.
    pub fn system() -> Self {
        let clock = Self { now: AtomicU32::new(0), manual: false };
        clock.refresh();
        clock
    }

    /// A clock that stands at `now` until [`Clock::advance`] moves it.
    pub fn manual(now: u32) -> Self {
        Self { now: AtomicU32::new(now), manual: true }
    }

    /// The current Unix second, as of the last refresh.
    #[inline]
    pub fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Reads the system's clock. Does nothing on a manual clock.
    #[inline]
    pub fn refresh(&self) {
        if self.manual {
            return;
        }
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        // Workers share this line: write only when the second turns, so that it stays in every core's cache.
        if self.now() != seconds {
            self.now.store(seconds, Ordering::Relaxed);
        }
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    /// On a system clock, which nobody can move.
    pub fn advance(&self, seconds: u32) {
        assert!(self.manual, "only a manual clock can be moved");
        self.now.fetch_add(seconds, Ordering::Relaxed);
    }
}
