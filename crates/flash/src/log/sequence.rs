//! Stamps of records: they order the writes of a key, serve as CAS values, and tell when a record was written.
//!
//! | stamps | are | of |
//! |---|---|---|
//! | below 2^53 | counted up from 1 | a tier that a lone node began |
//! | below 2^57 | the Unix second shifted by 24 bits, or one more than the stamp before | formats 1 and 2 |
//! | from there on | versions; they have been above 2^57 since 2021 | all others |
//!
//! Stamps grow, also from one run of the node to the next: a floor above those that were given out is kept on the device. Counted
//! ones are given out below that floor, which is raised ahead of them; so a killed node passes by those that it may have given
//! out, and no more than [`AHEAD`] others. A tier of a lone node goes on with versions if it has had any, and one of several
//! copies always does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use moneta_device::format::stamp::{
    COUNTED_BITS, COUNTED_END, COUNTED_SPAN, VERSIONS_FROM, VERSIONS_SPAN, local_of, millis_of,
};
use moneta_store::{Clock, Lane, Origin, Version, next_local};

/// Counted stamps that superblocks allow ahead of those that are given out. They are written once for half as many.
const AHEAD: u64 = 1 << 20;
/// By how much writes are taken to come later to the device than two flush intervals after they were made, in milliseconds.
const LATE: u64 = 1000;

/// Where stamps come from.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// The last one: its time and counter, or all of it if they are counted.
    last: AtomicU64,
    /// They are counted. Changes only while a tier is opened.
    counts: AtomicBool,
    /// Counted stamps up to this one may be given out.
    reserved: AtomicU64,
    origin: Origin,
    lane: Lane,
    clock: Arc<Clock>,
}

impl Sequence {
    /// Versions of an origin above the stamp `floor`; counters begin where `salt` says.
    pub(crate) fn above(floor: u64, origin: Origin, salt: u64, clock: Arc<Clock>) -> Self {
        Self {
            last: AtomicU64::new(local_of(floor).max(local_of(VERSIONS_FROM))),
            counts: AtomicBool::new(false),
            reserved: AtomicU64::new(u64::MAX),
            origin,
            lane: Lane::whole(salt),
            clock,
        }
    }

    /// Stamps that are counted, above `floor`. Should a tier turn out to have others, versions as of [`Sequence::above`].
    pub(crate) fn counted(floor: u64, origin: Origin, salt: u64, clock: Arc<Clock>) -> Self {
        let (last, counts, reserved) = (AtomicU64::new(floor), AtomicBool::new(true), AtomicU64::new(floor));
        Self { last, counts, reserved, ..Self::above(0, origin, salt, clock) }
    }

    /// Whether a tier that was left with the floor `floor` has stamps that are no counted ones.
    pub(crate) fn has_versions(floor: u64) -> bool {
        floor >= COUNTED_END
    }

    /// Whether stamps are counted, and so no versions.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// Milliseconds since the Unix epoch.
    pub(crate) fn millis(&self) -> u64 {
        self.clock.millis()
    }

    /// The stamp of a write that happens now.
    #[inline]
    pub(crate) fn next(&self) -> Version {
        if self.counts() {
            return Version(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        }
        let millis = self.clock.millis();
        let next = |last: u64| next_local(last, millis, self.lane);
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Version::new(next(last.unwrap_or_else(|last| last)), self.origin)
    }

    /// What the stamps of a region count from that is begun now.
    pub(crate) fn base(&self) -> Version {
        if self.counts() { self.newest() } else { self.next() }
    }

    /// A record's sequence number in a region with this base; `None` if it is too far from that.
    #[inline]
    pub(crate) fn place(&self, base: Version, stamp: Version) -> Option<u64> {
        if self.counts() {
            let distance = stamp.0.checked_sub(base.0).filter(|distance| *distance < COUNTED_SPAN)?;
            return Some(distance | ((u64::from(self.clock.now()) % COUNTED_SPAN) << COUNTED_BITS));
        }
        Some(stamp.local().wrapping_sub(base.local())).filter(|distance| *distance < VERSIONS_SPAN)
    }

    /// Whether it is time to have superblocks allow more stamps, given the last one.
    #[inline]
    pub(crate) fn is_low(&self, stamp: Version) -> bool {
        stamp.0.saturating_add(AHEAD / 2) > self.reserved.load(Ordering::Acquire)
    }

    /// Whether superblocks do not allow this stamp yet: after a kill it would be given out again.
    pub(crate) fn is_spent(&self, stamp: Version) -> bool {
        stamp.0 > self.reserved.load(Ordering::Acquire)
    }

    /// A floor to write to superblocks, if few stamps are left below the last one.
    pub(crate) fn wanted_floor(&self) -> Option<u64> {
        (self.counts() && self.is_low(self.newest())).then(|| self.next_floor())
    }

    /// Superblocks have that floor.
    pub(crate) fn allow(&self, floor: u64) {
        if self.counts() {
            self.reserved.fetch_max(floor, Ordering::AcqRel);
        }
    }

    /// The floor that superblocks are to have after a clean stop, if it is another than before: then nothing need be passed by.
    pub(crate) fn last_floor(&self) -> Option<u64> {
        self.counts().then(|| self.newest().0)
    }

    /// At least every stamp given out or seen.
    pub(crate) fn newest(&self) -> Version {
        let last = self.last.load(Ordering::Relaxed);
        if self.counts() { Version(last) } else { Version::new(last, Origin(u8::MAX)) }
    }

    /// A floor for the next run of the node. Of versions, should that begin in the same second as this one: above all that this
    /// one gives out before the clock is as far.
    pub(crate) fn next_floor(&self) -> u64 {
        if self.counts() {
            return self.newest().0 + AHEAD;
        }
        Version::at(self.newest().millis() + 1000).max(self.newest()).0
    }

    /// Makes all further stamps greater than one.
    pub(crate) fn raise(&self, stamp: u64) {
        if self.counts() {
            if stamp < COUNTED_END {
                self.last.fetch_max(stamp, Ordering::Relaxed);
                return;
            }
            // Of a tier of format 1, whose superblocks have no floor.
            self.counts.store(false, Ordering::Relaxed);
            self.reserved.store(u64::MAX, Ordering::Relaxed);
            self.last.store(local_of(floor_at(self.clock.millis(), 0)), Ordering::Relaxed);
        }
        self.last.fetch_max(local_of(stamp), Ordering::Relaxed);
    }
}

/// A floor above every version that a node can have given out which ended before `now`, in milliseconds since the Unix epoch, and
/// took none that were further ahead of its clock than `ahead` milliseconds.
pub(crate) fn floor_at(now: u64, ahead: u64) -> u64 {
    Version::at(now + ahead + 1).0
}

/// A floor above what a node gave out that was killed, where the clock, at `now`, was set back since: then it does not pass by
/// itself what was lost after `last`, the newest stamp that was not. Writes reach the device within `interval`, as a rule.
pub(crate) fn floor_above_lost(last: u64, interval: Duration, now: u64, ahead: u64) -> u64 {
    let last = millis_of(local_of(last));
    let lost = 2 * u64::try_from(interval.as_millis()).unwrap_or(u64::MAX / 4) + LATE;
    if last > now + ahead { Version::at(last + lost).0 } else { 0 }
}

#[cfg(test)]
mod tests {
    use moneta_device::format::stamp::{OLD_SECOND_SHIFT, second_before, second_of, second_written, stamp_after};

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
    fn counted_stamps_tell_their_second_for_half_a_year() {
        let clock = Arc::new(Clock::manual(NOW));
        let sequence = Sequence::counted(41, Origin::default(), 7, Arc::clone(&clock));
        let base = sequence.base();
        let stamp = sequence.next();
        assert_eq!((base, stamp), (Version(41), Version(42)));
        let place = sequence.place(base, stamp).expect("it is near");
        assert_eq!(stamp_after(base.0, place), 42);
        for ago in [0, 1, 100_000, 180 * 86400] {
            assert_eq!(second_before(NOW + ago, second_written(base.0, place)), NOW);
        }
        assert_eq!(second_before(NOW - 60, second_written(base.0, place)), NOW - 60, "the clock was set back");
        sequence.raise(base.0 + COUNTED_SPAN);
        assert_eq!(sequence.place(base, sequence.next()), None);
    }

    #[test]
    fn counted_stamps_go_on_above_what_was_reserved_and_give_way_to_versions() {
        let clock = Arc::new(Clock::manual(NOW));
        let counted = |floor| Sequence::counted(floor, Origin::default(), 7, Arc::clone(&clock));
        let sequence = counted(0);
        let floor = sequence.wanted_floor().expect("nothing is reserved");
        assert!(sequence.is_spent(sequence.next()));
        sequence.allow(floor);
        assert_eq!((sequence.wanted_floor(), sequence.is_spent(Version(floor))), (None, false));
        (0..AHEAD / 2).for_each(|_| _ = sequence.next());
        let next = sequence.wanted_floor().expect("half of it is used");
        assert!(next > floor && counted(floor).next().0 == floor + 1 && !Sequence::has_versions(next));
        // A tier of format 1.
        sequence.raise(u64::from(NOW + 5) << OLD_SECOND_SHIFT);
        assert!(!sequence.counts() && second_of(sequence.next().0) == NOW + 6);
    }

    #[test]
    fn stamps_of_older_formats_are_below_and_raise_by_their_second() {
        let old = u64::from(NOW) << OLD_SECOND_SHIFT | 5;
        assert_eq!(second_of(old), NOW);
        let (sequence, _) = above(old, 0);
        assert!(sequence.next().0 > old && second_of(sequence.next().0) == NOW + 1);
    }
}
