//! Versions: the numbers that order all writes of a key, on every node, in every zone and region.
//!
//! ```text
//!  63                                    22 21            8 7      4 3      0
//! +----------------------------------------+---------------+--------+--------+
//! | milliseconds since 2020-01-01 UTC, 42 b | counter, 14 b | region | writer |
//! +----------------------------------------+---------------+--------+--------+
//! ```
//!
//! A version is a hybrid logical clock: of two versions the greater one was made later, or at about the same time. It is also
//! the item's CAS value. Version 0 is older than every other: it stands for items whose CAS value a client chose, and for those
//! that were stored before there were versions.
//!
//! Source of the clock: Kulkarni and others, "Logical Physical Clocks and Consistent Snapshots in Globally Distributed
//! Databases", 2014. The 64 bits are laid out for this cache.

/// 2020-01-01 00:00:00 UTC, in milliseconds since the Unix epoch.
pub const EPOCH_MILLIS: u64 = 1_577_836_800_000;
/// Bits of the counter.
pub const COUNTER_BITS: u32 = 14;
/// Bits of region and writer.
pub const ORIGIN_BITS: u32 = 8;
/// Where the counter begins in a millisecond: anywhere below this, so that clocks that know nothing of each other seldom make
/// the same version. What is left of its range is 8192 versions a millisecond.
const START_RANGE: u64 = 1 << (COUNTER_BITS - 1);
/// First of the two counters of a millisecond that no clock gives out: under the first one a rollback takes what was there, and under
/// the other one it writes.
const ROLLBACK: u64 = (1 << COUNTER_BITS) - 2;
/// By how much in the counter a clock goes on above what it has seen, at most.
const STEP_MAX: u64 = 256;
/// 2^64 over the golden ratio: spreads what it is multiplied with over the upper bits.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that orders all writes of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// Older than every write that has a version.
    pub const ZERO: Self = Self(0);

    /// The version with this [`local`](Self::local) part, made at `origin`.
    #[inline]
    pub fn new(local: u64, origin: Origin) -> Self {
        Self(local << ORIGIN_BITS | u64::from(origin.0))
    }

    /// The least version of a moment, in milliseconds since the Unix epoch. What was stamped before it is less.
    pub fn at(millis: u64) -> Self {
        Self::new(local_at(millis), Origin(0))
    }

    /// All but region and writer: time and counter.
    #[inline]
    pub fn local(self) -> u64 {
        self.0 >> ORIGIN_BITS
    }

    /// The greatest version that is less; of 0, 0.
    #[must_use]
    pub fn just_below(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// A version that is greater, and less than every other of a later time or count.
    #[must_use]
    pub fn just_above(self) -> Self {
        let (origin, local) = (self.origin(), self.local());
        match origin.writer() {
            15 => Self::new(local_after(local), Origin::new(origin.region(), 0)),
            writer => Self::new(local, Origin::new(origin.region(), writer + 1)),
        }
    }

    /// The version under which a rollback takes what is there, just before `millis` since the Unix epoch, and in any case greater
    /// than `newest`.
    #[must_use]
    pub fn of_rollback(newest: Self, millis: u64, origin: Origin) -> Self {
        let last_of = |millis: u64| local_at(millis) | ROLLBACK;
        let own = last_of(millis.saturating_sub(1));
        let above = if last_of(newest.millis()) > newest.local() { newest.millis() } else { newest.millis() + 1 };
        Self::new(own.max(last_of(above)), origin)
    }

    /// The version under which a rollback writes that has taken what was there under this one.
    #[must_use]
    pub fn rolled_back(self) -> Self {
        Self::new(self.local() | 1, self.origin())
    }

    /// Whether a rollback has written or taken something under this version. No clock makes such a one.
    #[inline]
    pub fn is_of_rollback(self) -> bool {
        is_reserved(self.local())
    }

    /// When it was made, in milliseconds since the Unix epoch, by its maker's clock.
    #[inline]
    pub fn millis(self) -> u64 {
        (self.local() >> COUNTER_BITS) + EPOCH_MILLIS
    }

    /// Where it was made.
    #[inline]
    pub fn origin(self) -> Origin {
        Origin(self.0 as u8)
    }
}

/// The local part of a moment, in milliseconds since the Unix epoch.
#[inline]
fn local_at(millis: u64) -> u64 {
    millis.saturating_sub(EPOCH_MILLIS) << COUNTER_BITS
}

#[inline]
fn is_reserved(local: u64) -> bool {
    local & ROLLBACK == ROLLBACK
}

/// The local part that clocks give out after `local`.
#[inline]
pub fn local_after(local: u64) -> u64 {
    let next = local + 1;
    if is_reserved(next) { (next | 1) + 1 } else { next }
}

/// Who makes versions: a region and a writer in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin(pub u8);

impl Origin {
    /// Number of regions there can be.
    pub const REGIONS: u8 = 16;

    /// A writer of a region. Of `region` and of `writer` the lowest 4 bits count.
    pub fn new(region: u8, writer: u8) -> Self {
        Self((region & 15) << 4 | writer & 15)
    }

    /// The region.
    pub fn region(self) -> u8 {
        self.0 >> 4
    }

    /// The writer: a hash, so two writers of a region may have the same.
    pub fn writer(self) -> u8 {
        self.0 & 15
    }
}

/// Where the counter of a new millisecond begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    first: u64,
    mask: u64,
    salt: u64,
}

impl Lane {
    /// Of a clock that is alone on its node. Lanes with different salts seldom begin at the same number.
    pub fn whole(salt: u64) -> Self {
        Self::of(salt, 0, 1)
    }

    /// Of clock `number` among `count`, a power of two, on one node: while none makes more versions in a millisecond than a
    /// `count`th of 4096, no two make the same.
    pub fn of(salt: u64, number: u64, count: u64) -> Self {
        let width = (START_RANGE / count).max(2);
        Self {
            first: (width * number) & (START_RANGE - 1),
            mask: if count == 1 { width - 1 } else { width / 2 - 1 },
            salt,
        }
    }

    #[inline]
    fn start(self, time: u64) -> u64 {
        self.first + (((time ^ self.salt).wrapping_mul(MIX) >> 32) & self.mask)
    }
}

/// The local part of the version after `last`, made at `millis` since the Unix epoch: never less than what came before.
#[inline]
pub fn next_local(last: u64, millis: u64, lane: Lane) -> u64 {
    let time = local_at(millis);
    if last >= time { local_after(last) } else { time + lane.start(time) }
}

/// A clock that makes versions, for use under a lock.
#[derive(Clone, Copy, Debug)]
pub struct VersionClock {
    last: u64,
    origin: Origin,
    lane: Lane,
}

impl VersionClock {
    /// A clock that has made and seen nothing.
    pub fn new(origin: Origin, lane: Lane) -> Self {
        Self { last: 0, origin, lane }
    }

    /// Who makes these versions.
    #[inline]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The next version, at `millis` since the Unix epoch. Above every one made or seen here, also if the time went back.
    #[inline]
    pub fn next(&mut self, millis: u64) -> Version {
        self.last = next_local(self.last, millis, self.lane);
        Version::new(self.last, self.origin)
    }

    /// The next version at `millis` since the Unix epoch, also above `seen`. Where the clock alone would not make it so, it is
    /// `1 + step` in the counter above that, and the clock stays: what was seen of one key moves no other key's versions.
    #[inline]
    pub fn next_above(&mut self, millis: u64, seen: Version, step: u64) -> Version {
        let own = next_local(self.last, millis, self.lane);
        if own > seen.local() {
            self.last = own;
            return Version::new(own, self.origin);
        }
        Version::new(local_after(seen.local() + step), self.origin)
    }

    /// Makes all further versions greater than `seen`, by a small step in the counter that depends on the clock: so clocks of one
    /// node that have seen the same seldom go on alike.
    #[inline]
    pub fn note(&mut self, seen: Version) {
        if seen.local() > self.last {
            self.last =
                seen.local() + (self.lane.start(seen.local()) ^ self.lane.first.wrapping_mul(MIX) >> 56) % STEP_MAX;
        }
    }

    /// At least every version made or seen here.
    #[inline]
    pub fn newest(&self) -> Version {
        Version(self.last << ORIGIN_BITS | u64::from(u8::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    #[test]
    fn the_parts_come_back() {
        let version = Version::new(local_at(NOW) + 77, Origin::new(3, 9));
        assert_eq!((version.millis(), version.origin().region(), version.origin().writer()), (NOW, 3, 9));
        assert!(Version::at(NOW) < version && version < Version::at(NOW + 1));
        assert_eq!(Version::at(0), Version::ZERO);
        for writer in [9, 15] {
            let version = Version::new(local_at(NOW) + 77, Origin::new(3, writer));
            let above = version.just_above();
            assert!(above > version && above.local() <= version.local() + 1 && above.origin().region() == 3);
        }
    }

    #[test]
    fn versions_grow_whatever_the_time_does() {
        let mut clock = VersionClock::new(Origin::new(15, 15), Lane::whole(7));
        let mut last = Version::ZERO;
        for millis in [NOW, NOW, NOW + 5, NOW - 3_600_000, 0, NOW + 6] {
            let next = clock.next(millis);
            assert!(next > last, "{next:?} after {last:?}");
            last = next;
        }
        let seen = Version(last.0 + (500 << (COUNTER_BITS + ORIGIN_BITS)));
        clock.note(seen);
        assert!(clock.newest() >= seen && clock.next(NOW) > seen);
    }

    #[test]
    fn no_clock_makes_the_versions_of_a_rollback() {
        let origin = Origin::new(3, 9);
        for newest in
            [Version::ZERO, Version::at(NOW), Version::new(local_at(NOW) | ROLLBACK, origin), Version::at(NOW + 9)]
        {
            let flush = Version::of_rollback(newest, NOW, origin);
            let item = flush.rolled_back();
            assert!(flush > newest && item > flush && item.millis() == flush.millis() && item.origin() == origin);
            assert!(flush.is_of_rollback() && item.is_of_rollback() && item.just_below().is_of_rollback());
            assert!(flush.millis() <= NOW.max(newest.millis() + 1), "{flush:?}");
            let mut clock = VersionClock::new(origin, Lane::whole(7));
            clock.note(item);
            assert!(clock.next(NOW) > item);
        }
        // A clock that was set back counts through many milliseconds.
        let mut clock = VersionClock::new(origin, Lane::whole(7));
        let first = clock.next(NOW);
        let all: Vec<Version> = (0..100_000).map(|_| clock.next(NOW - 5000)).collect();
        assert!(all.iter().all(|version| !version.is_of_rollback()) && all.is_sorted() && all[0] > first);
        assert!(all.last().unwrap().millis() > NOW, "it was not counted far enough");
        let steps = (0..20_000).map(|step| clock.next_above(0, Version::at(NOW + 60_000), step));
        assert!(steps.into_iter().all(|version| !version.is_of_rollback()));
        assert!(!Version::new(local_at(NOW) | (ROLLBACK - 1), Origin::new(3, 15)).just_above().is_of_rollback());
    }

    #[test]
    fn eight_thousand_versions_a_millisecond_do_not_run_ahead() {
        let mut clock = VersionClock::new(Origin::default(), Lane::whole(7));
        for millis in NOW..NOW + 50 {
            let newest = (0..8000).map(|_| clock.next(millis)).last().unwrap();
            assert_eq!(newest.millis(), millis);
        }
    }
    #[test]
    fn clocks_of_one_node_make_different_versions() {
        let mut clocks: Vec<_> =
            (0..16).map(|number| VersionClock::new(Origin::default(), Lane::of(7, number, 16))).collect();
        let mut made = std::collections::HashSet::new();
        clocks.iter_mut().for_each(|clock| clock.note(Version(Version::at(NOW - 5).0 | 0xfff00)));
        for millis in NOW..NOW + 20 {
            let versions = clocks.iter_mut().flat_map(|clock| (0..250).map(|_| clock.next(millis)).collect::<Vec<_>>());
            assert!(versions.into_iter().all(|version| made.insert(version) && version.millis() == millis));
        }
    }
}
