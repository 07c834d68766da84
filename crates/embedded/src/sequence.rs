//! Sequence numbers: they order versions, serve as CAS values, and never come again, not after a crash and not where the
//! system's clock is turned back.
//!
//! A number is the Unix second shifted by 24 bits, or one more than the number before if that is not less. The manifest holds a
//! floor above all numbers given out; it is raised a minute ahead, so that hardly any request ever waits for that.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

const SECOND_SHIFT: u32 = 24;

/// How far the floor is raised at a time: a minute's worth of numbers.
const STRIDE: u64 = 60 << SECOND_SHIFT;

/// Where numbers come from.
#[derive(Debug)]
pub(crate) struct Sequence {
    last: AtomicU64,
    /// Numbers below it may be given out.
    floor: AtomicU64,
    // Held while the floor is raised, so that it is written once.
    raising: Mutex<()>,
}

impl Sequence {
    /// Numbers from `floor` on, none of which may be given out yet.
    pub(crate) fn from(floor: u64) -> Self {
        Self { last: AtomicU64::new(floor), floor: AtomicU64::new(floor), raising: Mutex::new(()) }
    }

    /// The next number, given the current second. `raise` writes a new floor down.
    #[inline]
    pub(crate) fn next(&self, now: u32, raise: impl Fn(u64) -> std::io::Result<()>) -> std::io::Result<u64> {
        let time = u64::from(now) << SECOND_SHIFT;
        let next = |last: u64| (last + 1).max(time);
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        let number = next(last.unwrap_or_else(|last| last));
        if number >= self.floor.load(Ordering::Acquire) {
            self.raise_above(number, raise)?;
        }
        Ok(number)
    }

    /// The number given out last, or a higher one that will not be.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Raises the floor if it will soon be reached: for a thread that may wait.
    pub(crate) fn renew(&self, now: u32, raise: impl Fn(u64) -> std::io::Result<()>) -> std::io::Result<()> {
        let soon = self.last().max(u64::from(now) << SECOND_SHIFT) + STRIDE / 2;
        if soon >= self.floor.load(Ordering::Acquire) { self.raise_above(soon, raise) } else { Ok(()) }
    }

    #[cold]
    fn raise_above(&self, number: u64, raise: impl Fn(u64) -> std::io::Result<()>) -> std::io::Result<()> {
        let _one_at_a_time = self.raising.lock();
        if number >= self.floor.load(Ordering::Acquire) {
            let floor = number + STRIDE;
            raise(floor)?;
            self.floor.store(floor, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_whatever_the_clock_does_and_whenever_it_ends() {
        let written = AtomicU64::new(0);
        let raise = |floor| {
            written.store(floor, Ordering::Relaxed);
            Ok(())
        };
        let mut highest = 0;
        for now in [100, 100, 101, 5000, 7, 7, 6000] {
            let sequence = Sequence::from(written.load(Ordering::Relaxed));
            for _ in 0..100 {
                let number = sequence.next(now, raise).expect("a number");
                assert!(number > highest && number < written.load(Ordering::Relaxed));
                highest = number;
            }
        }
    }

    #[test]
    fn a_floor_that_cannot_be_written_gives_no_number() {
        let sequence = Sequence::from(0);
        assert!(sequence.next(100, |_| Err(std::io::ErrorKind::StorageFull.into())).is_err());
        assert!(sequence.next(100, |_| Ok(())).is_ok());
    }

    #[test]
    fn a_floor_raised_in_time_makes_no_request_wait() {
        let sequence = Sequence::from(0);
        for now in 100..300 {
            sequence.renew(now, |_| Ok(())).expect("it is written");
            sequence.next(now, |_| panic!("a request raises the floor")).expect("a number");
        }
    }
}
