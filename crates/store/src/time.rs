//! Time as a cache sees it: whole Unix seconds for expiry, milliseconds for versions, from a clock that tests can turn by hand.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_utils::CachePadded;

/// The time since the Unix epoch, read without a system call: event loops call [`Clock::refresh`] in each turn, and everything
/// else reads the cells.
#[derive(Debug)]
pub struct Clock {
    now: AtomicU32,
    // Apart from the seconds, which every read looks at and which seldom change.
    millis: CachePadded<AtomicU64>,
    /// By how much it is ahead of the system's clock, in milliseconds.
    offset: AtomicI64,
    manual: bool,
}

impl Clock {
    /// A clock that follows the system's.
    pub fn system() -> Self {
        let (now, millis) = (AtomicU32::new(0), AtomicU64::new(0).into());
        let clock = Self { now, millis, offset: AtomicI64::new(0), manual: false };
        clock.refresh();
        clock
    }

    /// A clock that stands at second `now` until [`Clock::advance`] moves it.
    pub fn manual(now: u32) -> Self {
        let millis = AtomicU64::new(u64::from(now) * 1000).into();
        Self { now: AtomicU32::new(now), millis, offset: AtomicI64::new(0), manual: true }
    }

    /// The current Unix second, as of the last refresh.
    #[inline]
    pub fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Milliseconds since the Unix epoch, as of the last refresh.
    #[inline]
    pub fn millis(&self) -> u64 {
        self.millis.load(Ordering::Relaxed)
    }

    /// Reads the system's clock. Does nothing on a manual clock.
    #[inline]
    pub fn refresh(&self) {
        if self.manual {
            return;
        }
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = elapsed.as_secs() * 1000 + u64::from(elapsed.subsec_millis());
        // Wraps only where a correction takes the time to before 1970.
        let millis = millis.wrapping_add_signed(self.offset());
        let seconds = u32::try_from(millis / 1000).unwrap_or(u32::MAX);
        // Workers share these lines: they are written only when they change, so that they stay in every core's cache.
        if self.now() != seconds {
            self.now.store(seconds, Ordering::Relaxed);
        }
        if self.millis() != millis {
            self.millis.store(millis, Ordering::Relaxed);
        }
    }

    /// By how much it is ahead of the system's clock, in milliseconds; behind, if negative.
    pub fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Moves it by so many milliseconds, for good: the clocks of others are right, and the system's is not.
    pub fn correct(&self, millis: i64) {
        self.offset.fetch_add(millis, Ordering::Relaxed);
        if self.manual {
            self.set_millis(self.millis().saturating_add_signed(millis));
        } else {
            self.refresh();
        }
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    /// On a system clock.
    pub fn advance(&self, seconds: u32) {
        self.advance_millis(u64::from(seconds) * 1000);
    }

    /// Moves a manual clock forward by milliseconds.
    ///
    /// # Panics
    /// On a system clock.
    pub fn advance_millis(&self, millis: u64) {
        self.set_millis(self.millis() + millis);
    }

    /// Sets a manual clock, also back.
    ///
    /// # Panics
    /// On a system clock.
    pub fn set_millis(&self, millis: u64) {
        assert!(self.manual, "only a manual clock can be moved");
        self.millis.store(millis, Ordering::Relaxed);
        self.now.store(u32::try_from(millis / 1000).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}
