//! Room for new records: S3-FIFO eviction, and before it the cleaning of segments that are full of the dead.
//!
//! S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need for cache eviction", SOSP 2023): new keys enter
//! a small log; what leaves its old end goes to the main log if it was hit meanwhile, else out, its hash kept as a ghost. At
//! the old end of the main log an item that was hit goes round once more for each hit. Here the two logs share one pool of
//! pages, so nothing is evicted, and nothing moved, before memory is full. How long either log may be, and what is too large
//! for its hits, `probation` says.
//!
//! The work is spread: when pages run short, every write lets eviction advance by about twice its own size, so that the
//! next page is free before it is needed and no write pays for a whole segment.

use moneta_store::{Expiry, Key};

use crate::ghosts::PAGE_GHOSTS;
use crate::log::pages_for;
use crate::record::{Header, NO_FRAGMENT};
use crate::segments::{CAPACITY, Entry, FIRST, Location, Log};
use crate::shard::{Found, Shard, hits_of, location_of};

/// Pages kept free when memory is full: one to write into next, one for records that eviction moves.
const SPARE_PAGES: usize = 2;
/// A segment is cleaned when at least one in this many of its bytes is dead.
const CLEAN_SHARE: usize = 2;
/// Segments looked at for cleaning before eviction goes on; a look is one cache line.
const CLEAN_LOOKS: u32 = 256;
/// Sweeps that may turn out to gain no page, for each segment's worth of eviction. Where lives of all lengths are mixed,
/// something dies in every segment in every second, and looking for it must not take the place of eviction.
const VAIN_SWEEPS: u32 = 4;
/// A store that must not evict cleans segments of which one in this many bytes is dead, once nothing deader is left.
const CLEAN_SHARE_STRICT: usize = 8;
/// Segments that such a store cleans for one write: each gives at least an eighth, so these are enough for a page.
const CLEANS_STRICT: usize = 12;
/// Bytes by which records may grow when a segment is cleaned into the room left in another.
const MOVED_HEADERS: usize = 1024;
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

/// What came of looking at a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tidied {
    /// There was nothing to do.
    Untouched,
    /// Something was done, and the segment is still there.
    InVain,
    /// The segment was given up.
    Gained,
}

/// Whether an item is likely to die before it is read again: it has less time left than has passed since its last access.
fn dies_before_use(header: &Header, now: u32) -> bool {
    let expiry = header.expiry;
    expiry != Expiry::NEVER && expiry.0.saturating_sub(now) < now.saturating_sub(header.last_access)
}

impl Shard {
    /// Pages that index, logs and ghosts take.
    #[inline]
    pub(crate) fn pages_used(&self) -> usize {
        self.index.pages() + self.segments.len() + self.ghosts.pages()
    }

    /// Pages that index, logs and ghosts may still take.
    #[inline]
    pub(crate) fn pages_left(&self) -> usize {
        self.quota.saturating_sub(self.pages_used())
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
        // Where nothing may be evicted, the last page is for cleaning: without it the dead could never be parted from the
        // living again.
        let reserve = usize::from(!self.shared.evict);
        let fits = |shard: &Self| {
            let open = bytes <= shard.segments.room(Log::Small) && bytes <= shard.segments.room(Log::Main);
            let taken = if open { usize::from(shard.index.growth_needs_page()) } else { needed };
            taken == 0 || shard.pages_left() >= taken + reserve
        };
        if self.shared.evict {
            self.trim();
        }
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
        if mercy == Mercy::Earned && self.vain_sweeps > 0 && self.tidy(now) {
            return Some(CAPACITY);
        }
        let number = self.victim()?;
        let offset = self.segments.scanned(number);
        let Some((entry, next)) = self.segments.entry(number, offset) else {
            // Everything in it was looked at and something still lives: it moved in behind our back. Look again.
            self.segments.set_scanned(number, FIRST);
            return Some(CAPACITY);
        };
        self.segments.set_scanned(number, next);
        self.probation.note_scan(self.segments.log_of(number), next - offset, self.lengths());
        match entry {
            Entry::Live(location, header) => self.judge(location, header, now, mercy),
            Entry::Fragment { live: true } => self.judge_owner(number, offset, now, mercy),
            Entry::Fragment { live: false } | Entry::Dead => {}
        }
        self.scanned_since_tidying += next - offset;
        if self.scanned_since_tidying >= CAPACITY {
            self.scanned_since_tidying = 0;
            self.vain_sweeps = VAIN_SWEEPS;
        }
        Some(next - offset)
    }

    /// A piece of the way to another quota; false when there. On the way down the quota follows what is in use, so that
    /// no write meanwhile has to make up for the whole difference; it sinks by a page at least, or writes that take what
    /// was freed could hold it up for ever.
    pub(crate) fn approach(&mut self, quota: usize) -> bool {
        let now = self.settle();
        let mut budget = CAPACITY;
        while budget > 0 && self.pages_used() > quota {
            let cost = if self.trim() { Some(CAPACITY) } else { self.reclaim_step(now, Mercy::Earned) };
            let Some(cost) = cost else {
                self.quota = quota;
                return false;
            };
            budget = budget.saturating_sub(cost);
        }
        let used = self.pages_used();
        self.quota = if used <= quota { quota } else { (self.quota - 1).min(used + SPARE_PAGES).max(quota) };
        used > quota
    }

    /// Gives back a page of an index or of ghosts that were made for far more items. True if there was one.
    fn trim(&mut self) -> bool {
        let ghosts = self.index.len().div_ceil(PAGE_GHOSTS).max(1);
        if self.ghosts.pages() > 2 * ghosts {
            self.ghosts.shrink(ghosts);
            return true;
        }
        let mut lost = Vec::new();
        if !self.index.wants_shrinking() || !self.index.shrink(|_, payload| lost.push(payload)) {
            return false;
        }
        for payload in lost {
            self.evict_unindexed(location_of(payload));
        }
        true
    }

    /// Segments of the small and of the main log.
    fn lengths(&self) -> [usize; 2] {
        [Log::Small, Log::Main].map(|log| self.segments.len_of(log))
    }

    /// The segment eviction works on.
    fn victim(&self) -> Option<u32> {
        let (first, second) = match self.probation.turn(self.lengths()) {
            Log::Small => (Log::Small, Log::Main),
            Log::Main => (Log::Main, Log::Small),
        };
        self.segments.oldest(first).or_else(|| self.segments.oldest(second))
    }

    /// Seconds since the last access of the item that eviction would look at next.
    pub(crate) fn tail_idle(&self) -> u64 {
        let Some(number) = self.victim() else { return 0 };
        let mut offset = self.segments.scanned(number);
        while let Some((entry, next)) = self.segments.entry(number, offset) {
            if let Entry::Live(_, header) = entry {
                return self.shared.clock.now().saturating_sub(header.last_access).into();
            }
            offset = next;
        }
        0
    }

    /// Decides over an item at the old end of its log.
    fn judge(&mut self, location: Location, header: Header, now: u32, mercy: Mercy) {
        let Some((found, hash)) = self.owner(location, header) else {
            debug_assert!(false, "a live record is in the index");
            return self.segments.kill(location);
        };
        self.judge_item(&found, hash, now, mercy);
    }

    fn judge_item(&mut self, found: &Found, hash: u64, now: u32, mercy: Mercy) {
        if found.header.expiry.is_dead(now) {
            return self.expire(found);
        }
        let log = self.segments.log(found.location);
        let bytes = found.header.value_start() + found.header.value_length as usize;
        let wanted = match found.hits {
            _ if dies_before_use(&found.header, now) => 0,
            0 => u64::from(log == Log::Small && self.probation.takes_unread(bytes, self.lengths())),
            hits => hits,
        };
        let stays = wanted > 0 && self.probation.is_worth(bytes, wanted);
        let hits = if log == Log::Small { 0 } else { found.hits.saturating_sub(1) };
        if stays && mercy == Mercy::Earned && self.relocate(found, hash, Log::Main, hits) {
            self.numbers.promotions += 1;
            return;
        }
        if !stays {
            self.remember(hash, log);
            self.probation.note_eviction(log, bytes, self.segments.len() * CAPACITY);
        }
        self.evict(found);
    }

    /// A fragment came to the old end of the log before the record it belongs to: a large item that moved lies with its
    /// record after its fragments. It is judged as a whole.
    fn judge_owner(&mut self, number: u32, offset: usize, now: u32, mercy: Mercy) {
        let location = Location::new(number, offset);
        let (fragment, _) = self.segments.fragment(location);
        match self.owner_of_fragment(fragment.hash, location) {
            Some(found) => self.judge_item(&found, fragment.hash, now, mercy),
            None => {
                debug_assert!(false, "a live fragment belongs to an item");
                self.segments.bury(location, fragment.size());
            }
        }
    }

    fn owner_of_fragment(&self, hash: u64, fragment: Location) -> Option<Found> {
        let segments = &self.segments;
        let (position, payload) = self.index.find(hash, |payload| {
            let header = segments.header(location_of(payload));
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
        let header = self.segments.header(location);
        Some(Found { position, location, hits: hits_of(payload), header })
    }

    /// The index entry of a live record, and the hash of its key.
    pub(crate) fn owner(&self, location: Location, header: Header) -> Option<(Found, u64)> {
        let key = self.segments.key(location);
        let hash = Key::new(key, self.shared.seed).hash;
        let (position, payload) = self.index.find(hash, |payload| location_of(payload) == location)?;
        Some((Found { position, location, hits: hits_of(payload), header }, hash))
    }

    /// Keeps the hash of a key evicted from `log`, with room for about as many ghosts as there are items.
    fn remember(&mut self, hash: u64, log: Log) {
        let wanted = self.index.len().div_ceil(PAGE_GHOSTS);
        if self.ghosts.pages() * 4 < wanted * 3 {
            while self.ghosts.pages() < wanted && self.pages_left() > 0 {
                let Ok(page) = self.shared.pool.take() else { break };
                self.ghosts.grow(page);
            }
        }
        self.ghosts.add(hash, log);
    }

    /// Looks at some segments; sweeps or cleans what is worth it. True if that gained room.
    fn tidy(&mut self, now: u32) -> bool {
        for _ in 0..CLEAN_LOOKS.min(self.segments.numbers()) {
            let number = self.clean_next % self.segments.numbers();
            self.clean_next = number + 1;
            match self.tidy_segment(number, now, CLEAN_SHARE) {
                Tidied::Untouched => {}
                Tidied::Gained => return true,
                Tidied::InVain => {
                    self.vain_sweeps -= 1;
                    if self.vain_sweeps == 0 {
                        return false;
                    }
                }
            }
        }
        // Nothing more is worth it until eviction has come a segment further.
        self.vain_sweeps = 0;
        false
    }

    /// All that can be had without evicting: tidies until one page more is free. `None` if there is nothing to tidy.
    fn tidy_all(&mut self, now: u32) -> Option<usize> {
        // A sweep that freed nothing a moment ago need not be repeated for every refused write.
        if self.tidied_in_vain == (now, self.index.len()) {
            return None;
        }
        let before = self.pages_left();
        for number in 0..self.segments.numbers() {
            self.tidy_segment(number, now, CLEAN_SHARE);
            if self.pages_left() > before {
                return Some(CAPACITY);
            }
        }
        for _ in 0..CLEANS_STRICT {
            let Some(number) = self.deadest() else { break };
            self.tidy_segment(number, now, CLEAN_SHARE_STRICT);
            if self.pages_left() > before {
                return Some(CAPACITY);
            }
        }
        self.tidied_in_vain = (now, self.index.len());
        None
    }

    /// The sealed segment with the most dead bytes.
    fn deadest(&self) -> Option<u32> {
        let live = |&number: &u32| self.segments.census(number).map(|census| census.live);
        (0..self.segments.numbers()).filter(|number| live(number).is_some()).min_by_key(live)
    }

    fn tidy_segment(&mut self, number: u32, now: u32, share: usize) -> Tidied {
        let Some(census) = self.segments.census(number) else { return Tidied::Untouched };
        let mut tidied = Tidied::Untouched;
        let mut live = census.live;
        if census.soonest != 0 && census.soonest <= now {
            self.sweep(number, now);
            match self.segments.census(number) {
                Some(census) => live = census.live,
                None => return Tidied::Gained,
            }
            tidied = Tidied::InVain;
        }
        let log = self.segments.log_of(number);
        let can_move = self.pages_left() > 0 || live + MOVED_HEADERS <= self.segments.room(log);
        if (CAPACITY - live) * share >= CAPACITY && can_move {
            tidied = if self.clean(number) { Tidied::Gained } else { Tidied::InVain };
        }
        tidied
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

    /// Moves what lives in a segment to the young end of its log, so that the segment is given up. False if it was not,
    /// for want of room.
    fn clean(&mut self, number: u32) -> bool {
        self.segments.pin(number);
        let mut complete = true;
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
                complete = false;
                break;
            }
        }
        self.segments.unpin(number);
        complete
    }
}
