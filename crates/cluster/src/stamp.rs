//! The clock that stamps the writes of this process.
//!
//! A stamp is above what was seen of its own key, and above all that this process stamped before at the present. What was seen of
//! one key moves no other key's stamps: or the processes of a fleet would drive each other's clocks ahead of the time.

use moneta_store::{Clock, Lane, Origin, Version, VersionClock};
use parking_lot::Mutex;

/// Keys whose version ahead of the clock is kept at once. More than are written by several processes within the time that clocks
/// differ; one that is not kept costs its next write a round more.
const KEPT: usize = 256;

/// Makes versions.
pub(crate) struct Stamps {
    state: Mutex<StampState>,
    origin: Origin,
    salt: u64,
    /// How far ahead of cluster time a version may be that is learned, in milliseconds.
    ahead_max: u64,
}

struct StampState {
    clock: VersionClock,
    /// By hash, and at most one of each place.
    seen: Box<[(u64, Version); KEPT]>,
    /// At least every version in `seen`.
    newest_seen: Version,
    /// For random steps.
    random: u64,
}

impl Stamps {
    /// `salt` differs from process to process.
    pub(crate) fn new(origin: Origin, salt: u64, ahead_max: u64) -> Self {
        Self { state: Mutex::new(StampState::new(origin, salt)), origin, salt, ahead_max }
    }

    /// Begins again at the present: what was made was so far ahead that nodes have refused it.
    pub(crate) fn begin_again(&self) {
        *self.state.lock() = StampState::new(self.origin, self.salt);
    }

    /// A version for a write of the key with this hash.
    pub(crate) fn next(&self, clock: &Clock, hash: u64) -> Version {
        let millis = clock.millis();
        let state = &mut *self.state.lock();
        if state.newest_seen.millis() < millis {
            return state.clock.next(millis);
        }
        let seen = state.seen_of(hash);
        let next = state.next_above(millis, seen);
        if seen > Version::ZERO {
            // The clock may not have moved.
            state.keep(hash, next);
        }
        next
    }

    /// A version for what concerns all keys, as a flush, above `seen`: all further stamps are above it.
    pub(crate) fn next_of_all(&self, clock: &Clock, seen: Version) -> Version {
        let state = &mut *self.state.lock();
        state.clock.note(seen);
        state.clock.next(clock.millis())
    }

    /// Further stamps of the key with this hash are above `seen`, unless that is from the future. `millis`: the present, since
    /// the Unix epoch, or a moment before: what is older needs no note.
    #[inline]
    pub(crate) fn note(&self, hash: u64, seen: Version, millis: u64) {
        if seen.millis() >= millis && !self.is_ahead(seen, millis) {
            self.state.lock().keep(hash, seen);
        }
    }

    /// Whether a version is further ahead of `millis`, since the Unix epoch, than any clock may be.
    #[inline]
    pub(crate) fn is_ahead(&self, version: Version, millis: u64) -> bool {
        version.millis() > millis.saturating_add(self.ahead_max)
    }
}

impl StampState {
    fn new(origin: Origin, salt: u64) -> Self {
        let seen = Box::new([(0, Version::ZERO); KEPT]);
        Self { clock: VersionClock::new(origin, Lane::whole(salt)), seen, newest_seen: Version::ZERO, random: salt }
    }

    fn seen_of(&self, hash: u64) -> Version {
        let (of, seen) = self.seen[hash as usize % KEPT];
        if of == hash { seen } else { Version::ZERO }
    }

    fn keep(&mut self, hash: u64, seen: Version) {
        let place = &mut self.seen[hash as usize % KEPT];
        if place.0 != hash || place.1 < seen {
            *place = (hash, seen);
        }
        self.newest_seen = self.newest_seen.max(seen);
    }

    fn next_above(&mut self, millis: u64, seen: Version) -> Version {
        // Knuth's constants for a linear congruential generator, of which the upper bits are good.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.clock.next_above(millis, seen, self.random >> 56)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    fn stamps(salt: u64) -> (Stamps, Clock) {
        let clock = Clock::manual(0);
        clock.set_millis(NOW);
        (Stamps::new(Origin::default(), salt, 500), clock)
    }

    #[test]
    fn a_stamp_is_above_what_was_seen_of_its_key_and_no_other_key_moves() {
        let (stamps, clock) = stamps(7);
        let seen = Version(Version::at(NOW + 400).0 | 77 << 8);
        stamps.note(1, seen, NOW);
        let next = stamps.next(&clock, 1);
        assert!(next > seen && next.local() - seen.local() <= 256, "{next:?} above {seen:?}");
        assert!(stamps.next(&clock, 1) > next, "what was stamped is seen");
        assert_eq!(stamps.next(&clock, 2).millis(), NOW);
        assert_eq!(stamps.next(&clock, 1 + KEPT as u64).millis(), NOW, "its place is that of the first one");
        assert_eq!(stamps.next_of_all(&clock, Version::ZERO).millis(), NOW);
    }

    #[test]
    fn what_is_from_the_future_is_not_learned() {
        let (stamps, clock) = stamps(7);
        stamps.note(1, Version::at(NOW + 501), NOW);
        assert_eq!(stamps.next(&clock, 1).millis(), NOW);
        assert!(stamps.is_ahead(Version::at(NOW + 501), NOW) && !stamps.is_ahead(Version::at(NOW + 500), NOW));
    }

    #[test]
    fn two_writers_that_have_seen_the_same_seldom_make_the_same() {
        let ((one, clock), (other, _)) = (stamps(7), stamps(8));
        let same = (0..1000).filter(|round| {
            let seen = Version(Version::at(NOW + 10).0 + (round << 8));
            [&one, &other].iter().for_each(|stamps| stamps.note(1, seen, NOW));
            one.next(&clock, 1) == other.next(&clock, 1)
        });
        assert!(same.count() < 20);
    }
}
