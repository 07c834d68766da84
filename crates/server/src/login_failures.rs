//! Log-ins that failed lately, by address: who guesses passwords over many connections runs out of tries.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::address::network;
use crate::rate::{Rate, Spent};

/// Addresses that are remembered at most: half a MiB.
const ADDRESSES_MAX: usize = 10_000;

/// Failed log-ins by address.
#[derive(Debug, Default)]
pub(crate) struct LoginFailures {
    /// Failures of an address in a minute; 0: no limit.
    most: AtomicU32,
    // Taken for log-ins only.
    by_address: Mutex<HashMap<IpAddr, Spent>>,
    refused: AtomicU64,
}

impl LoginFailures {
    /// Admits `most` failures of an address in a minute; 0: any number.
    pub(crate) fn new(most: u32) -> Self {
        Self { most: AtomicU32::new(most), ..Self::default() }
    }

    /// As [`LoginFailures::new`], from now on. What addresses owe stays.
    pub(crate) fn set(&self, most: u32) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn rate(&self) -> Option<Rate> {
        let most = self.most.load(Ordering::Relaxed);
        (most > 0).then(|| Rate::per_minute(most.into()))
    }

    /// Whether a log-in from `address` may be tried at `now` of [`crate::rate::now`].
    pub(crate) fn admits(&self, address: IpAddr, now: u64) -> bool {
        let over = |spent: &Spent| spent.is_over(now);
        let admits = self.rate().is_none() || !self.by_address.lock().get(&network(address)).is_some_and(over);
        if !admits {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admits
    }

    /// Log-ins that were refused untried.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A log-in from `address` has failed at `now` of [`crate::rate::now`].
    pub(crate) fn note(&self, address: IpAddr, now: u64) {
        let Some(rate) = self.rate() else { return };
        let (address, now) = (network(address), now);
        let mut known = self.by_address.lock();
        if known.len() >= ADDRESSES_MAX && !known.contains_key(&address) {
            known.retain(|_, spent| !spent.is_forgotten(rate, now));
            // Of as many that failed within a minute, half are forgotten: more addresses than that cannot be held off one by one.
            if known.len() >= ADDRESSES_MAX {
                let mut number = 0;
                known.retain(|_, _| {
                    number += 1;
                    number % 2 == 0
                });
            }
        }
        known.entry(address).or_default().spend(rate, now, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_often_waits_and_others_do_not() {
        let (failures, now) = (LoginFailures::new(10), 100_000_000);
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let tries = (0..100)
            .filter(|_| {
                failures.admits(one, now) && {
                    failures.note(one, now);
                    true
                }
            })
            .count();
        assert_eq!((tries, failures.refused()), (11, 89));
        assert!(failures.admits(other, now));
        assert!(!failures.admits(one, now + 5_000_000) && failures.admits(one, now + 6_000_000));
    }

    #[test]
    fn as_many_addresses_as_there_may_be_take_a_bounded_place() {
        let failures = LoginFailures::new(10);
        for number in 0..3 * ADDRESSES_MAX as u32 {
            failures.note(IpAddr::from(number.to_be_bytes()), 100_000_000);
        }
        assert!(failures.by_address.lock().len() <= ADDRESSES_MAX);
    }

    #[test]
    fn a_limit_that_changes_counts_from_then_on() {
        let (failures, address, now) = (LoginFailures::new(0), IpAddr::from([10, 0, 0, 1]), 100_000_000);
        failures.set(1);
        (0..3).for_each(|_| failures.note(address, now));
        assert!(!failures.admits(address, now));
        failures.set(0);
        assert!(failures.admits(address, now));
    }

    #[test]
    fn without_a_limit_nothing_is_remembered() {
        let (failures, address) = (LoginFailures::new(0), IpAddr::from([10, 0, 0, 1]));
        (0..100).for_each(|_| failures.note(address, 1));
        assert!(failures.admits(address, 1) && failures.by_address.lock().is_empty());
    }
}
