//! A bound on the bytes a second that a reader is sent. What it was not sent while nothing changed is not saved up: a link that
//! is to be spared would have it all at once.

use std::time::{Duration, Instant};

/// When the next bytes may be sent.
#[derive(Debug)]
pub struct Pace {
    /// Bytes a second; 0: no bound.
    rate: u64,
    /// Bytes that were sent too early, at that moment.
    early: f64,
    at: Option<Instant>,
}

impl Pace {
    /// `rate`: bytes a second, at most; 0: as fast as it goes.
    pub fn of(rate: u64) -> Self {
        Self { rate, early: 0.0, at: None }
    }

    /// Another rate `now`; what was sent before counts still.
    pub fn set(&mut self, rate: u64, now: Instant) {
        self.pass(now);
        self.rate = rate;
    }

    /// Bytes were sent `now`.
    pub fn sent(&mut self, bytes: u64, now: Instant) {
        self.pass(now);
        self.early += bytes as f64;
    }

    /// How long nothing more is to be sent, seen `now`.
    pub fn left(&mut self, now: Instant) -> Duration {
        self.pass(now);
        match self.rate {
            0 => Duration::ZERO,
            rate => Duration::try_from_secs_f64(self.early / rate as f64).unwrap_or(Duration::MAX),
        }
    }

    /// Time passes until `now`.
    fn pass(&mut self, now: Instant) {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.early = (self.early - passed.as_secs_f64() * self.rate as f64).max(0.0);
        if self.rate == 0 {
            self.early = 0.0;
        }
        self.at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn left(pace: &mut Pace, bytes: u64, now: Instant) -> Duration {
        pace.sent(bytes, now);
        // What a sum of floating point makes of it.
        Duration::from_millis(pace.left(now).as_micros().div_ceil(1000) as u64)
    }

    #[test]
    fn no_more_is_sent_in_any_time_than_the_rate_allows() {
        let (mut pace, begun) = (Pace::of(1000), Instant::now());
        assert_eq!(left(&mut pace, 500, begun), SECOND / 2);
        assert_eq!(left(&mut pace, 500, begun + SECOND / 4), SECOND * 3 / 4, "after what was sent before");
        // Nothing changes for an hour.
        let later = begun + SECOND * 3600;
        assert_eq!(left(&mut pace, 2000, later), SECOND * 2);
        assert_eq!(left(&mut pace, 1000, later + SECOND * 2), SECOND, "the hour is not made up for");
        assert_eq!(left(&mut Pace::of(0), u64::MAX, begun), Duration::ZERO);
    }

    #[test]
    fn another_rate_counts_from_then_on() {
        let (mut pace, begun) = (Pace::of(1000), Instant::now());
        pace.sent(10_000, begun);
        pace.set(3000, begun + SECOND);
        assert_eq!(pace.left(begun + SECOND), SECOND * 3, "9000 bytes are left");
        pace.set(0, begun + SECOND * 2);
        assert_eq!(pace.left(begun + SECOND * 2), Duration::ZERO);
        pace.set(1, begun + SECOND * 2);
        pace.sent(u64::MAX, begun + SECOND * 2);
        assert!(pace.left(begun + SECOND * 3) > SECOND * 1_000_000);
    }
}
