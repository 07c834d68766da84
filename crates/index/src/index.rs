//! The index itself: find, insert, remove, grow.

use std::sync::Weak;

use moneta_pages::{PAGE_BYTES, Page, prefetch};

use crate::address::{COLUMN_BITS, Extent, Home, other_column, row_word};
use crate::slot::Slot;
use crate::walk::{Progress, Walk};

/// Slots in a bucket: one cache line.
pub(crate) const BUCKET_SLOTS: usize = 8;
/// Buckets in a page.
const PAGE_BUCKETS: usize = PAGE_BYTES / 64;
/// The index asks to grow when this share of its slots is taken, in 1024ths. At 7/8 an insert finds a free slot or one to
/// displace within two steps practically always; a slot then costs 9.14 bytes an entry.
const FILL_LIMIT: usize = 896;
/// The index is worth shrinking by a page when that leaves no more than this share of its slots taken, in 1024ths: low
/// enough that the entries of the buckets that go find room in those that stay, and that it does not grow again at once.
const SHRINK_LIMIT: usize = 768;
/// Displacement looks this many steps far before it gives up.
const DISPLACEMENT_STEPS: usize = 64;

/// Both buckets of a key are full and nothing could be displaced. The engine evicts something in them, or drops the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where an entry lies, until the next insert or growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    bucket: usize,
    slot: usize,
}

/// A hash index with tags of `TAG_BITS` bits and payloads of `63 - TAG_BITS` bits.
///
/// A lookup by hash finds an entry of another key with a probability of about entries / 2^(TAG_BITS + 10): column and tag
/// have to agree.
#[derive(Debug)]
pub struct Index<const TAG_BITS: u32> {
    pub(crate) pages: Vec<Page>,
    pub(crate) extent: Extent,
    pub(crate) entries: usize,
    /// Spreads displacement over slots.
    pub(crate) turn: usize,
    pub(crate) walks: Vec<Weak<Progress>>,
}

impl<const TAG_BITS: u32> Index<TAG_BITS> {
    /// Bits of a hash that tell entries apart, the lowest ones: column and tag.
    pub const HASH_BITS: u32 = COLUMN_BITS + TAG_BITS;

    /// Largest payload.
    pub const PAYLOAD_MAX: u64 = (1 << Slot::<TAG_BITS>::PAYLOAD_BITS) - 1;

    /// An empty index on its first page.
    pub fn new(mut first: Page) -> Self {
        first.zero();
        Self { pages: vec![first], extent: Extent::INITIAL, entries: 0, turn: 0, walks: Vec::new() }
    }

    /// Entries in it.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Pages it is made of.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Asks the processor for the two cache lines in which `hash` may be.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let (first, second) = self.buckets(hash);
        prefetch(self.bucket(first).as_ptr());
        prefetch(self.bucket(second).as_ptr());
    }

    /// The first entry under `hash` whose payload `is_it` accepts, with that payload.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<(Position, u64)> {
        let home = Home::of::<TAG_BITS>(hash);
        let (first, second) = self.buckets(hash);
        // The second line is on its way while the first is looked at.
        prefetch(self.bucket(second).as_ptr());
        for (bucket, is_second) in [(first, false), (second, true)] {
            let label = Slot::<TAG_BITS>::label(home.tag, is_second);
            for (slot, &word) in self.bucket(bucket).iter().enumerate() {
                let entry = Slot::<TAG_BITS>(word);
                if entry.has_label(label) && is_it(entry.payload()) {
                    return Some((Position { bucket, slot }, entry.payload()));
                }
            }
        }
        None
    }

    /// Adds an entry. The caller has made sure that the key is not there yet, and calls [`Index::grow`] when
    /// [`Index::wants_growth`] says so.
    ///
    /// # Errors
    /// [`Full`], with nothing changed.
    pub fn insert(&mut self, hash: u64, payload: u64) -> Result<(), Full> {
        let home = Home::of::<TAG_BITS>(hash);
        let (first, second) = self.buckets(hash);
        let free_first = self.free_slots(first);
        // The first choice while it has room to spare, so that most reads end in their first line.
        let order = if free_first >= 2 || free_first >= self.free_slots(second) {
            [(first, false), (second, true)]
        } else {
            [(second, true), (first, false)]
        };
        for (bucket, is_second) in order {
            if let Some(slot) = self.free_slot(bucket) {
                self.put(Position { bucket, slot }, Slot::new(home.tag, is_second, payload));
                self.entries += 1;
                return Ok(());
            }
        }
        for (bucket, is_second) in order {
            if let Some(slot) = self.displace(bucket) {
                self.put(Position { bucket, slot }, Slot::new(home.tag, is_second, payload));
                self.entries += 1;
                return Ok(());
            }
        }
        Err(Full)
    }

    /// Changes the payload of an entry.
    #[inline]
    pub fn replace(&mut self, position: Position, payload: u64) {
        let slot = Slot::<TAG_BITS>(self.bucket(position.bucket)[position.slot]).with_payload(payload);
        self.put(position, slot);
    }

    /// Removes an entry.
    #[inline]
    pub fn remove(&mut self, position: Position) {
        debug_assert!(self.bucket(position.bucket)[position.slot] != 0);
        self.put(position, Slot(0));
        self.entries -= 1;
    }

    /// The lowest [`Index::HASH_BITS`] bits of the hash that an entry was inserted under.
    pub fn hash_at(&self, position: Position) -> u64 {
        let entry = Slot::<TAG_BITS>(self.bucket(position.bucket)[position.slot]);
        Self::hash_of(position.bucket, entry)
    }

    fn hash_of(bucket: usize, entry: Slot<TAG_BITS>) -> u64 {
        let column = (bucket & (PAGE_BUCKETS - 1)) as u32;
        let column = if entry.is_second() { other_column(column, entry.tag()) } else { column };
        u64::from(entry.tag()) << COLUMN_BITS | u64::from(column)
    }

    /// Payloads of the entries in the two buckets of `hash`: after [`Full`], one of them has to go.
    pub fn rivals(&self, hash: u64) -> impl Iterator<Item = (Position, u64)> {
        let (first, second) = self.buckets(hash);
        [first, second].into_iter().flat_map(move |bucket| {
            self.bucket(bucket)
                .iter()
                .enumerate()
                .filter(|&(_, &word)| word != 0)
                .map(move |(slot, &word)| (Position { bucket, slot }, Slot::<TAG_BITS>(word).payload()))
        })
    }

    /// Whether so many slots are taken that the next inserts become slow.
    #[inline]
    pub fn wants_growth(&self) -> bool {
        self.entries * 1024 > self.extent.buckets() * BUCKET_SLOTS * FILL_LIMIT && self.can_grow()
    }

    /// Whether growing by one bucket takes a new page first.
    #[inline]
    pub fn growth_needs_page(&self) -> bool {
        self.extent.buckets() == self.pages.len() * PAGE_BUCKETS
    }

    /// Adds a page for [`Index::grow`].
    pub fn add_page(&mut self, mut page: Page) {
        page.zero();
        self.pages.push(page);
    }

    /// Splits the next bucket in two. Call when [`Index::growth_needs_page`] is false.
    ///
    /// # Panics
    /// If it needs a page.
    pub fn grow(&mut self) {
        assert!(!self.growth_needs_page());
        let from = self.extent.split;
        let to = from + self.extent.round();
        let level = self.extent.level;
        for slot in 0..BUCKET_SLOTS {
            let entry = Slot::<TAG_BITS>(self.bucket(from)[slot]);
            if entry.is_empty() {
                continue;
            }
            let word = row_word::<TAG_BITS>(entry.tag(), entry.is_second());
            if (word >> level) & 1 == 1 {
                self.put(Position { bucket: from, slot }, Slot(0));
                self.put(Position { bucket: to, slot }, entry);
            }
        }
        self.extent = self.extent.after();
    }

    /// Whether the index could do with a page less.
    #[inline]
    pub fn wants_shrinking(&self) -> bool {
        let buckets = (self.pages.len() - 1) * PAGE_BUCKETS;
        self.entries * 1024 <= buckets * BUCKET_SLOTS * SHRINK_LIMIT
    }

    /// Gives back the last page: merges buckets, in the reverse of the order in which they were split. Entries for which
    /// there is no room, practically none after [`Index::wants_shrinking`], leave the index; their hashes' lowest
    /// [`Index::HASH_BITS`] bits and their payloads are told to `lost`. False if it is not possible now: the first page
    /// stays, and nothing shrinks while a walk is under way.
    pub fn shrink(&mut self, mut lost: impl FnMut(u64, u64)) -> bool {
        let buckets = (self.pages.len() - 1) * PAGE_BUCKETS;
        // Merging takes many displacements, which a walk forbids, and would mix the walk's classes.
        if buckets < PAGE_BUCKETS || self.walks.iter().any(|walk| walk.strong_count() > 0) {
            return false;
        }
        while self.extent.buckets() > buckets {
            self.merge_last(&mut lost);
        }
        self.pages.pop();
        true
    }

    /// Merges the last bucket into the one it was split from.
    fn merge_last(&mut self, lost: &mut impl FnMut(u64, u64)) {
        let last = self.extent.buckets() - 1;
        let mut entries = [Slot::<TAG_BITS>(0); BUCKET_SLOTS];
        for (slot, entry) in entries.iter_mut().enumerate() {
            *entry = Slot(self.bucket(last)[slot]);
            self.put(Position { bucket: last, slot }, Slot(0));
        }
        self.extent = self.extent.before();
        let into = self.extent.split;
        for entry in entries.into_iter().filter(|entry| !entry.is_empty()) {
            match self.free_slot(into).or_else(|| self.displace(into)) {
                Some(slot) => self.put(Position { bucket: into, slot }, entry),
                None => {
                    self.entries -= 1;
                    lost(Self::hash_of(last, entry), entry.payload());
                }
            }
        }
    }

    /// Empties the index and gives back every page but the first.
    pub fn clear(&mut self) {
        self.pages.truncate(1);
        self.pages[0].zero();
        self.extent = Extent::INITIAL;
        self.entries = 0;
        // What walks were to see is gone.
        for walk in self.walks.drain(..).filter_map(|walk| walk.upgrade()) {
            walk.end();
        }
    }

    /// Begins a walk over all entries.
    pub fn begin_walk(&mut self) -> Walk {
        let walk = Walk::new(self.extent.level);
        self.walks.retain(|walk| walk.strong_count() > 0);
        self.walks.push(std::sync::Arc::downgrade(&walk.shared));
        walk
    }

    /// Shows the payloads of the next class of buckets; false when there are no more. Entries that were there when the
    /// walk began, and stay, are shown once.
    pub fn walk(&self, walk: &Walk, mut show: impl FnMut(Position, u64)) -> bool {
        let class = walk.next();
        if class >= walk.classes() {
            return false;
        }
        for bucket in (class..self.extent.buckets()).step_by(walk.classes()) {
            for (slot, &word) in self.bucket(bucket).iter().enumerate().filter(|&(_, &word)| word != 0) {
                show(Position { bucket, slot }, Slot::<TAG_BITS>(word).payload());
            }
        }
        walk.advance();
        walk.next() < walk.classes()
    }

    fn can_grow(&self) -> bool {
        self.extent.level < TAG_BITS
    }

    #[inline]
    fn buckets(&self, hash: u64) -> (usize, usize) {
        let home = Home::of::<TAG_BITS>(hash);
        let first = self.extent.bucket(home.column, row_word::<TAG_BITS>(home.tag, false));
        let second = self.extent.bucket(other_column(home.column, home.tag), row_word::<TAG_BITS>(home.tag, true));
        (first, second)
    }

    /// The bucket in which an entry would be under its other choice.
    fn alternative(&self, bucket: usize, entry: Slot<TAG_BITS>) -> usize {
        let column = (bucket & (PAGE_BUCKETS - 1)) as u32;
        let word = row_word::<TAG_BITS>(entry.tag(), !entry.is_second());
        self.extent.bucket(other_column(column, entry.tag()), word)
    }

    #[inline]
    fn bucket(&self, bucket: usize) -> &[u64; BUCKET_SLOTS] {
        let start = bucket % PAGE_BUCKETS * BUCKET_SLOTS;
        let words = &self.pages[bucket / PAGE_BUCKETS].words()[start..start + BUCKET_SLOTS];
        words.try_into().expect("a bucket is whole")
    }

    #[inline]
    fn put(&mut self, position: Position, slot: Slot<TAG_BITS>) {
        let start = position.bucket % PAGE_BUCKETS * BUCKET_SLOTS;
        self.pages[position.bucket / PAGE_BUCKETS].words_mut()[start + position.slot] = slot.0;
    }

    fn free_slots(&self, bucket: usize) -> usize {
        self.bucket(bucket).iter().filter(|&&word| word == 0).count()
    }

    fn free_slot(&self, bucket: usize) -> Option<usize> {
        self.bucket(bucket).iter().position(|&word| word == 0)
    }

    /// Makes room in `bucket` by moving one of its entries to that entry's other bucket, and so on from there. The path
    /// is found before anything moves, so that a failure changes nothing.
    fn displace(&mut self, bucket: usize) -> Option<usize> {
        let mut path: Vec<Position> = Vec::new();
        let mut at = bucket;
        for _ in 0..DISPLACEMENT_STEPS {
            if let Some(slot) = self.free_slot(at) {
                let mut hole = Position { bucket: at, slot };
                while let Some(from) = path.pop() {
                    let entry = Slot::<TAG_BITS>(self.bucket(from.bucket)[from.slot]);
                    self.put(hole, entry.displaced());
                    self.put(from, Slot(0));
                    hole = from;
                }
                debug_assert_eq!(hole.bucket, bucket);
                return Some(hole.slot);
            }
            let (slot, next) = self.step_from(at, &path)?;
            path.push(Position { bucket: at, slot });
            at = next;
        }
        None
    }

    /// The entry of a full bucket to displace: one whose other bucket has room if there is one, else any.
    fn step_from(&mut self, bucket: usize, path: &[Position]) -> Option<(usize, usize)> {
        self.turn = self.turn.wrapping_add(1);
        let mut fallback = None;
        for offset in 0..BUCKET_SLOTS {
            let slot = (self.turn + offset) % BUCKET_SLOTS;
            let other = self.alternative(bucket, Slot(self.bucket(bucket)[slot]));
            // A path that crosses itself would move an entry twice.
            if other == bucket || path.iter().any(|step| step.bucket == other) || !self.may_move(bucket, other) {
                continue;
            }
            if self.free_slot(other).is_some() {
                return Some((slot, other));
            }
            fallback.get_or_insert((slot, other));
        }
        fallback
    }

    fn may_move(&self, from: usize, to: usize) -> bool {
        self.walks.iter().filter_map(Weak::upgrade).all(|walk| walk.allows(from, to))
    }
}
