//! Limits on what clients may do in a second: operations and bytes, of a listener, of a client's address, of an app. Who has used
//! up what a second allows is refused with an error that says so, and counted.
//!
//! An operation is a key that is read, or another command; bytes are those of requests that were admitted, and of replies. What
//! an operation costs is known when it is done: a request is admitted while nothing is owed, and what it takes beyond the
//! allowance is paid off before the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rate::{Rate, SharedSpent};

/// What may be done in a second; `None`: any amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Operations, at least 1.
    pub operations: Option<u64>,
    /// Bytes, at least 1.
    pub bytes: Option<u64>,
}

/// What was refused by limits of one kind.
#[derive(Debug, Default)]
pub struct Refused {
    operations: AtomicU64,
    bytes: AtomicU64,
    connections: AtomicU64,
}

/// Whose limit it is, for the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A listener's.
    Listener,
    /// A client address's.
    Address,
    /// An app's.
    App,
}

/// What all requests of a listener, an address or an app together may do.
#[derive(Debug)]
pub struct Allowance {
    whose: Whose,
    operations: Option<(Rate, SharedSpent)>,
    bytes: Option<(Rate, SharedSpent)>,
    refused: Arc<Refused>,
}

impl Refused {
    /// Requests refused for the limit on operations, those refused for the limit on bytes, and connections turned away.
    pub fn counts(&self) -> [u64; 3] {
        [&self.operations, &self.bytes, &self.connections].map(|count| count.load(Ordering::Relaxed))
    }

    /// A connection was turned away.
    pub(crate) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }
}

impl Allowance {
    /// An unused allowance that counts what it refuses in `refused`; `None` without any limit.
    pub fn new(whose: Whose, limits: Limits, refused: Arc<Refused>) -> Option<Self> {
        let rate = |units: Option<u64>| units.map(|units| (Rate::per_second(units), SharedSpent::default()));
        let (operations, bytes) = (rate(limits.operations), rate(limits.bytes));
        (operations.is_some() || bytes.is_some()).then_some(Self { whose, operations, bytes, refused })
    }

    /// The error for a request at `now`, if it is to be refused; counts it.
    pub(crate) fn refusal(&self, now: u64) -> Option<&'static str> {
        let is_over = |limit: &Option<(Rate, SharedSpent)>| limit.as_ref().is_some_and(|(_, spent)| spent.is_over(now));
        if is_over(&self.operations) {
            self.refused.operations.fetch_add(1, Ordering::Relaxed);
            return Some(match self.whose {
                Whose::Listener => "over the limit of operations a second of this listener",
                Whose::Address => "over the limit of operations a second of this client address",
                Whose::App => "over the limit of operations a second of this app",
            });
        }
        is_over(&self.bytes).then(|| {
            self.refused.bytes.fetch_add(1, Ordering::Relaxed);
            match self.whose {
                Whose::Listener => "over the limit of bytes a second of this listener",
                Whose::Address => "over the limit of bytes a second of this client address",
                Whose::App => "over the limit of bytes a second of this app",
            }
        })
    }

    /// Spends `operations` and `bytes` at `now`.
    pub(crate) fn spend(&self, now: u64, operations: u64, bytes: u64) {
        let spend = |limit: &Option<(Rate, SharedSpent)>, units| {
            if let Some((rate, spent)) = limit
                && units > 0
            {
                spent.spend(*rate, now, units);
            }
        };
        spend(&self.operations, operations);
        spend(&self.bytes, bytes);
    }

    /// Whether it is at `now` as if nothing had been spent.
    pub(crate) fn is_whole(&self, now: u64) -> bool {
        let is_whole = |limit: &Option<(Rate, SharedSpent)>| {
            limit.as_ref().is_none_or(|(rate, spent)| spent.is_forgotten(*rate, now))
        };
        is_whole(&self.operations) && is_whole(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use moneta_store::ErrorCode;

    use super::*;

    #[test]
    fn each_limit_is_told_and_counted_by_itself() {
        let refused = Arc::<Refused>::default();
        let limits = Limits { operations: Some(10), bytes: Some(1000) };
        let allowance = Allowance::new(Whose::App, limits, Arc::clone(&refused)).unwrap();
        let now = 100_000_000;
        assert_eq!(allowance.refusal(now), None);
        allowance.spend(now, 1, 5000);
        assert_eq!(allowance.refusal(now), Some("over the limit of bytes a second of this app"));
        allowance.spend(now, 30, 0);
        assert_eq!(allowance.refusal(now), Some("over the limit of operations a second of this app"));
        assert_eq!(ErrorCode::read(allowance.refusal(now).unwrap()).0, Some(ErrorCode::OverLimit));
        assert_eq!(refused.counts(), [2, 1, 0]);
        // Four seconds of bytes are owed, and two of operations.
        assert_eq!(allowance.refusal(now + 3_000_000), Some("over the limit of bytes a second of this app"));
        assert_eq!(allowance.refusal(now + 4_000_000), None);
        assert!(!allowance.is_whole(now + 4_500_000) && allowance.is_whole(now + 5_000_000));
    }

    #[test]
    fn without_limits_there_is_no_allowance() {
        assert!(Allowance::new(Whose::Address, Limits::default(), Arc::default()).is_none());
    }
}
