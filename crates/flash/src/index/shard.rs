//! A shard of the index: which keys exist, and where their records are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use moneta_index::{Index, Position};
use moneta_pages::{PAGE_BYTES, Page, PagePool};

use crate::index::location::{Location, TAG_BITS};

/// The index's memory, shared by all shards: pages up to a limit.
#[derive(Debug)]
pub(crate) struct Room {
    pool: Arc<PagePool>,
    /// Pages that shards may still take.
    left: AtomicUsize,
}

impl Room {
    /// Room for `bytes` in total, but at least one page for each of `shards`.
    pub(crate) fn new(bytes: u64, shards: usize) -> Arc<Self> {
        let pages = usize::try_from(bytes / PAGE_BYTES as u64).unwrap_or(usize::MAX).max(shards);
        Arc::new(Self { pool: PagePool::new(), left: AtomicUsize::new(pages) })
    }

    /// A page.
    ///
    /// # Errors
    /// `OutOfMemory` at the limit, or the system's.
    pub(crate) fn take(&self) -> std::io::Result<Page> {
        let took = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        took.map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
        self.pool.take().inspect_err(|_| self.gave_back(1))
    }

    fn gave_back(&self, pages: usize) {
        self.left.fetch_add(pages, Ordering::Relaxed);
    }
}

/// The rank of an entry for eviction: its hits, then the sequence number of its region. The lowest is evicted first.
pub(crate) type Worth = (u64, u64);

/// An entry evicted from the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The bits of its key's hash that a shard's index keeps.
    pub(crate) hash: u64,
    pub(crate) location: Location,
}

/// One shard, behind its lock.
pub(crate) struct Shard {
    pub(crate) index: Index<TAG_BITS>,
    room: Arc<Room>,
    /// The floor of the last flush this shard has noted.
    floor: u64,
    /// Flushed entries that are not swept yet.
    flushed: usize,
}

impl Shard {
    /// An empty shard.
    ///
    /// # Errors
    /// If the system gives no memory for its first page.
    pub(crate) fn new(room: Arc<Room>) -> std::io::Result<Self> {
        Ok(Self::with(Index::new(room.take()?), room))
    }

    /// A shard over a filled index whose pages come from `room`.
    pub(crate) fn with(index: Index<TAG_BITS>, room: Arc<Room>) -> Self {
        Self { index, room, floor: 0, flushed: 0 }
    }

    /// The entry under a hash. It may be another key's: a chance of 2^-36 for each item in the shard.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<(Position, Location)> {
        self.index.find(hash, |_| true).map(|(position, payload)| (position, Location(payload)))
    }

    /// Enters `location` under `hash`. Without room for one more entry, evicts entries of other keys, the lowest rank first, and
    /// passes them to `lost`.
    pub(crate) fn put(
        &mut self,
        hash: u64,
        location: Location,
        worth: impl Fn(Location) -> Worth,
        mut lost: impl FnMut(Lost),
    ) {
        if let Some((position, _)) = self.find(hash) {
            self.index.replace(position, location.0);
            return;
        }
        if !self.make_room() {
            // At the limit, evict before buckets fill up: an insert into a full index is slow.
            self.evict(hash, &worth, &mut lost);
        }
        while self.index.insert(hash, location.0).is_err() && self.evict(hash, &worth, &mut lost) {}
    }

    /// Adds an entry under a hash that has none, if there is room.
    pub(crate) fn add(&mut self, hash: u64, location: Location) -> bool {
        self.make_room() && self.index.insert(hash, location.0).is_ok()
    }

    /// Grows the index if its load asks for that before an insert. False at the memory limit.
    fn make_room(&mut self) -> bool {
        // Two steps of growth for each insert catch up with a burst; on average one insert in seven needs one.
        for _ in 0..2 {
            if !self.index.wants_growth() {
                break;
            }
            if self.index.growth_needs_page() {
                let Ok(page) = self.room.take() else { return false };
                self.index.add_page(page);
            }
            self.index.grow();
        }
        true
    }

    /// Evicts the lowest-ranked entry of the buckets that `hash` maps to. False if they are empty.
    fn evict(&mut self, hash: u64, worth: impl Fn(Location) -> Worth, mut lost: impl FnMut(Lost)) -> bool {
        let rivals = self.index.rivals(hash).map(|(position, payload)| (position, Location(payload)));
        let Some((position, location)) = rivals.min_by_key(|(_, location)| worth(*location)) else { return false };
        lost(Lost { hash: self.index.hash_at(position), location });
        self.index.remove(position);
        true
    }

    /// Gives a page back if the index is sparse. False if it does not do that now. Entries that no longer fit are evicted and
    /// passed to `lost`.
    pub(crate) fn shrink(&mut self, mut lost: impl FnMut(Lost)) -> bool {
        let shrinks = self.index.wants_shrinking()
            && self.index.shrink(|hash, payload| lost(Lost { hash, location: Location(payload) }));
        if shrinks {
            self.room.gave_back(1);
        }
        shrinks
    }

    /// Notes the floor of the last flush: all current entries were stored before it.
    pub(crate) fn note_floor(&mut self, floor: u64) {
        if self.floor < floor {
            self.floor = floor;
            self.flushed = self.index.len();
        }
    }

    /// Notes that no entry below a floor is left.
    pub(crate) fn note_swept(&mut self, floor: u64) {
        if self.floor <= floor {
            self.floor = floor;
            self.flushed = 0;
        }
    }

    /// Whether flushed entries are left.
    pub(crate) fn has_flushed(&self) -> bool {
        self.flushed > 0
    }

    /// A flushed entry was replaced.
    pub(crate) fn note_replaced(&mut self) {
        self.flushed = self.flushed.saturating_sub(1);
    }

    /// Flushed entries were swept out of the index.
    pub(crate) fn note_removed(&mut self, entries: usize) {
        self.flushed = self.flushed.saturating_sub(entries);
    }

    /// Items, without those that the last noted flush removed.
    pub(crate) fn items(&self) -> u64 {
        self.index.len().saturating_sub(self.flushed) as u64
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        (self.index.pages() * PAGE_BYTES) as u64
    }
}
