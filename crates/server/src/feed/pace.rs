//! A bound on the bytes a second that a reader is sent. What it was not sent while nothing changed is not saved up: a link that is to be
//! spared would have it all at once.

use std::time::{Duration, Instant};

/// When the next bytes may be sent.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes a second; 0: no bound.
    rate: u64,
    /// Until then takes what was sent.
    until: Option<Instant>,
}

impl Pace {
    /// `rate`: bytes a second, at most; 0: as fast as it goes.
    pub(super) fn of(rate: u64) -> Self {
        Self { rate, until: None }
    }

    /// Bytes were sent `now`: how long nothing more is to be.
    pub(super) fn sent(&mut self, bytes: u64, now: Instant) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        let takes = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let until = self.until.map_or(now, |until| until.max(now)) + takes;
        self.until = Some(until);
        until - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn no_more_is_sent_in_any_time_than_the_rate_allows() {
        let (mut pace, begun) = (Pace::of(1000), Instant::now());
        assert_eq!(pace.sent(500, begun), SECOND / 2);
        assert_eq!(pace.sent(500, begun + SECOND / 4), SECOND * 3 / 4, "behind what was sent before");
        // Nothing changes for an hour.
        let later = begun + SECOND * 3600;
        assert_eq!(pace.sent(2000, later), SECOND * 2);
        assert_eq!(pace.sent(1000, later + SECOND * 2), SECOND, "the hour is not made up for");
        assert_eq!(Pace::of(0).sent(u64::MAX, begun), Duration::ZERO);
    }
}
