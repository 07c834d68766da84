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

/// Limits that may change while those that are under them go on.
#[derive(Debug, Default)]
pub struct LiveLimits {
    // 0: none. What is owed is kept as the time at which it is paid, so that another rate changes nothing of that.
    operations: AtomicU64,
    bytes: AtomicU64,
}

impl LiveLimits {
    /// These.
    pub fn new(limits: Limits) -> Arc<Self> {
        let new = Self::default();
        new.set(limits);
        Arc::new(new)
    }

    /// Sets both.
    pub fn set(&self, limits: Limits) {
        self.set_operations(limits.operations);
        self.set_bytes(limits.bytes);
    }

    /// Sets the limit on operations.
    pub fn set_operations(&self, most: Option<u64>) {
        self.operations.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    /// Sets the limit on bytes.
    pub fn set_bytes(&self, most: Option<u64>) {
        self.bytes.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether there is one.
    pub fn are_there(&self) -> bool {
        self.operations.load(Ordering::Relaxed) > 0 || self.bytes.load(Ordering::Relaxed) > 0
    }
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
    limits: Arc<LiveLimits>,
    operations: SharedSpent,
    bytes: SharedSpent,
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
    /// An unused allowance that counts what it refuses in `refused`.
    pub fn new(whose: Whose, limits: Arc<LiveLimits>, refused: Arc<Refused>) -> Self {
        Self { whose, limits, operations: SharedSpent::default(), bytes: SharedSpent::default(), refused }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limits.are_there()
    }

    /// Each limit that there is, with what was spent of it.
    fn each(&self) -> [Option<(Rate, &SharedSpent)>; 2] {
        let rate =
            |units: &AtomicU64| Some(units.load(Ordering::Relaxed)).filter(|units| *units > 0).map(Rate::per_second);
        let (operations, bytes) = (rate(&self.limits.operations), rate(&self.limits.bytes));
        [operations.map(|rate| (rate, &self.operations)), bytes.map(|rate| (rate, &self.bytes))]
    }

    /// The error for a request at `now`, if it is to be refused; counts it.
    pub(crate) fn refusal(&self, now: u64) -> Option<&'static str> {
        let [operations, bytes] = self.each();
        let is_over = |limit: Option<(Rate, &SharedSpent)>| limit.is_some_and(|(_, spent)| spent.is_over(now));
        if is_over(operations) {
            self.refused.operations.fetch_add(1, Ordering::Relaxed);
            return Some(match self.whose {
                Whose::Listener => "over the limit of operations a second of this listener",
                Whose::Address => "over the limit of operations a second of this client address",
                Whose::App => "over the limit of operations a second of this app",
            });
        }
        is_over(bytes).then(|| {
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
        for (limit, units) in self.each().into_iter().zip([operations, bytes]) {
            if let Some((rate, spent)) = limit
                && units > 0
            {
                spent.spend(rate, now, units);
            }
        }
    }

    /// Whether it is at `now` as if nothing had been spent.
    pub(crate) fn is_whole(&self, now: u64) -> bool {
        self.each().into_iter().flatten().all(|(rate, spent)| spent.is_forgotten(rate, now))
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
        let limits = LiveLimits::new(limits);
        let allowance = Allowance::new(Whose::App, Arc::clone(&limits), Arc::clone(&refused));
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
    fn a_limit_that_changes_counts_from_then_on() {
        let limits = LiveLimits::new(Limits::default());
        let allowance = Allowance::new(Whose::Address, Arc::clone(&limits), Arc::default());
        let now = 100_000_000;
        allowance.spend(now, 1_000, 1_000);
        assert!(!allowance.is_limited() && allowance.refusal(now).is_none());
        limits.set_operations(Some(10));
        assert!(allowance.is_limited() && allowance.refusal(now).is_none(), "what was free is not owed");
        allowance.spend(now, 1_000, 0);
        assert!(allowance.refusal(now).is_some());
        limits.set_operations(None);
        assert!(allowance.refusal(now).is_none());
    }
}
