//! A walk of the items: one of the entries below, of which each head is read for what it says, and with it the pieces, since
//! an item is there only if all of them are.

use std::sync::Arc;

use moneta_store::steps::start;
use moneta_store::{Cursor, Cx, ItemMeta, Key, Step, Store, StoreError, Walked, Walking, component};
use parking_lot::Mutex;

use super::layout::{self, HEAD_BYTES};
use super::reads::Found;
use super::{Call, Chunked};

/// Where a walk stands.
#[derive(Default)]
struct Walk {
    below: Cursor,
    /// What a batch that had to be waited for brought.
    waited: Option<Arc<Mutex<Vec<Shown>>>>,
    /// The entries below are at their end.
    is_last: bool,
}

/// An item to be shown.
struct Shown {
    key: Vec<u8>,
    meta: ItemMeta,
    value_bytes: usize,
    size: usize,
}

/// An entry that the store below showed.
struct Entry {
    key: Vec<u8>,
    size: usize,
}

impl<S: Store + 'static> component::Walk for Chunked<S> {
    /// Walks a batch of entries, in one call or, where items have to be waited for, in two.
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let mut walk: Box<Walk> = cursor.take().unwrap_or_default();
        if let Some(batch) = walk.waited.take() {
            return walk.end_batch(&batch, cursor, show);
        }
        let Some(below) = self.shared.below.parts().walk else { return Walking::End };
        let mut entries = Vec::new();
        let walking = below.walk(cx, &mut walk.below, &mut |entry| {
            if !layout::is_piece_name(entry.key) {
                entries.push(Entry { key: entry.key.to_vec(), size: entry.size });
            }
        });
        match walking {
            Walking::More => {}
            Walking::End => walk.is_last = true,
            Walking::Wait(pending) => {
                cursor.keep(walk);
                return Walking::Wait(pending);
            }
        }
        let batch = Arc::new(Mutex::new(Vec::with_capacity(entries.len())));
        let (call, filled) = (self.call_in(cx), Arc::clone(&batch));
        match start(async move { call.look_into(entries, &filled).await }) {
            Step::Done(_) => walk.end_batch(&batch, cursor, show),
            Step::Wait(pending) => {
                walk.waited = Some(batch);
                cursor.keep(walk);
                Walking::Wait(pending)
            }
        }
    }
}

impl Walk {
    fn end_batch(
        self: Box<Self>,
        batch: &Mutex<Vec<Shown>>,
        cursor: &mut Cursor,
        show: &mut dyn FnMut(&Walked<'_>),
    ) -> Walking {
        for item in batch.lock().iter() {
            let Shown { key, meta, value_bytes, size } = item;
            show(&Walked { key, meta: *meta, value_bytes: *value_bytes, size: *size });
        }
        if self.is_last {
            return Walking::End;
        }
        cursor.keep(self);
        Walking::More
    }
}

impl<S: Store + 'static> Call<S> {
    /// Reads items. One that cannot be read is left out, as a miss would be.
    async fn look_into(&self, entries: Vec<Entry>, batch: &Mutex<Vec<Shown>>) -> Result<(), StoreError> {
        for entry in entries {
            let key = Key::new(&entry.key, self.below.seed());
            let Ok(Found::Live(item)) = self.find(&key, false).await else { continue };
            let value_bytes = item.value.len();
            // Of a value in pieces the entry is only the head.
            let size = entry.size.max(entry.key.len() + HEAD_BYTES + value_bytes);
            let shown = Shown { meta: item.meta, value_bytes, size, key: entry.key };
            batch.lock().push(shown);
        }
        Ok(())
    }
}
