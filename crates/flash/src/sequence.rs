//! Sequence numbers of records: they order versions, serve as CAS values, and tell when a record was written.
//!
//! A number is the Unix second shifted left by 24 bits, or the previous number plus one if that is greater. So numbers grow,
//! also across restarts, without being written anywhere.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_SHIFT: u32 = 24;

/// Where numbers come from.
#[derive(Debug)]
pub(crate) struct Sequence(AtomicU64);

impl Sequence {
    /// Numbers above `floor`.
    pub(crate) fn above(floor: u64) -> Self {
        Self(AtomicU64::new(floor))
    }

    /// The next number, given the current second.
    #[inline]
    pub(crate) fn next(&self, now: u32) -> u64 {
        let time = u64::from(now) << SECOND_SHIFT;
        let next = |last: u64| (last + 1).max(time);
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        next(last.unwrap_or_else(|last| last))
    }

    /// A floor for the next run of the node, in case it begins in the same second as this one: above all numbers this run gives
    /// out before the clock reaches it.
    pub(crate) fn next_floor(&self) -> u64 {
        self.0.load(Ordering::Relaxed) + (1 << SECOND_SHIFT)
    }

    /// Makes all further numbers greater than `floor`.
    pub(crate) fn raise(&self, floor: u64) {
        self.0.fetch_max(floor, Ordering::Relaxed);
    }
}

/// The second in which a number was given out, provided that no second needed more than 2^24 numbers.
pub(crate) fn second_of(sequence: u64) -> u32 {
    u32::try_from(sequence >> SECOND_SHIFT).unwrap_or(u32::MAX)
}

/// A floor above every number given out by a node that ended before `now`, even if all its records are lost.
pub(crate) fn floor_at(now: u32) -> u64 {
    (u64::from(now) + 1) << SECOND_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_tell_their_second() {
        let sequence = Sequence::above(0);
        let first = sequence.next(100);
        assert_eq!(second_of(first), 100);
        assert!(sequence.next(99) > first);
        assert!(sequence.next(101) > first);
        sequence.raise(floor_at(200));
        assert!(second_of(sequence.next(200)) > 200);
    }
}
