//! A budget for second tries: a share of the first ones.

use std::sync::atomic::{AtomicI64, Ordering};

/// Hundredths that one second try costs.
const COST: i64 = 100;
/// Second tries that can be saved up.
const SAVED: i64 = 150;
/// Of these, those that are kept for reads that failed: a load that misses a lot spends all others, and a node may die meanwhile.
const KEPT: i64 = 50;

/// Second tries that are left, in hundredths.
#[derive(Debug)]
pub(crate) struct Budget(AtomicI64);

impl Budget {
    pub(crate) fn new() -> Self {
        Self(AtomicI64::new(SAVED * COST))
    }

    /// A first try earns `share` hundredths of a second one.
    #[inline]
    pub(crate) fn earn(&self, share: u32) {
        if self.0.load(Ordering::Relaxed) < SAVED * COST {
            self.0.fetch_add(i64::from(share), Ordering::Relaxed);
        }
    }

    /// Takes a second try, if there is one, for a read that failed, or else missed.
    pub(crate) fn take(&self, has_failed: bool) -> bool {
        let kept = if has_failed { 0 } else { KEPT };
        if self.0.fetch_sub(COST, Ordering::Relaxed) >= (kept + 1) * COST {
            return true;
        }
        self.0.fetch_add(COST, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_tries_are_a_share_of_the_first() {
        let budget = Budget::new();
        let mut second = 0;
        for _ in 0..10_000 {
            budget.earn(20);
            second += u32::from(budget.take(true));
        }
        assert!((2000..=2000 + SAVED as u32).contains(&second), "{second}");
    }

    #[test]
    fn misses_leave_some_for_what_fails() {
        let budget = Budget::new();
        for _ in 0..10_000 {
            budget.earn(20);
            budget.take(false);
        }
        let failed = (0..100).filter(|_| budget.take(true)).count() as i64;
        assert!((KEPT..=KEPT + 1).contains(&failed), "{failed}");
        assert!(!budget.take(false));
    }
}
