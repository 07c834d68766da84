//! Keys that a walk still has to show and whose newest version lies on a device.

use std::sync::Arc;

use futures_util::future::join_all;
use moneta_store::{Cx, OwnedKey, Walked, Walking};
use parking_lot::Mutex;

use crate::inner::Inner;
use crate::operations::attempt::pend;
use crate::operations::lookup::{Fetched, Look, RecordPlace};
use moneta_device::format::BLOCK;

/// A batch ends early at this many keys.
const KEYS: usize = 64;
/// Bytes read at once, unless one record is larger.
const READ_BYTES: usize = 256 << 10;

/// The keys that a walk still has to show.
#[derive(Default)]
pub(super) struct Owed {
    keys: Vec<OwnedKey>,
    /// The records that reads have delivered.
    found: Arc<Mutex<Vec<(OwnedKey, Fetched)>>>,
}

impl Owed {
    pub(super) fn add(&mut self, key: OwnedKey) {
        self.keys.push(key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.found.lock().is_empty()
    }

    /// Whether [`Owed::settle`] should run before more keys are added.
    pub(super) fn is_full(&self) -> bool {
        self.keys.len() >= KEYS
    }

    /// Shows the keys whose records are available, and reads the others. A key overwritten meanwhile is read again.
    pub(super) fn settle(&mut self, inner: &Arc<Inner>, cx: &Cx, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let found = std::mem::take(&mut *self.found.lock());
        let found = found.into_iter().map(|(key, fetched)| (key, Some(fetched)));
        let keys = std::mem::take(&mut self.keys);
        let (mut to_read, mut bytes) = (Vec::new(), 0);
        for (key, fetched) in found.chain(keys.into_iter().map(|key| (key, None))) {
            if bytes >= READ_BYTES {
                self.keys.push(key);
            } else if let Some(place) = look(inner, &key, fetched.as_ref(), show) {
                bytes += place.blocks * BLOCK;
                to_read.push((key, place));
            }
        }
        if to_read.is_empty() {
            return Walking::More;
        }
        let (inner, cx, into) = (Arc::clone(inner), cx.clone(), Arc::clone(&self.found));
        Walking::Wait(pend(async move {
            let reads = to_read.into_iter().map(|(key, place)| {
                let (inner, cx) = (&inner, &cx);
                async move {
                    let fetched = inner.fetch(cx, place, key.key().bytes).await;
                    fetched.map(|fetched| (key, fetched))
                }
            });
            let found: Result<Vec<_>, _> = join_all(reads).await.into_iter().collect();
            *into.lock() = found?;
            Ok(())
        }))
    }
}

/// Shows a key's item if its record is available; else returns where to read it.
fn look(
    inner: &Inner,
    key: &OwnedKey,
    fetched: Option<&Fetched>,
    show: &mut dyn FnMut(&Walked<'_>),
) -> Option<RecordPlace> {
    let key = key.key();
    let shard = inner.shard(key.hash).lock();
    match inner.look(&shard, &key, fetched) {
        Look::Absent | Look::Foreign => None,
        Look::Present(present) => {
            inner.show_present(&key, &present, show);
            None
        }
        Look::On(place) => Some(place),
    }
}
