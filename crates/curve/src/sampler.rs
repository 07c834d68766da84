//! Reuse distances of sampled keys.
//!
//! A key is sampled if certain bits of its hash are zero, so either all or none of its requests are (SHARDS: Waldspurger, Park,
//! Garthwaite, Ahmad: "Efficient MRC Construction with SHARDS", FAST 2015). A distance among sampled keys, times the number of keys
//! that one stands for, estimates the distance among all.
//!
//! SHARDS bounds its memory by one rate, which falls as keys come: ten million keys that are read once leave few samples of the keys
//! that are read all the time. Here each level has a rate for good, a quarter of that of the level before it, and its most recently
//! used keys. A get counts in the first level that has its key, which is the finest that reaches so far:
//!
//! ```text
//!  level   one key in    keys     reaches back, keys
//!    0             32    2560     ├───┤ 81,920, until it is full or has counted 8192 requests
//!    1             64    7168     ├──────┤ 458,752
//!    2            256    7168     ├──────────┤ 1,835,008
//!    3          1,024    3584     ├────────────┤ 3,670,016
//!    4          4,096    3584     ├────────────────┤ 14,680,064
//!    5         16,384    3584     ├────────────────────┤ 58,720,256
//! ```
//!
//! Level 0 is for short loads, of which one key in 64 leaves too few samples. It costs a request twice as much as the others do, so
//! it ends after some 262,144 of them: what it has counted becomes that of level 1, at half its weight.
//!
//! A key of a level is one of all levels before it. Each level tells how many gets reach further back than it does, and the next one
//! how these are divided. What is further back than all levels reach is a miss whatever the room. What a hot key among the samples
//! adds, or the lack of one, is corrected by the numbers of all hits and misses, which the cache counts; SHARDS-adj does it by their sum.

use crate::curve::Curve;
use crate::histogram::{Counts, Histogram};
use crate::level::Level;

/// One key in so many is in each level, as a power of two.
const RATE_BITS: [u32; 6] = [5, 6, 8, 10, 12, 14];
/// Keys of each level: 35 bytes each. The table of a level doubles when it has one more.
const KEYS: [usize; RATE_BITS.len()] = [2560, 7168, 7168, 3584, 3584, 3584];
/// Requests that level 0 counts.
const FIRST_REQUESTS: u32 = 8192;
/// The first of the hash's bits that decide.
const FIRST_BIT: u32 = 32;

/// Seconds after which what was counted weighs half.
pub const HALF_LIFE: u32 = 3600;
/// Keys that it reaches back.
pub const REACH: u64 = (KEYS[KEYS.len() - 1] as u64) * one_in(KEYS.len() - 1);

/// Which keys are sampled: those whose hash has none of these bits set. The hash has to be one whose bits clients cannot choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled(pub u64);

impl Sampled {
    /// What a [`Sampler`] samples at first.
    pub const FIRST: Self = Self::of_level(0);

    const fn of_level(level: usize) -> Self {
        Self((one_in(level) - 1) << FIRST_BIT)
    }

    /// Whether the key with this hash is sampled.
    #[inline(always)]
    pub fn has(self, hash: u64) -> bool {
        hash & self.0 == 0
    }

    /// One key in so many is.
    pub fn one_in(self) -> u64 {
        (self.0 >> FIRST_BIT) + 1
    }
}

/// Keys that one of a level stands for.
const fn one_in(level: usize) -> u64 {
    1 << RATE_BITS[level]
}

/// The last level that a sampled key is in.
#[inline]
fn deepest(hash: u64) -> usize {
    let zeros = (hash >> FIRST_BIT).trailing_zeros();
    RATE_BITS[1..].iter().take_while(|bits| **bits <= zeros).count()
}

/// How a get ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The item takes so many bytes.
    Hit(u32),
    /// The item is not there.
    Miss,
}

/// The key that was used last. That it is used again moves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    hash: u64,
    size: u32,
    expires: u32,
}

/// Gets that a cache has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Those that were hits.
    pub hits: u64,
    /// Those that were not.
    pub misses: u64,
}

/// Sampled gets that a level tells of: those of its keys that the levels before it do not have.
#[derive(Debug, Default)]
struct Counted {
    /// Those that it has, by the room they need.
    objects: Counts,
    bytes: Counts,
    /// Those that miss whatever the room.
    cold: f64,
    /// Those that it does not have, and may have had.
    beyond: f64,
}

impl Counted {
    fn halve(&mut self) {
        self.objects.halve();
        self.bytes.halve();
        self.cold *= 0.5;
        self.beyond *= 0.5;
    }

    fn add(&mut self, objects: u64, bytes: u64) {
        self.objects.add(objects);
        self.bytes.add(bytes);
    }

    fn total(&self) -> f64 {
        self.objects.total() + self.cold + self.beyond
    }
}

/// The gets of one kind, hits or misses of the cache that is looked at.
#[derive(Debug, Default)]
struct Gets {
    levels: [Counted; KEYS.len()],
    /// All of them until the last halving, each as much as it weighs; less those that do not count.
    all: f64,
    /// Their number at the last halving.
    then: u64,
}

impl Gets {
    fn of(then: u64) -> Self {
        Self { then, ..Self::default() }
    }

    /// All of them, where the cache has counted so many.
    fn all(&self, now: u64) -> f64 {
        (self.all + now.saturating_sub(self.then) as f64).max(0.0)
    }

    fn halve(&mut self) {
        self.all *= 0.5;
        self.levels.iter_mut().for_each(Counted::halve);
    }

    /// Adds them to histograms of all gets, where the samples of the `first` level stand for so many; returns those that miss whatever the room.
    fn add_to(&self, first: usize, objects: &mut Histogram, bytes: &mut Histogram, stand_for: f64) -> f64 {
        let (mut cold, mut beyond) = (0.0, stand_for);
        for counted in &self.levels[first..] {
            let total = counted.total();
            if total == 0.0 {
                break;
            }
            let each = beyond / total;
            objects.add_all(&counted.objects, each);
            bytes.add_all(&counted.bytes, each);
            cold += counted.cold * each;
            beyond = counted.beyond * each;
        }
        cold + beyond
    }
}

/// The estimate of one cache. Its operations are for keys that are [sampled](Sampler::sampled); they pass over others.
///
/// It follows the load: levels keep what was used last, and every [`HALF_LIFE`] what was counted is halved.
#[derive(Debug)]
pub struct Sampler {
    levels: [Level; KEYS.len()],
    /// The first level that counts: 0, then 1.
    first: usize,
    /// Requests until level 0 ends.
    first_requests: u32,
    hits: Gets,
    misses: Gets,
    last: Option<Last>,
    /// Unix second of the next halving.
    halves_at: u32,
}

impl Sampler {
    /// One that has seen nothing, begun at the Unix second `now`, when the cache had served so much.
    pub fn new(now: u32, served: Served) -> Self {
        Self {
            levels: KEYS.map(Level::new),
            first: 0,
            first_requests: FIRST_REQUESTS,
            hits: Gets::of(served.hits),
            misses: Gets::of(served.misses),
            last: None,
            halves_at: now.saturating_add(HALF_LIFE),
        }
    }

    /// Bytes of memory that it has taken: less than 1 MiB.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + 4 * KEYS.len() * Counts::BYTES + self.levels.iter().map(Level::memory).sum::<usize>()
    }

    /// Which keys are sampled from now on.
    pub fn sampled(&self) -> Sampled {
        Sampled::of_level(self.first)
    }

    /// A request on a key. False if it is not sampled.
    fn takes(&mut self, hash: u64) -> bool {
        if self.first == 0 {
            self.first_requests -= 1;
            if self.first_requests == 0 || self.levels[0].is_full() {
                self.end_first_level();
            }
        }
        self.sampled().has(hash)
    }

    /// Lets one key in 64 count from now on. Level 1 has them already; level 0, which was not full, has counted all gets so far.
    #[cold]
    fn end_first_level(&mut self) {
        self.first = 1;
        self.last = None;
        self.levels[0].clear();
        for gets in [&mut self.hits, &mut self.misses] {
            let mut counted = std::mem::take(&mut gets.levels[0]);
            counted.halve();
            gets.levels[1] = counted;
        }
    }

    /// Whether [`Self::age`] is to be called at the Unix second `now`.
    #[inline]
    pub fn is_due(&self, now: u32) -> bool {
        now >= self.halves_at
    }

    /// Halves what was counted, once for each [`HALF_LIFE`] that is over; `served` is what the cache has served until now.
    pub fn age(&mut self, now: u32, served: Served) {
        let times = if self.is_due(now) { (now - self.halves_at) / HALF_LIFE + 1 } else { 0 };
        self.halves_at = self.halves_at.saturating_add(times.saturating_mul(HALF_LIFE));
        for (gets, count) in [(&mut self.hits, served.hits), (&mut self.misses, served.misses)] {
            gets.all += count.saturating_sub(gets.then) as f64;
            gets.then = count;
            // After so many nothing is left.
            (0..times.min(64)).for_each(|_| gets.halve());
        }
    }

    /// A get of a sampled key that does not count, as it moves nothing in the cache.
    pub fn skip(&mut self, is_hit: bool) {
        let gets = if is_hit { &mut self.hits } else { &mut self.misses };
        gets.all -= one_in(self.first) as f64;
    }

    /// A get at the Unix second `now`.
    pub fn read(&mut self, hash: u64, now: u32, read: Read) {
        if !self.takes(hash) {
            return;
        }
        if let Some(last) = self.last
            && last.hash == hash
            && (last.expires == 0 || last.expires > now)
            && (read == Read::Hit(last.size) || read == Read::Miss)
        {
            let gets = if read == Read::Miss { &mut self.misses } else { &mut self.hits };
            gets.levels[self.first].add(1, last.size.into());
            return;
        }
        self.last = None;
        let kept = self.first..=deepest(hash);
        let gets = if read == Read::Miss { &mut self.misses } else { &mut self.hits };
        let mut is_counted = false;
        let levels = self.levels[kept.clone()].iter_mut().zip(&mut gets.levels[kept.clone()]);
        for (number, (level, counted)) in kept.zip(levels) {
            let stands_for = one_in(number);
            match level.find(hash) {
                Some(found) if found.expires == 0 || found.expires > now => {
                    if !is_counted {
                        is_counted = true;
                        let above = level.above(found);
                        counted.add(above.keys * stands_for + 1, above.bytes * stands_for + u64::from(found.size));
                    }
                    let size = if let Read::Hit(size) = read { size } else { found.size };
                    level.touch(found, size, found.expires);
                    self.last = Some(Last { hash, size, expires: found.expires });
                }
                found => {
                    if let Some(expired) = found {
                        level.remove(expired);
                    }
                    // A level that has dropped no key would know it.
                    if !is_counted && (found.is_some() || !level.has_dropped()) {
                        is_counted = true;
                        counted.cold += 1.0;
                    } else if !is_counted {
                        counted.beyond += 1.0;
                    }
                    if let Read::Hit(size) = read {
                        level.insert(hash, size, 0);
                        self.last = Some(Last { hash, size, expires: 0 });
                    }
                }
            }
        }
    }

    /// An item of so many bytes was stored; `expires`: at which Unix second, 0 for never.
    pub fn write(&mut self, hash: u64, size: u32, expires: u32) {
        if !self.takes(hash) {
            return;
        }
        for level in &mut self.levels[self.first..=deepest(hash)] {
            match level.find(hash) {
                Some(found) => level.touch(found, size, expires),
                None => level.insert(hash, size, expires),
            }
        }
        self.last = Some(Last { hash, size, expires });
    }

    /// An item was changed where it is: it has `more` bytes, and another expiry if that is given.
    pub fn change(&mut self, hash: u64, more: u32, expires: Option<u32>) {
        if !self.takes(hash) {
            return;
        }
        for level in &mut self.levels[self.first..=deepest(hash)] {
            if let Some(found) = level.find(hash) {
                let (size, expires) = (found.size.saturating_add(more), expires.unwrap_or(found.expires));
                level.touch(found, size, expires);
                self.last = Some(Last { hash, size, expires });
            }
        }
    }

    /// An item was deleted.
    pub fn delete(&mut self, hash: u64) {
        if !self.takes(hash) {
            return;
        }
        self.last = None;
        for level in &mut self.levels[self.first..=deepest(hash)] {
            if let Some(found) = level.find(hash) {
                level.remove(found);
            }
        }
    }

    /// All items were deleted. What was counted stays.
    pub fn delete_all(&mut self) {
        self.last = None;
        self.levels.iter_mut().for_each(Level::clear);
    }

    /// The curve; `served` is what the cache has served until now.
    pub fn curve(&self, served: Served) -> Curve {
        let (hits, misses) = (self.hits.all(served.hits), self.misses.all(served.misses));
        let (mut objects, mut bytes) = (Histogram::default(), Histogram::default());
        // What samples of hits have too little or too much is of hot keys, which need the least room: the curve sees to it. No key is
        // so hot by its misses: their samples stand for all of them.
        let sampled = self.hits.levels[self.first].total() * one_in(self.first) as f64;
        let cold = self.hits.add_to(self.first, &mut objects, &mut bytes, sampled)
            + self.misses.add_to(self.first, &mut objects, &mut bytes, misses);
        Curve::new(hits + misses, cold, &objects, &bytes)
    }

    /// Keys that were used and not deleted since, and the bytes of their items; as far as it reaches back.
    pub fn footprint(&self) -> (u64, u64) {
        let whole = (self.first..KEYS.len()).find(|&level| !self.levels[level].has_dropped()).unwrap_or(KEYS.len() - 1);
        let level = &self.levels[whole];
        (level.len() as u64 * one_in(whole), level.bytes() * one_in(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Room;

    /// Keys that a sampled one stands for at first.
    const ONE_IN: u64 = one_in(0);

    /// A sampled key of all levels; `number` below 2^26.
    fn key(number: u64) -> u64 {
        number << 6 | number << 52
    }

    /// So many sampled gets, hits and misses, of as many of each as they stand for.
    fn served(hits: u64, misses: u64) -> Served {
        Served { hits: hits * ONE_IN, misses: misses * ONE_IN }
    }

    /// Reads keys in a loop, and stores what misses.
    fn loop_over(sampler: &mut Sampler, keys: std::ops::Range<u64>, rounds: u64, size: u32) {
        for _ in 0..rounds {
            for number in keys.clone() {
                sampler.read(key(number), 0, Read::Miss);
                sampler.write(key(number), size, 0);
            }
        }
    }

    #[test]
    fn a_loop_is_all_misses_below_its_length_and_all_hits_from_there_on() {
        let mut sampler = Sampler::new(0, Served::default());
        loop_over(&mut sampler, 0..1000, 4, 100);
        let gets = 4000 * ONE_IN;
        let curve = sampler.curve(served(0, 4000));
        assert_eq!(curve.gets, gets as f64);
        assert_eq!(curve.cold, 0.25);
        for (part, misses) in [(0.9, 1.0), (1.1, 0.25)] {
            let objects = (part * (1000 * ONE_IN) as f64) as u64;
            assert_eq!(curve.miss_ratio(Room::Objects(objects)), misses, "{part}");
            assert_eq!(curve.miss_ratio(Room::Bytes(100 * objects)), misses, "{part}");
        }
        assert!(curve.objects_for(0.25).unwrap().abs_diff(1000 * ONE_IN) < 3000);
        assert_eq!(curve.objects_for(0.2), None);
        assert_eq!(sampler.footprint(), (1000 * ONE_IN, 100_000 * ONE_IN));
    }

    #[test]
    fn a_deleted_or_expired_item_misses_whatever_the_room() {
        let mut sampler = Sampler::new(0, Served::default());
        sampler.write(key(1), 10, 0);
        sampler.write(key(2), 10, 50);
        sampler.write(key(3), 10, 0);
        sampler.delete(key(1));
        for number in [1, 2, 3] {
            sampler.read(key(number), 50, Read::Miss);
        }
        assert!((sampler.curve(served(0, 3)).cold - 2.0 / 3.0).abs() < 1e-9);
        sampler.delete_all();
        sampler.read(key(3), 50, Read::Miss);
        assert!((sampler.curve(served(0, 4)).cold - 3.0 / 4.0).abs() < 1e-9);
    }

    #[test]
    fn an_item_that_expires_while_it_is_the_last_one_used_is_not_taken_for_a_hit() {
        let mut sampler = Sampler::new(0, Served::default());
        sampler.write(key(1), 10, 50);
        sampler.read(key(1), 49, Read::Hit(10));
        sampler.change(key(1), 5, Some(60));
        sampler.read(key(1), 59, Read::Hit(15));
        sampler.read(key(1), 60, Read::Miss);
        assert!((sampler.curve(served(2, 1)).cold - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_asked_for_and_never_stored_takes_no_room() {
        let mut sampler = Sampler::new(0, Served::default());
        (0..1000).for_each(|number| sampler.read(key(number), 0, Read::Miss));
        assert_eq!(sampler.footprint(), (0, 0));
        assert_eq!(sampler.curve(served(0, 1000)).floor(), 1.0);
    }

    #[test]
    fn old_counts_weigh_half_after_each_half_life() {
        let mut sampler = Sampler::new(100, Served::default());
        loop_over(&mut sampler, 0..1000, 1, 100);
        let gets = 1000 * ONE_IN;
        assert!(!sampler.is_due(99 + HALF_LIFE) && sampler.is_due(100 + HALF_LIFE));
        sampler.age(100 + HALF_LIFE, served(0, 1000));
        assert!(!sampler.is_due(100 + HALF_LIFE));
        for _ in 0..1000 {
            sampler.read(key(999), 100 + HALF_LIFE, Read::Hit(100));
        }
        let curve = sampler.curve(served(1000, 1000));
        assert_eq!(curve.gets, 1.5 * gets as f64);
        assert!((curve.cold - 1.0 / 3.0).abs() < 1e-9, "{}", curve.cold);
        sampler.age(100 + 3 * HALF_LIFE, served(1000, 1000));
        assert_eq!(sampler.curve(served(1000, 1000)).gets, 0.375 * gets as f64);
    }

    #[test]
    fn it_takes_less_than_a_mebibyte_whatever_is_asked() {
        let mut sampler = Sampler::new(0, Served::default());
        assert!(sampler.memory() < 96 << 10, "nothing was counted yet");
        loop_over(&mut sampler, 0..200_000, 2, u32::MAX);
        (0..200_000).step_by(3).for_each(|number| sampler.delete(key(number)));
        loop_over(&mut sampler, 100_000..300_000, 1, 1);
        assert!(sampler.memory() < 1 << 20, "{}", sampler.memory());
    }

    /// A sampled key that is in levels 0 and 1 alone, or in level 0 alone.
    fn fine_key(number: u64) -> u64 {
        number << 52 | number << 6 | (1 + number % 2) << (FIRST_BIT + RATE_BITS[0])
    }

    #[test]
    fn short_loads_are_sampled_twice_as_often_and_nothing_is_lost_when_that_ends() {
        let mut sampler = Sampler::new(0, Served::default());
        assert_eq!((sampler.sampled(), sampler.sampled().one_in()), (Sampled::FIRST, 32));
        let read_all = |sampler: &mut Sampler| {
            (0..1024).for_each(|number| sampler.read(fine_key(number), 0, Read::Hit(100)));
        };
        (0..1024).for_each(|number| sampler.write(fine_key(number), 100, 0));
        (0..6).for_each(|_| read_all(&mut sampler));
        let (before, footprint) = (sampler.curve(served(6 * 1024, 0)), sampler.footprint());
        assert_eq!((before.gets, footprint.0), (6.0 * 1024.0 * 32.0, 1024 * 32));
        // With these it has counted 8192 requests; another one is the first that is sampled as rarely as from then on.
        read_all(&mut sampler);
        assert_eq!(sampler.sampled().one_in(), 64);
        let after = sampler.curve(served(7 * 1024, 0));
        assert_eq!(sampler.footprint(), footprint, "level 1 knows the same keys");
        for part in [0.25, 0.5, 0.9, 1.1] {
            let room = Room::Objects((part * footprint.0 as f64) as u64);
            assert!((before.miss_ratio(room) - after.miss_ratio(room)).abs() < 0.01, "{part}: {before:?} {after:?}");
        }
        read_all(&mut sampler);
        assert!(sampler.curve(served(8 * 1024, 0)).miss_ratio(Room::Objects(footprint.0 * 9 / 10)) > 0.99);
    }

    #[test]
    fn the_first_level_ends_before_it_drops_a_key() {
        let mut sampler = Sampler::new(0, Served::default());
        (0..=KEYS[0] as u64).for_each(|number| sampler.write(fine_key(number), 100, 0));
        assert_eq!(sampler.sampled().one_in(), 64);
        assert!(!sampler.levels.iter().any(Level::has_dropped));
    }

    #[test]
    fn gets_that_do_not_count_are_left_out() {
        let mut sampler = Sampler::new(0, Served::default());
        loop_over(&mut sampler, 0..1000, 2, 100);
        let before = sampler.curve(served(0, 2000));
        (0..1000).for_each(|number| sampler.skip(number % 4 == 0));
        assert_eq!(sampler.curve(served(250, 2750)), before);
    }

    #[test]
    fn misses_of_hot_keys_that_are_not_sampled_are_no_hits() {
        let mut sampler = Sampler::new(0, Served::default());
        loop_over(&mut sampler, 0..1000, 1, 100);
        (0..1000).for_each(|number| sampler.read(key(number), 0, Read::Hit(100)));
        // As many hits and as many misses again, which are of keys without a sample: hits with the least room, and misses with any.
        let curve = sampler.curve(served(2000, 2000));
        assert_eq!(curve.cold, 0.5);
        assert_eq!(curve.miss_ratio(Room::Objects(500 * ONE_IN)), 0.75);
    }
}
