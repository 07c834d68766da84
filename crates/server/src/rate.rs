//! Rate limits as leaky buckets, by the generic cell rate algorithm of ATM (ITU-T I.371), with debts: each request adds to a debt
//! that is paid off evenly, and a request is refused while the debt exceeds what the span allows.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Microseconds on a clock that never goes back, unlike the time of day: that would make clients wait as long. It begins at an
/// hour, so that whole allowances are there at the start.
pub(crate) fn now() -> u64 {
    const BEGIN: u64 = 3_600_000_000;
    static START: OnceLock<Instant> = OnceLock::new();
    BEGIN + u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX / 2)
}

/// An allowance: units a span of time, of which a span's worth may be spent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    units: u64,
    /// Microseconds.
    span: u64,
}

impl Rate {
    /// `units` a second, at least 1.
    pub(crate) const fn per_second(units: u64) -> Self {
        Self { units, span: 1_000_000 }
    }

    /// `units` a minute, at least 1.
    pub(crate) const fn per_minute(units: u64) -> Self {
        Self { units, span: 60_000_000 }
    }

    /// When the debt will be paid off, if it was to be paid off at `due` and `units` more are spent at `now`; both as [`now`]
    /// tells.
    fn after(self, due: u64, now: u64, units: u64) -> u64 {
        let cost = u128::from(units) * u128::from(self.span) / u128::from(self.units.max(1));
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        due.max(now.saturating_sub(self.span)).saturating_add(cost)
    }
}

/// What was spent of an allowance by one thread, or under a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent(u64);

impl Spent {
    /// Whether nothing may be spent at `now`.
    pub(crate) fn is_over(self, now: u64) -> bool {
        self.0 > now
    }

    /// Whether it is as if nothing had been spent.
    pub(crate) fn is_forgotten(self, rate: Rate, now: u64) -> bool {
        self.0.saturating_add(rate.span) <= now
    }

    /// Spends `units` at `now`.
    pub(crate) fn spend(&mut self, rate: Rate, now: u64, units: u64) {
        self.0 = rate.after(self.0, now, units);
    }
}

/// What was spent of an allowance by all threads.
#[derive(Debug, Default)]
pub(crate) struct SharedSpent(AtomicU64);

impl SharedSpent {
    /// As [`Spent::is_over`].
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.0.load(Ordering::Relaxed) > now
    }

    /// As [`Spent::is_forgotten`].
    pub(crate) fn is_forgotten(&self, rate: Rate, now: u64) -> bool {
        Spent(self.0.load(Ordering::Relaxed)).is_forgotten(rate, now)
    }

    /// As [`Spent::spend`].
    pub(crate) fn spend(&self, rate: Rate, now: u64, units: u64) {
        let after = |due| Some(rate.after(due, now, units));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_s_worth_may_be_spent_at_once_and_then_as_it_fills() {
        let rate = Rate::per_second(10);
        let spend = |spent: &mut Spent, now| {
            (0..100)
                .filter(|_| {
                    !spent.is_over(now) && {
                        spent.spend(rate, now, 1);
                        true
                    }
                })
                .count()
        };
        let mut spent = Spent::default();
        let start = 5_000_000;
        // One more than the allowance: what is left of it lets the next one in.
        assert_eq!(spend(&mut spent, start), 11);
        assert_eq!(spend(&mut spent, start + 50_000), 0);
        assert_eq!(spend(&mut spent, start + 500_000), 5);
        assert!(!spent.is_forgotten(rate, start + 1_000_000) && spent.is_forgotten(rate, start + 2_000_000));
        assert_eq!(spend(&mut spent, start + 60_000_000), 11);
    }

    #[test]
    fn a_debt_is_paid_before_more_is_spent() {
        let (rate, spent, start) = (Rate::per_second(1_000), SharedSpent::default(), 9_000_000);
        spent.spend(rate, start, 5_000);
        assert!(spent.is_over(start + 3_900_000) && !spent.is_over(start + 4_000_000));
    }
}
