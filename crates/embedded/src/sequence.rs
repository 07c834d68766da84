//! Sequence numbers: they order what was stored, are the CAS values of what clients write here, and never come again, not after a
//! crash and not where the system's clock is turned back.
//!
//! A number is a version (`moneta_item::version`): greater than all that were given out or seen here. In a folder that a lone
//! node began numbers are counted up from 1, and are no versions. The manifest holds a floor above all numbers given out; it is
//! raised ahead, so that hardly any request ever waits for that. A process that was killed begins at the floor. One of several
//! copies raises it by less: versions that are far ahead of the clock are refused elsewhere.
//!
//! Before there were versions a number was the Unix second shifted by 24 bits. Those are less than all versions, and above 2^53,
//! which no count reaches.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::versions::Versioning;
use moneta_store::{Lane, Origin, Version, next_local};
use parking_lot::Mutex;

/// How far the floor is raised at a time, in milliseconds,
const STRIDE: u64 = 60_000;
/// and by one of several copies;
const STRIDE_IN_CLUSTER: u64 = 2000;
/// of numbers that are counted, how many of them.
const STRIDE_COUNTED: u64 = 1 << 20;
/// Numbers below this are counted.
const COUNTED_END: u64 = 1 << 53;
/// The floor is not raised ahead of time when no number was given out for so many milliseconds.
const IDLE: u64 = 60_000;

/// Where numbers come from.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// The last one: its time and counter, or all of it if they are counted.
    last: AtomicU64,
    counts: bool,
    /// Numbers below it may be given out.
    floor: AtomicU64,
    // Held while the floor is raised, so that it is written once.
    raising: Mutex<()>,
    origin: Origin,
    lane: Lane,
    stride: u64,
}

impl Sequence {
    /// Numbers from `floor` on, none of which may be given out yet.
    pub(crate) fn from(floor: u64, versioning: &Versioning) -> Self {
        let counts = versioning.counts_from.is_some() && floor < COUNTED_END;
        Self {
            last: AtomicU64::new(if counts { floor } else { Version(floor).local() }),
            counts,
            floor: AtomicU64::new(floor),
            raising: Mutex::new(()),
            origin: versioning.origin,
            lane: Lane::whole(versioning.salt),
            stride: if versioning.cluster { STRIDE_IN_CLUSTER } else { STRIDE },
        }
    }

    /// Whether numbers are counted, and so no versions.
    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    /// The next number, at `millis` since the Unix epoch. `raise` writes a new floor down.
    #[inline]
    pub(crate) fn next(&self, millis: u64, raise: impl Fn(u64) -> std::io::Result<()>) -> std::io::Result<u64> {
        let number = if self.counts {
            self.last.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            let next = |last: u64| next_local(last, millis, self.lane);
            let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
            Version::new(next(last.unwrap_or_else(|last| last)), self.origin).0
        };
        if number >= self.floor.load(Ordering::Acquire) {
            self.raise_above(number, raise)?;
        }
        Ok(number)
    }

    /// Makes all further numbers greater than a version. Where they are counted there are none.
    pub(crate) fn note(&self, seen: Version) {
        if !self.counts {
            self.last.fetch_max(seen.local(), Ordering::Relaxed);
        }
    }

    /// The number given out last, or a higher one that will not be.
    pub(crate) fn last(&self) -> u64 {
        let last = self.last.load(Ordering::Relaxed);
        if self.counts { last } else { Version::new(last, Origin(u8::MAX)).0 }
    }

    /// Raises the floor if it will soon be reached: for a thread that may wait.
    pub(crate) fn renew(&self, millis: u64, raise: impl Fn(u64) -> std::io::Result<()>) -> std::io::Result<()> {
        let last = Version(self.last());
        if self.counts {
            let soon = last.0 + STRIDE_COUNTED / 2;
            return if soon >= self.floor.load(Ordering::Acquire) { self.raise_above(soon, raise) } else { Ok(()) };
        }
        if last.millis() + IDLE < millis {
            return Ok(());
        }
        let soon = Version::at(last.millis().max(millis) + self.stride / 2).0;
        if soon >= self.floor.load(Ordering::Acquire) { self.raise_above(soon, raise) } else { Ok(()) }
    }

    #[cold]
    fn raise_above(&self, number: u64, raise: impl Fn(u64) -> std::io::Result<()>) -> std::io::Result<()> {
        let _one_at_a_time = self.raising.lock();
        if number >= self.floor.load(Ordering::Acquire) {
            let floor = match self.counts {
                true => number + STRIDE_COUNTED,
                false => Version::at(Version(number).millis() + 1 + self.stride).0,
            };
            raise(floor)?;
            self.floor.store(floor, Ordering::Release);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    fn from(floor: u64) -> Sequence {
        Sequence::from(floor, &Versioning { cluster: true, origin: Origin::new(1, 2), ..Versioning::default() })
    }

    #[test]
    fn numbers_grow_whatever_the_clock_does_and_whenever_it_ends() {
        let written = AtomicU64::new(77 << 24);
        let raise = |floor| {
            written.store(floor, Ordering::Relaxed);
            Ok(())
        };
        let mut highest = 0;
        for ahead in [100_000, 100_000, 100_001, 5_000_000, 7, 7, 6_000_000] {
            let sequence = from(written.load(Ordering::Relaxed));
            for _ in 0..100 {
                let number = sequence.next(NOW + ahead, raise).expect("a number");
                assert!(number > highest && number < written.load(Ordering::Relaxed));
                highest = number;
            }
        }
        assert_eq!(Version(highest).origin(), Origin::new(1, 2));
    }

    #[test]
    fn a_version_that_was_seen_is_passed_also_after_a_kill() {
        let written = AtomicU64::new(0);
        let raise = |floor| {
            written.store(floor, Ordering::Relaxed);
            Ok(())
        };
        let sequence = from(0);
        sequence.next(NOW, raise).expect("a number");
        let seen = Version(Version::at(NOW + 5000).0 | 0x1ff);
        sequence.note(seen);
        let number = sequence.next(NOW, raise).expect("a number");
        assert!(number > seen.0 && from(written.load(Ordering::Relaxed)).next(NOW, raise).expect("a number") > number);
    }

    #[test]
    fn counted_numbers_pass_by_what_a_kill_may_have_lost_and_no_more() {
        let lone = Versioning { counts_from: Some(0), ..Versioning::default() };
        let written = AtomicU64::new(0);
        let raise = |floor| {
            written.store(floor, Ordering::Relaxed);
            Ok(())
        };
        let mut highest = 0;
        for kill in 0..3 {
            let sequence = Sequence::from(written.load(Ordering::Relaxed), &lone);
            for _ in 0..100 {
                let number = sequence.next(NOW, raise).expect("a number");
                assert!(number > highest && number <= 100 + kill * (STRIDE_COUNTED + 1), "{number} after {kill} kills");
                highest = number;
            }
            sequence.renew(NOW, |_| panic!("far from half of them are used")).expect("nothing fails");
        }
        let old = Sequence::from(77 << 53, &lone);
        assert!(!old.counts() && old.next(NOW, |_| Ok(())).expect("a number") > Version::at(NOW).0);
    }

    #[test]
    fn a_floor_that_cannot_be_written_gives_no_number() {
        let sequence = from(0);
        assert!(sequence.next(NOW, |_| Err(std::io::ErrorKind::StorageFull.into())).is_err());
        assert!(sequence.next(NOW, |_| Ok(())).is_ok());
    }

    #[test]
    fn a_floor_raised_in_time_makes_no_request_wait() {
        let sequence = from(0);
        sequence.next(NOW, |_| Ok(())).expect("the first waits");
        for millis in (NOW..NOW + 200_000).step_by(1000) {
            sequence.renew(millis, |_| Ok(())).expect("it is written");
            sequence.next(millis, |_| panic!("a request raises the floor")).expect("a number");
        }
        // Where nothing is written, nothing is raised.
        sequence.renew(NOW + 1_000_000, |_| panic!("a floor is raised for nothing")).expect("nothing fails");
    }
}
