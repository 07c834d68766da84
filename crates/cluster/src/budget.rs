//! A budget for second tries: a share of the first ones.

use std::sync::atomic::{AtomicI64, Ordering};

/// Hundredths that one second try costs.
const COST: i64 = 100;
/// Second tries that can be saved up.
const SAVED: i64 = 100;

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

    /// Takes a second try, if there is one.
    pub(crate) fn take(&self) -> bool {
        if self.0.fetch_sub(COST, Ordering::Relaxed) >= COST {
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
            second += u32::from(budget.take());
        }
        assert!((2000..=2100).contains(&second), "{second}");
    }
}
