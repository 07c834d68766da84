//! A shard of the index: which keys are there, and where.

use std::sync::Arc;

use moneta_index::{Index, Position};
use moneta_pages::{PAGE_BYTES, PagePool};

use crate::location::{Location, TAG_BITS};

/// One shard, behind its lock.
pub(crate) struct Shard {
    pub(crate) index: Index<TAG_BITS>,
    pool: Arc<PagePool>,
}

impl Shard {
    /// An empty shard.
    ///
    /// # Errors
    /// If the system gives no memory for its first page.
    pub(crate) fn new(pool: Arc<PagePool>) -> std::io::Result<Self> {
        Ok(Self { index: Index::new(pool.take()?), pool })
    }

    /// A shard with what `index` holds.
    pub(crate) fn with(index: Index<TAG_BITS>, pool: Arc<PagePool>) -> Self {
        Self { index, pool }
    }

    /// The entry under a hash. It may be another key's: of the items in the shard one in 2^36 has the same bits.
    #[inline]
    pub(crate) fn find(&self, hash: u64) -> Option<(Position, Location)> {
        self.index.find(hash, |_| true).map(|(position, payload)| (position, Location(payload)))
    }

    /// Makes `location` what the index has under `hash`. True if an entry of another key had to go for want of room, which
    /// practically never happens, or if memory is out.
    pub(crate) fn put(&mut self, hash: u64, location: Location) -> bool {
        if let Some((position, _)) = self.find(hash) {
            self.index.replace(position, location.0);
            return false;
        }
        // Two steps of growth an insert catch up with a burst; in the long run one in seven inserts takes one.
        for _ in 0..2 {
            if self.index.wants_growth() && (!self.index.growth_needs_page() || self.add_page()) {
                self.index.grow();
            }
        }
        let mut lost = false;
        while self.index.insert(hash, location.0).is_err() {
            lost = true;
            let Some(position) = self.index.rivals(hash).map(|(position, _)| position).next() else { break };
            self.index.remove(position);
        }
        lost
    }

    fn add_page(&mut self) -> bool {
        match self.pool.take() {
            Ok(page) => {
                self.index.add_page(page);
                true
            }
            Err(_) => false,
        }
    }

    /// Removes the entries whose location `goes`, and gives back memory if that leaves much of it empty.
    pub(crate) fn remove_where(&mut self, mut goes: impl FnMut(Location) -> bool) -> u64 {
        let mut gone = Vec::new();
        let walk = self.index.begin_walk();
        let mut more = true;
        while more {
            more = self.index.walk(&walk, |position, payload| {
                if goes(Location(payload)) {
                    gone.push(position);
                }
            });
        }
        drop(walk);
        gone.iter().for_each(|position| self.index.remove(*position));
        while self.index.wants_shrinking() && self.index.shrink(|_| {}) {}
        gone.len() as u64
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        (self.index.pages() * PAGE_BYTES) as u64
    }
}
