//! A store's own feed: batches of its engine, completed change by change.

use std::sync::Arc;

use moneta_store::feed::{Batch, Change, Entry, Feed, FeedPlace, Gap, Reader, Recorded, Wanted};
use moneta_store::{Cx, Store, StoreError, component};

use crate::resolve::{is_wanted, look_up};

/// Reads the feed of a store. Of a feed that has keys alone, a batch may be any number of bytes, so it is taken change by change.
pub struct LogSource {
    store: Arc<dyn Store>,
    wanted: Wanted,
    reader: Box<dyn Reader>,
    gap: Option<Gap>,
    entries: Vec<Entry>,
    /// So many of them were taken.
    taken: usize,
    /// After what was taken.
    place: FeedPlace,
    /// After the batch, and up to when all is told then.
    next: FeedPlace,
    watermark: u64,
    /// Up to when all was told before the batch.
    told: u64,
    is_end: bool,
}

impl LogSource {
    /// Reads what a store tells from a place on; `None` if the store has no feed.
    pub fn new(store: &Arc<dyn Store>, place: FeedPlace, wanted: Wanted) -> Option<Self> {
        let reader = feed_of(store)?.reader(place, wanted.clone());
        let store = Arc::clone(store);
        let entries = Vec::new();
        Some(Self {
            store,
            wanted,
            reader,
            gap: None,
            entries,
            taken: 0,
            place,
            next: place,
            watermark: 0,
            told: 0,
            is_end: false,
        })
    }

    /// Whether all of the last batch was taken.
    pub fn is_empty(&self) -> bool {
        self.gap.is_none() && self.taken == self.entries.len()
    }

    /// Reads the next batch: up to `limit` changes, and not many more bytes of keys and values than `bytes`. Tells how many came,
    /// the unwanted among them. May wait for a device. What is left of the batch before is dropped.
    ///
    /// # Errors
    /// The device's. Nothing was read then.
    pub fn read(&mut self, limit: usize, bytes: usize) -> Result<usize, StoreError> {
        let Batch { gap, entries, next, watermark, is_end } = self.reader.read(limit, bytes)?;
        (self.told, self.watermark) = (self.watermark, watermark);
        (self.gap, self.entries, self.next, self.is_end) = (gap, entries, next, is_end);
        self.taken = 0;
        if self.entries.is_empty() {
            self.place = next;
        }
        Ok(self.entries.len())
    }

    /// The next change of the batch; `None`: there is no more in it. May wait for the store.
    ///
    /// # Errors
    /// The store's. The change was not told then.
    pub fn next_change(&mut self) -> Result<Option<Change>, StoreError> {
        self.visit_next(|change| change.clone())
    }

    /// Shows the next change where it lies: batches have thousands, and copying each costs as much as writing it. As
    /// [`LogSource::next_change`].
    ///
    /// # Errors
    /// The store's. The change was not told then.
    pub fn visit_next<T>(&mut self, visit: impl FnOnce(&Change) -> T) -> Result<Option<T>, StoreError> {
        if let Some(gap) = self.gap.take() {
            return Ok(Some(visit(&Change::Gap(gap))));
        }
        while let Some(Entry { recorded, next }) = self.entries.get(self.taken) {
            self.taken += 1;
            self.place = if self.taken == self.entries.len() { self.next } else { *next };
            match recorded {
                Recorded::Whole(change) if is_wanted(&self.wanted, change) => return Ok(Some(visit(change))),
                Recorded::Whole(_) => {}
                Recorded::KeyOnly(key) => {
                    if let Some(change) = look_up(&self.store, key, &self.wanted)? {
                        return Ok(Some(visit(&change)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Where to read on after what was taken.
    pub fn place(&self) -> FeedPlace {
        self.place
    }

    /// Everything that the store was told until then was taken, in milliseconds since the Unix epoch; 0: that is not known.
    pub fn watermark(&self) -> u64 {
        if self.is_empty() { self.watermark } else { self.told }
    }

    /// There was no more after what was taken.
    pub fn is_end(&self) -> bool {
        self.is_end && self.is_empty()
    }

    /// Bytes of the buffers that it keeps between two reads.
    pub fn held(&self) -> usize {
        self.reader.held()
    }
}

fn feed_of(store: &Arc<dyn Store>) -> Option<&dyn Feed> {
    store.parts().feed
}

/// Since when a store remembers every delete that came to it, in milliseconds since the Unix epoch; 0: it remembers none. Readers
/// are told of it: what it had deleted before that, a feed from a later place does not take away elsewhere.
pub fn horizon(store: &Arc<dyn Store>) -> u64 {
    component::report(store, &Cx::outside()).stats.horizon
}
