//! Room for new records: S3-FIFO eviction, and before it the cleaning of segments that are full of the dead.
//!
//! S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction", SOSP 2023): new keys enter
//! a small log; what leaves its old end goes to the main log if it was hit meanwhile, else out, its hash kept as a ghost. At
//! the old end of the main log an item that was hit goes round once more for each hit. Here the two logs share one pool of
//! pages, so nothing is evicted, and nothing moved, before memory is full.
//!
//! The work is spread: when pages run short, every write lets eviction advance by about twice its own size, so that the
//! next page is free before it is needed and no write pays for a whole segment.

use moneta_store::Key;

use crate::ghosts::PAGE_GHOSTS;
use crate::log::pages_for;
use crate::record::{Header, NO_FRAGMENT};
use crate::segments::{CAPACITY, Entry, FIRST, Location, Log};
use crate::shard::{Found, Shard, hits_of, location_of};

/// Pages kept free when memory is full: one to write into next, one for records that eviction moves.
const SPARE_PAGES: usize = 2;
/// The small log may take one in this many pages of both logs (S3-FIFO: 10 %).
const SMALL_SHARE: usize = 10;
/// Hits that take an item from the small log to the main one.
const PROMOTE_HITS: u64 = 1;
/// A segment is cleaned when at least one in this many of its bytes is dead.
const CLEAN_SHARE: usize = 2;
/// Segments looked at for cleaning each time a page is needed.
const CLEAN_LOOKS: u32 = 8;
/// Segments that a write which cannot go on without a page evicts by the rules; after that it evicts whatever is oldest.
const PATIENCE: usize = 4;

/// Whether an item at the old end of a log may stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mercy {
    /// As its hits say.
    Earned,
    /// Nothing stays.
    None,
}

impl Shard {
    /// Pages that index, logs and ghosts may still take.
    #[inline]
    pub(crate) fn pages_left(&self) -> usize {
        self.quota.saturating_sub(self.index.pages() + self.segments.len() + self.ghosts.pages())
    }

    /// Sees to it that a record of `bytes` can be written to either log. May evict or move any item: what was found
    /// before has to be found again. False if there is no room to be had.
    #[inline]
    pub(crate) fn make_room(&mut self, bytes: usize, now: u32) -> bool {
        let needed = pages_for(bytes) + usize::from(self.index.growth_needs_page());
        if self.pages_left() >= needed + SPARE_PAGES {
            return true;
        }
        self.make_room_by_reclaiming(bytes, needed, now)
    }

    #[cold]
    fn make_room_by_reclaiming(&mut self, bytes: usize, needed: usize, now: u32) -> bool {
        let fits = |shard: &Self| {
            let open = bytes <= shard.segments.room(Log::Small) && bytes <= shard.segments.room(Log::Main);
            shard.pages_left() >= if open { usize::from(shard.index.growth_needs_page()) } else { needed }
        };
        if self.shared.evict {
            let mut budget = 2 * bytes + 128;
            while budget > 0 && self.pages_left() < needed + SPARE_PAGES {
                let Some(cost) = self.reclaim_step(now, Mercy::Earned) else { break };
                budget = budget.saturating_sub(cost);
            }
        }
        let mut scanned = 0;
        while !fits(self) {
            let mercy = if scanned < PATIENCE * CAPACITY { Mercy::Earned } else { Mercy::None };
            let step = if self.shared.evict { self.reclaim_step(now, mercy) } else { self.tidy_all(now) };
            let Some(cost) = step else { return false };
            scanned += cost;
        }
        true
    }

    /// A small piece of work towards a free page; its size in bytes looked at, or `None` if there is nothing to do.
    fn reclaim_step(&mut self, now: u32, mercy: Mercy) -> Option<usize> {
        let number = self.victim()?;
        let offset = self.segments.scanned(number);
        if offset == FIRST && mercy == Mercy::Earned && self.tidy(now) {
            return Some(CAPACITY);
        }
        // Tidying may have given up the victim.
        let number = self.victim()?;
        let offset = self.segments.scanned(number);
        let Some((entry, next)) = self.segments.entry(number, offset) else {
            // Everything in it was looked at and something still lives: it moved in behind our back. Look again.
            self.segments.set_scanned(number, FIRST);
            return Some(CAPACITY);
        };
        self.segments.set_scanned(number, next);
        match entry {
            Entry::Live(location, header) => self.judge(location, header, now, mercy),
            Entry::Fragment { live: true } => self.judge_owner(number, offset),
            Entry::Fragment { live: false } | Entry::Dead => {}
        }
        Some(next - offset)
    }

    /// A piece of the way down to a smaller quota; false when there.
    pub(crate) fn shrink(&mut self) -> bool {
        let over = |shard: &Self| shard.index.pages() + shard.segments.len() + shard.ghosts.pages() > shard.quota;
        let now = self.settle();
        let mut budget = CAPACITY;
        while budget > 0 && over(self) {
            let Some(cost) = self.reclaim_step(now, Mercy::Earned) else { return false };
            budget = budget.saturating_sub(cost.max(1));
        }
        over(self)
    }

    /// The segment eviction works on.
    fn victim(&self) -> Option<u32> {
        let (small, main) = (self.segments.len_of(Log::Small), self.segments.len_of(Log::Main));
        let (first, second) =
            if small * SMALL_SHARE > small + main { (Log::Small, Log::Main) } else { (Log::Main, Log::Small) };
        self.segments.oldest(first).or_else(|| self.segments.oldest(second))
    }

    /// Decides over an item at the old end of its log.
    fn judge(&mut self, location: Location, header: Header, now: u32, mercy: Mercy) {
        let Some((found, hash)) = self.owner(location, header) else {
            debug_assert!(false, "a live record is in the index");
            return self.segments.kill(location);
        };
        if header.expiry.is_dead(now) {
            return self.expire(&found);
        }
        let log = self.segments.log(location);
        let (stays, hits) = match log {
            Log::Small => (found.hits >= PROMOTE_HITS, 0),
            Log::Main => (found.hits > 0, found.hits.saturating_sub(1)),
        };
        if stays && mercy == Mercy::Earned && self.relocate(&found, hash, Log::Main, hits) {
            self.stats.promotions += 1;
            return;
        }
        if log == Log::Small && !stays {
            self.remember(hash);
        }
        self.evict(&found);
    }

    /// A fragment outlived the record it belongs to at the old end of the log: the record is in a younger segment, or
    /// was passed over because somebody was reading it. The whole item goes.
    fn judge_owner(&mut self, number: u32, offset: usize) {
        let location = Location::new(number, offset);
        let hash = self.segments.fragment(location).0.hash;
        if let Some(found) = self.owner_of_fragment(hash, location) {
            self.evict(&found);
        }
    }

    fn owner_of_fragment(&self, hash: u64, fragment: Location) -> Option<Found> {
        let segments = &self.segments;
        let (position, payload) = self.index.find(hash, |payload| {
            let header = Header::read(segments.bytes(location_of(payload)));
            let mut next = header.next;
            while header.split && next != NO_FRAGMENT {
                if next == fragment.0 {
                    return true;
                }
                next = segments.fragment(Location(next)).0.next;
            }
            false
        })?;
        let location = location_of(payload);
        let header = Header::read(self.segments.bytes(location));
        Some(Found { position, location, hits: hits_of(payload), header })
    }

    /// The index entry of a live record, and the hash of its key.
    pub(crate) fn owner(&self, location: Location, header: Header) -> Option<(Found, u64)> {
        let start = header.bytes();
        let key = &self.segments.bytes(location)[start..start + header.key_length as usize];
        let hash = Key::new(key, self.shared.seed).hash;
        let (position, payload) = self.index.find(hash, |payload| location_of(payload) == location)?;
        Some((Found { position, location, hits: hits_of(payload), header }, hash))
    }

    /// Keeps the hash of an evicted key, with room for about as many ghosts as there are items.
    fn remember(&mut self, hash: u64) {
        let wanted = self.index.len().div_ceil(PAGE_GHOSTS);
        if self.ghosts.pages() * 4 < wanted * 3 {
            while self.ghosts.pages() < wanted && self.pages_left() > 0 {
                let Ok(page) = self.shared.pool.take() else { break };
                self.ghosts.grow(page);
            }
        }
        self.ghosts.add(hash);
    }

    /// Looks at a few segments; sweeps or cleans one that is worth it. True if it did something.
    fn tidy(&mut self, now: u32) -> bool {
        for _ in 0..CLEAN_LOOKS.min(self.segments.numbers()) {
            let number = self.clean_next % self.segments.numbers();
            self.clean_next = number + 1;
            if self.tidy_segment(number, now) {
                return true;
            }
        }
        false
    }

    /// All that can be had without evicting: tidies until one page more is free. `None` if there is nothing to tidy.
    fn tidy_all(&mut self, now: u32) -> Option<usize> {
        let before = self.pages_left();
        for number in 0..self.segments.numbers() {
            self.tidy_segment(number, now);
            if self.pages_left() > before {
                return Some(CAPACITY);
            }
        }
        None
    }

    fn tidy_segment(&mut self, number: u32, now: u32) -> bool {
        let Some(census) = self.segments.census(number) else { return false };
        let mut done = false;
        let mut live = census.live;
        if census.soonest != 0 && census.soonest <= now {
            self.sweep(number, now);
            done = true;
            live = self.segments.census(number).map_or(0, |census| census.live);
        }
        if live > 0 && (CAPACITY - live) * CLEAN_SHARE >= CAPACITY && self.pages_left() > 0 {
            self.clean(number);
            done = true;
        }
        done
    }

    /// Takes out what has expired in a segment.
    fn sweep(&mut self, number: u32, now: u32) {
        // Pinned, it stays what it is until the end even if its last record goes.
        self.segments.pin(number);
        let mut offset = FIRST;
        let mut soonest = u32::MAX;
        while let Some((entry, next)) = self.segments.entry(number, offset) {
            offset = next;
            let Entry::Live(location, header) = entry else { continue };
            if header.expiry.is_dead(now) {
                if let Some((found, _)) = self.owner(location, header) {
                    self.expire(&found);
                }
            } else if header.expiry.0 != 0 {
                soonest = soonest.min(header.expiry.0);
            }
        }
        self.segments.set_soonest(number, if soonest == u32::MAX { 0 } else { soonest });
        self.segments.unpin(number);
    }

    /// Moves what lives in a segment to the young end of its log, so that the segment is given up.
    fn clean(&mut self, number: u32) {
        self.segments.pin(number);
        let mut offset = FIRST;
        while let Some((entry, next)) = self.segments.entry(number, offset) {
            let place = Location::new(number, offset);
            offset = next;
            let owner = match entry {
                Entry::Live(location, header) => self.owner(location, header),
                Entry::Fragment { live: true } => {
                    let hash = self.segments.fragment(place).0.hash;
                    self.owner_of_fragment(hash, place).map(|found| (found, hash))
                }
                _ => None,
            };
            let Some((found, hash)) = owner else { continue };
            if !self.relocate(&found, hash, self.segments.log(found.location), found.hits) {
                break;
            }
        }
        self.segments.unpin(number);
    }
}
