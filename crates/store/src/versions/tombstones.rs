//! Deletes that are remembered, so that nothing older comes back: the hash of a key and a version, 16 bytes each.
//!
//! Tombstones are kept in generations, each an open table. When the newest is full or has lasted for its share of the time to
//! live, a new one begins; the oldest goes when its time is up or there are too many. What a store no longer knows ends at the
//! *horizon*: it remembers every delete that came to it since then.

use std::collections::VecDeque;

use moneta_item::Version;

use super::versioning::Versioning;

/// Generations at most: one of them goes at a time, so the horizon moves in steps of about a quarter of the time to live.
const GENERATIONS: usize = 5;
/// Bytes of a slot.
const SLOT_BYTES: usize = size_of::<Slot>();
/// Slots of a new generation.
const SLOTS_MIN: usize = 64;

/// Hash and version; a version of 0 is an empty slot.
type Slot = (u64, u64);

/// Deletes of some time.
#[derive(Debug)]
struct Generation {
    slots: Box<[Slot]>,
    used: usize,
    /// When it began and when its newest tombstone came, in milliseconds since the Unix epoch.
    begun: u64,
    ended: u64,
}

/// The tombstones of a shard. The caller holds its lock.
#[derive(Debug)]
pub struct Tombstones {
    /// Oldest first.
    generations: VecDeque<Generation>,
    slots_max: usize,
    /// Milliseconds.
    ttl: u64,
    horizon: u64,
}

impl Tombstones {
    /// No tombstones, for a shard that may use `bytes`. The store knows of no delete before `now`, in milliseconds since the
    /// Unix epoch. `ttl`: for how many seconds tombstones are kept at most.
    pub fn new(bytes: u64, ttl: u32, now: u64) -> Self {
        let slots = usize::try_from(bytes).unwrap_or(usize::MAX) / SLOT_BYTES / GENERATIONS;
        // Tables double while they grow.
        let slots_max = if slots < SLOTS_MIN { SLOTS_MIN } else { 1 << slots.ilog2() };
        Self { generations: VecDeque::new(), slots_max, ttl: u64::from(ttl) * 1000, horizon: now }
    }

    /// For one of `shards` shards of a store that starts at `now`. What another node's clock has after that counts as after the
    /// start: a node that starts loses what it remembered anyway.
    pub fn of_shard(versioning: &Versioning, shards: u64, now: u64) -> Self {
        let horizon = now.saturating_sub(versioning.skew_max);
        Self::new(versioning.tombstone_bytes / shards, versioning.tombstone_ttl, horizon)
    }

    /// Since when every delete is remembered, in milliseconds since the Unix epoch, by this store's clock.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Makes the horizon no earlier than `millis`.
    pub fn lose_before(&mut self, millis: u64) {
        self.horizon = self.horizon.max(millis);
    }

    /// Tombstones there are.
    pub fn len(&self) -> usize {
        self.generations.iter().map(|generation| generation.used).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.generations.iter().map(|generation| generation.slots.len() * SLOT_BYTES).sum()
    }

    /// The newest version under which a key was deleted, as far as it is known.
    pub fn find(&self, hash: u64) -> Option<Version> {
        self.generations.iter().filter_map(|generation| generation.find(hash)).max()
    }

    /// Remembers that a key was deleted under a version, at `now` in milliseconds since the Unix epoch. One that is older than
    /// what is known changes nothing.
    pub fn insert(&mut self, hash: u64, version: Version, now: u64) {
        self.expire(now);
        let step = self.ttl / (GENERATIONS as u64 - 1);
        let goes_on = |last: &Generation| last.has_room(self.slots_max) && now < last.begun.saturating_add(step);
        if !self.generations.back().is_some_and(goes_on) {
            if self.generations.len() == GENERATIONS {
                self.drop_oldest();
            }
            self.generations.push_back(Generation::new(now));
        }
        let last = self.generations.back_mut().expect("there is one now");
        last.ended = last.ended.max(now);
        last.insert(hash, version);
    }

    /// Forgets what is older than the time to live.
    pub fn expire(&mut self, now: u64) {
        while self.generations.front().is_some_and(|oldest| oldest.ended.saturating_add(self.ttl) < now) {
            self.drop_oldest();
        }
    }

    /// Shows all tombstones: hashes and versions, in no order, a key perhaps more than once.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Version)> {
        let slots = self.generations.iter().flat_map(|generation| generation.slots.iter());
        slots.filter(|slot| slot.1 != 0).map(|slot| (slot.0, Version(slot.1)))
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.generations.pop_front() {
            // A delete that came in the same millisecond may have been in it.
            self.horizon = self.horizon.max(oldest.ended + 1);
        }
    }
}

impl Generation {
    fn new(now: u64) -> Self {
        Self { slots: vec![(0, 0); SLOTS_MIN].into(), used: 0, begun: now, ended: now }
    }

    /// Up to seven eighths of a table are used.
    fn has_room(&self, slots_max: usize) -> bool {
        self.used < slots_max - slots_max / 8
    }

    /// The slot of a hash, or the empty one where it would be.
    fn slot(&self, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].1 != 0 && self.slots[at].0 != hash {
            at = (at + 1) & mask;
        }
        at
    }

    fn find(&self, hash: u64) -> Option<Version> {
        let slot = self.slots[self.slot(hash)];
        (slot.1 != 0).then_some(Version(slot.1))
    }

    fn insert(&mut self, hash: u64, version: Version) {
        if self.used >= self.slots.len() - self.slots.len() / 8 {
            let twice = vec![(0, 0); self.slots.len() * 2].into();
            let old = std::mem::replace(&mut self.slots, twice);
            old.iter().filter(|slot| slot.1 != 0).for_each(|slot| {
                let at = self.slot(slot.0);
                self.slots[at] = *slot;
            });
        }
        let at = self.slot(hash);
        self.used += usize::from(self.slots[at].1 == 0);
        self.slots[at] = (hash, self.slots[at].1.max(version.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    #[test]
    fn the_newest_delete_of_a_key_is_found() {
        let mut tombstones = Tombstones::new(1 << 20, 3600, NOW);
        for n in 1..=1000u64 {
            tombstones.insert(n << 32 | 5, Version(n), NOW);
        }
        tombstones.insert(7 << 32 | 5, Version(3), NOW + 1);
        tombstones.insert(8 << 32 | 5, Version(9), NOW + 2_000_000);
        assert_eq!(tombstones.find(7 << 32 | 5), Some(Version(7)), "an older one changes nothing");
        assert_eq!(tombstones.find(8 << 32 | 5), Some(Version(9)));
        assert_eq!(tombstones.find(1001 << 32 | 5), None);
        assert_eq!((tombstones.horizon(), tombstones.len()), (NOW, 1001));
        assert_eq!(tombstones.iter().count(), 1001);
    }

    #[test]
    fn they_last_for_their_time_and_then_the_horizon_moves() {
        let mut tombstones = Tombstones::new(1 << 20, 3600, NOW);
        for second in 0..20_000u64 {
            tombstones.insert(second, Version(second + 1), NOW + second * 1000);
        }
        let now = NOW + 19_999_000;
        assert!(tombstones.horizon() >= now - 3_600_000 * 5 / 4 && tombstones.horizon() <= now - 3_600_000);
        let known = |second: u64| tombstones.find(second).is_some();
        assert!((0..20_000).all(|second| known(second) || NOW + second * 1000 < tombstones.horizon()));
        assert!(!known(0) && known(19_999) && known(19_999 - 3600));
    }

    #[test]
    fn at_the_bound_the_oldest_go() {
        let mut tombstones = Tombstones::new(1 << 16, 3600, NOW);
        for n in 0..1_000_000u64 {
            tombstones.insert(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), Version(n + 1), NOW + n / 10);
            assert!(tombstones.memory() <= 1 << 16);
        }
        assert!(tombstones.len() > 1500, "{}", tombstones.len());
        assert!(tombstones.horizon() > NOW + 99_000 && tombstones.horizon() <= NOW + 100_000);
    }
}
