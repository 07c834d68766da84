//! Flushes as versions: what was stored before one is gone and stays gone, in whatever order flushes and writes arrive.

use moneta_item::{Expiry, Version};

/// One `flush_all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// When it was commanded. Of two flushes that wait, the later command counts.
    pub version: Version,
    /// The Unix second it takes effect; 0: this is [`Floor::local`].
    pub second: u32,
}

impl Floor {
    /// A flush of one copy alone, which lacks writes up to `version`: everything goes that it holds, as if it were evicted. It is
    /// told to no other copy, and what is older may be stored again. The store counts as one that has forgotten the deletes from
    /// before.
    pub fn local(version: Version) -> Self {
        Self { version, second: 0 }
    }

    /// Whether it is of one copy alone.
    pub fn is_local(&self) -> bool {
        self.second == 0
    }

    /// A flush that was commanded under `version`, to take effect at `moment` as a client's expiration time resolves to; at
    /// once if that is not after `now`.
    pub fn new(version: Version, moment: Expiry, now: u32) -> Self {
        Self { version, second: moment.0.max(now) }
    }

    /// Whether it takes effect later than second `now`. One that was commanded to take effect at once does so also where the
    /// clock is behind the one that it was commanded by.
    pub fn waits(&self, now: u32) -> bool {
        self.is_delayed() && self.second > now
    }

    /// Whether it was commanded to take effect at once.
    pub fn is_at_once(&self) -> bool {
        !self.is_delayed()
    }

    fn is_delayed(&self) -> bool {
        u64::from(self.second) * 1000 > self.version.millis()
    }

    /// What is older than this is gone once the flush has taken effect: of a flush that waits all that was stored before its
    /// second, too.
    pub fn bound(&self) -> Version {
        self.version.max(Version::at(u64::from(self.second) * 1000))
    }
}

/// The flushes that a store knows of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floors {
    /// Everything older is gone.
    pub bound: Version,
    /// The newest command of all.
    pub newest: Version,
    /// What is to take effect.
    pub pending: Option<Floor>,
    /// What the bound was before the newest command took effect.
    pub before: Version,
    /// When the newest command took or takes effect, a Unix second; 0: at once, as far as is known.
    pub second: u32,
}

impl Floors {
    /// Takes note of a flush at second `now`. False if it changes nothing: a later one is known.
    pub fn note(&mut self, floor: Floor, now: u32) -> bool {
        if self.knows(&floor) {
            return false;
        }
        let second = if floor.is_delayed() { floor.second } else { 0 };
        self.settle(now);
        // Commanded before the second of the one that was the newest until now: it replaces that, though it came too late. Copies
        // that were told in time have the same bound then.
        let is_early = floor.version.millis() < u64::from(self.second) * 1000 || floor.version == self.newest;
        if is_early && self.pending.is_none() {
            self.bound = self.before;
        }
        (self.before, self.second) = (self.bound, second);
        self.newest = floor.version;
        self.pending = Some(floor);
        self.settle(if floor.waits(now) { now } else { floor.second });
        true
    }

    /// Whether a flush changes nothing: it is the newest that is known, or an earlier one. Two clocks may make one version: then
    /// the later second counts.
    pub fn knows(&self, floor: &Floor) -> bool {
        let second = if floor.is_delayed() { floor.second } else { 0 };
        (floor.version, second) <= (self.newest, self.second)
    }

    /// Lets take effect what is to. True if the bound rises.
    pub fn settle(&mut self, now: u32) -> bool {
        let Some(floor) = self.pending.filter(|floor| floor.second <= now) else { return false };
        self.pending = None;
        let before = self.bound;
        self.bound = before.max(floor.bound());
        self.bound > before
    }

    /// Whether a write under this version is gone.
    #[inline]
    pub fn takes(&self, version: Version) -> bool {
        version < self.bound
    }

    /// Whether a write in mode newer is gone: it is older than a flush, or was made from an item that is.
    #[inline]
    pub fn takes_write(&self, version: Version, base: Option<Version>) -> bool {
        takes_write(self.bound, version, base)
    }
}

/// Whether a write in mode newer is gone where everything below `bound` is; see [`Floors::takes_write`]. A base without a version
/// tells nothing: such items may be younger than the flush.
#[inline]
pub fn takes_write(bound: Version, version: Version, base: Option<Version>) -> bool {
    version < bound || base.is_some_and(|base| base > Version(1) && base < bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_790_000_000;

    fn version(second: u32) -> Version {
        Version(Version::at(u64::from(second) * 1000).0 + 300)
    }

    #[test]
    fn a_flush_takes_what_is_older_at_once_or_at_its_second() {
        let mut floors = Floors::default();
        assert!(floors.note(Floor::new(version(NOW), Expiry(0), NOW), NOW));
        assert!(floors.takes(version(NOW - 1)) && !floors.takes(version(NOW)) && !floors.takes(version(NOW + 1)));
        assert!(floors.note(Floor::new(version(NOW + 1), Expiry(NOW + 10), NOW + 1), NOW + 1));
        assert!(!floors.takes(version(NOW)), "it waits");
        assert!(!floors.settle(NOW + 9) && floors.settle(NOW + 10));
        assert!(floors.takes(version(NOW + 9)) && !floors.takes(version(NOW + 10)));
    }

    #[test]
    fn a_flush_takes_what_was_made_from_an_item_that_it_took() {
        let mut floors = Floors::default();
        floors.note(Floor::new(version(NOW), Expiry(0), NOW), NOW);
        let later = version(NOW + 5);
        assert!(floors.takes_write(later, Some(version(NOW - 1))) && floors.takes_write(version(NOW - 1), None));
        for base in [None, Some(Version::ZERO), Some(Version(1)), Some(version(NOW + 1))] {
            assert!(!floors.takes_write(later, base), "{base:?}");
        }
    }

    #[test]
    fn a_flush_at_once_takes_effect_where_the_clock_is_behind() {
        let mut floors = Floors::default();
        assert!(floors.note(Floor::new(version(NOW), Expiry(0), NOW), NOW - 1));
        assert!(floors.takes(version(NOW - 1)) && floors.pending.is_none());
        assert!(floors.note(Floor::new(version(NOW), Expiry(NOW + 2), NOW), NOW - 1));
        assert!(!floors.takes(version(NOW)) && floors.pending.is_some());
    }

    #[test]
    fn a_flush_that_comes_too_late_to_replace_one_that_waited_does_so_all_the_same() {
        let at_once = Floor::new(version(NOW - 5), Expiry(0), NOW - 5);
        let delayed = Floor::new(version(NOW), Expiry(NOW + 10), NOW);
        let replaces = Floor::new(version(NOW + 4), Expiry(0), NOW + 4);
        let after = Floor::new(version(NOW + 12), Expiry(NOW + 30), NOW + 12);
        let (mut in_time, mut late) = (Floors::default(), Floors::default());
        for floor in [at_once, delayed] {
            assert!(in_time.note(floor, NOW) && late.note(floor, NOW));
        }
        in_time.note(replaces, NOW + 4);
        assert!(late.settle(NOW + 11) && late.takes(version(NOW + 9)));
        late.note(replaces, NOW + 11);
        assert!(late.takes(version(NOW + 3)) && !late.takes(version(NOW + 5)));
        assert_eq!(in_time.bound, late.bound);
        // One that was commanded after its second does not.
        let mut behind = Floors::default();
        behind.note(delayed, NOW);
        behind.note(after, NOW + 12);
        assert!(behind.takes(version(NOW + 9)));
    }

    #[test]
    fn the_later_command_counts_whatever_order_they_arrive_in() {
        let delayed = Floor::new(version(NOW), Expiry(NOW + 10), NOW);
        let later = Floor::new(version(NOW + 1), Expiry(NOW + 5), NOW + 1);
        let mut one = Floors::default();
        let mut other = Floors::default();
        assert!(one.note(delayed, NOW + 1) && one.note(later, NOW + 1));
        assert!(other.note(later, NOW + 1) && !other.note(delayed, NOW + 1) && !other.note(later, NOW + 1));
        assert_eq!(one, other);
        assert_eq!(one.pending, Some(later));
    }
}
