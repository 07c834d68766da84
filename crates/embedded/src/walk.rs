//! Walking over all items: a batch is read by a thread that may block, then shown.

use std::sync::Arc;

use moneta_store::{Cursor, Walked, Walking};
use parking_lot::Mutex;

use crate::database::Database;
use crate::error::Failure;
use crate::inner::Inner;
use crate::record::Header;
use crate::shared::Life;

/// Items of a batch.
const BATCH: usize = 128;

/// An item found.
struct Row {
    key: Box<[u8]>,
    header: Header,
    value_bytes: usize,
    record_bytes: usize,
}

/// A batch that was read.
#[derive(Default)]
struct Page {
    rows: Vec<Row>,
    /// Where to go on; `None` after the shard's last item.
    next: Option<Box<[u8]>>,
}

/// Where a walk stands.
#[derive(Default)]
struct WalkPlace {
    shard: usize,
    after: Option<Box<[u8]>>,
    page: Arc<Mutex<Option<Page>>>,
}

impl<D: Database> Inner<D> {
    /// Shows a batch, or has one read.
    pub(crate) fn walk(self: &Arc<Self>, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let mut place: Box<WalkPlace> = cursor.take().unwrap_or_default();
        let Some(page) = place.page.lock().take() else {
            let walking = self.read_page(&place);
            cursor.keep(place);
            return walking;
        };
        for row in page.rows.iter().filter(|row| self.is_shown(row)) {
            let Row { key, header, value_bytes, record_bytes } = row;
            show(&Walked { key, meta: header.meta, value_bytes: *value_bytes, size: key.len() + record_bytes });
        }
        place.after = page.next;
        place.shard += usize::from(place.after.is_none());
        if place.shard == self.queues.len() {
            return Walking::End;
        }
        cursor.keep(place);
        Walking::More
    }

    fn is_shown(&self, row: &Row) -> bool {
        self.shared.life(&row.header) == Life::Live && !self.shared.untrusted.has(&row.key)
    }

    fn read_page(self: &Arc<Self>, place: &WalkPlace) -> Walking {
        let (inner, shard, after) = (Arc::clone(self), place.shard, place.after.clone());
        let page = Arc::clone(&place.page);
        Walking::Wait(self.readers.submit(move || {
            let read = inner.page(shard, after.as_deref());
            *page.lock() = Some(read.map_err(|failure| inner.fail(&failure))?);
            Ok(())
        }))
    }

    fn page(&self, shard: usize, after: Option<&[u8]>) -> Result<Page, Failure> {
        self.shared.settle()?;
        let mut page = Page::default();
        let mut seen = 0;
        self.database.scan(shard, after, &mut |key, record| {
            if let Some((header, value)) = Header::read(record) {
                let (value_bytes, record_bytes) = (value.len(), record.len());
                page.rows.push(Row { key: key.into(), header, value_bytes, record_bytes });
            }
            seen += 1;
            let is_full = seen == BATCH;
            if is_full {
                page.next = Some(key.into());
            }
            !is_full
        })?;
        Ok(page)
    }
}
