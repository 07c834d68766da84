//! Stamps of records: versions, which order the writes of a key, serve as CAS values, and tell when a record was written.
//!
//! Stamps grow, also from one run of the node to the next: a floor above those that were given out is kept on the device.
//!
//! In formats 1 and 2 a stamp was the Unix second shifted by 24 bits, or one more than the stamp before. These are below 2^57
//! for centuries, and versions have been above it since 2021.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moneta_store::{Clock, Lane, Origin, Version, next_local};

/// Stamps below this are of formats 1 and 2.
const VERSIONS_FROM: u64 = 1 << 57;
const OLD_SECOND_SHIFT: u32 = 24;
/// By how much writes are taken to come later to the device than two flush intervals after they were made, in milliseconds.
const LATE: u64 = 1000;

/// The moment of a stamp's time and counter, in milliseconds since the Unix epoch.
pub(crate) fn millis_of(stamp: u64) -> u64 {
    Version::new(stamp, Origin(0)).millis()
}

/// Where versions come from.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Time and counter of the last one.
    last: AtomicU64,
    origin: Origin,
    lane: Lane,
    clock: Arc<Clock>,
}

impl Sequence {
    /// Versions of an origin above the stamp `floor`; counters begin where `salt` says.
    pub(crate) fn above(floor: u64, origin: Origin, salt: u64, clock: Arc<Clock>) -> Self {
        Self {
            last: AtomicU64::new(local_of(floor).max(local_of(VERSIONS_FROM))),
            origin,
            lane: Lane::whole(salt),
            clock,
        }
    }

    /// Milliseconds since the Unix epoch.
    pub(crate) fn millis(&self) -> u64 {
        self.clock.millis()
    }

    /// The version of a write that happens now.
    #[inline]
    pub(crate) fn next(&self) -> Version {
        let millis = self.clock.millis();
        let next = |last: u64| next_local(last, millis, self.lane);
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Version::new(next(last.unwrap_or_else(|last| last)), self.origin)
    }

    /// At least every version given out or seen.
    pub(crate) fn newest(&self) -> Version {
        Version::new(self.last.load(Ordering::Relaxed), Origin(u8::MAX))
    }

    /// A floor for the next run of the node, should it begin in the same second as this one: above all versions that this one
    /// gives out before the clock is as far.
    pub(crate) fn next_floor(&self) -> u64 {
        Version::at(self.newest().millis() + 1000).max(self.newest()).0
    }

    /// Makes all further versions greater than a stamp.
    pub(crate) fn raise(&self, stamp: u64) {
        self.last.fetch_max(local_of(stamp), Ordering::Relaxed);
    }
}

/// Time and counter of a stamp of any format.
fn local_of(stamp: u64) -> u64 {
    if stamp >= VERSIONS_FROM {
        return Version(stamp).local();
    }
    match stamp >> OLD_SECOND_SHIFT {
        0 => 0,
        second => Version::at((second + 1) * 1000).local(),
    }
}

/// The stamp that is `sequence` after `base`: of a version, in time and counter.
#[inline]
pub(crate) fn stamp_after(base: u64, sequence: u64) -> u64 {
    let step = if base >= VERSIONS_FROM { Version::new(sequence, Origin(0)).0 } else { sequence };
    base.saturating_add(step)
}

/// The Unix second in which a stamp was given out, about.
pub(crate) fn second_of(stamp: u64) -> u32 {
    let second = if stamp >= VERSIONS_FROM { Version(stamp).millis() / 1000 } else { stamp >> OLD_SECOND_SHIFT };
    u32::try_from(second).unwrap_or(u32::MAX)
}

/// A floor above every version that a node can have given out which ended before `now`, in milliseconds since the Unix epoch, and
/// took none that were further ahead of its clock than `ahead` milliseconds.
pub(crate) fn floor_at(now: u64, ahead: u64) -> u64 {
    Version::at(now + ahead + 1).0
}

/// A floor above what a node gave out that was killed, where the clock, at `now`, was set back since: then it does not pass by
/// itself what was lost behind `last`, the newest stamp that was not. Writes reach the device within `interval`, as a rule.
pub(crate) fn floor_above_lost(last: u64, interval: Duration, now: u64, ahead: u64) -> u64 {
    let last = millis_of(local_of(last));
    let lost = 2 * u64::try_from(interval.as_millis()).unwrap_or(u64::MAX / 4) + LATE;
    if last > now + ahead { Version::at(last + lost).0 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_790_000_000;

    fn above(floor: u64, now: u32) -> (Sequence, Arc<Clock>) {
        let clock = Arc::new(Clock::manual(now));
        (Sequence::above(floor, Origin::new(1, 2), 7, Arc::clone(&clock)), clock)
    }

    #[test]
    fn stamps_grow_and_tell_their_second() {
        let (sequence, clock) = above(0, NOW);
        let first = sequence.next();
        assert_eq!((second_of(first.0), first.origin()), (NOW, Origin::new(1, 2)));
        clock.set_millis(u64::from(NOW - 1) * 1000);
        assert!(sequence.next() > first);
        clock.advance(2);
        assert!(sequence.next() > first);
        sequence.raise(floor_at(u64::from(NOW + 101) * 1000, 0));
        assert!(second_of(sequence.next().0) > NOW + 100);
        assert!(sequence.next_floor() > sequence.newest().0);
    }

    #[test]
    fn stamps_of_older_formats_are_below_and_raise_by_their_second() {
        let old = u64::from(NOW) << OLD_SECOND_SHIFT | 5;
        assert_eq!(second_of(old), NOW);
        let (sequence, _) = above(old, 0);
        assert!(sequence.next().0 > old && second_of(sequence.next().0) == NOW + 1);
    }
}
