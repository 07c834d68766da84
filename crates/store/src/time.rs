//! Time as a cache sees it: whole Unix seconds, from a clock that tests can turn by hand.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use moneta_protocol::request::Exptime;

/// The moment an item dies, in Unix seconds; 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// Never dies.
    pub const NEVER: Self = Self(0);

    /// Meets a client's expiration time with the clock: relative up to 30 days, absolute above, dead at once when
    /// negative or already past.
    pub fn resolve(exptime: Exptime, now: u32) -> Self {
        match exptime.0 {
            0 => Self::NEVER,
            seconds if seconds < 0 => Self(1),
            seconds if seconds <= Exptime::RELATIVE_MAX => {
                Self(now.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX)))
            }
            seconds => Self(u32::try_from(seconds).unwrap_or(u32::MAX)),
        }
    }

    /// Whether an item with this expiry is dead at `now`. The second it names is the first it no longer lives in.
    #[inline]
    pub fn is_dead(self, now: u32) -> bool {
        self.0 != 0 && self.0 <= now
    }

    /// Whole seconds left at `now`; `None` for never.
    pub fn remaining(self, now: u32) -> Option<u32> {
        (self.0 != 0).then(|| self.0.saturating_sub(now))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_as_memcached_does() {
        assert_eq!(Expiry::resolve(Exptime(0), 1000), Expiry::NEVER);
        assert!(Expiry::resolve(Exptime(-1), 1000).is_dead(1000));
        assert_eq!(Expiry::resolve(Exptime(10), 1000), Expiry(1010));
        assert_eq!(Expiry::resolve(Exptime(2_592_000), 1000), Expiry(2_593_000));
        assert_eq!(Expiry::resolve(Exptime(2_592_001), 5_000_000), Expiry(2_592_001));
        assert_eq!(Expiry::resolve(Exptime(i64::MAX), 1000), Expiry(u32::MAX));
    }

    #[test]
    fn an_item_is_dead_from_the_second_its_expiry_names() {
        assert!(!Expiry(11).is_dead(10));
        assert!(Expiry(11).is_dead(11));
        assert!(!Expiry::NEVER.is_dead(u32::MAX));
    }
}
