//! Where a shard's writer works on one batch: what lies under a key, and what is to lie there.

use std::collections::{HashMap, HashSet};

use moneta_store::change::{self, Old};
use moneta_store::{ItemMeta, ItemRef, Key, Version};

use crate::database::{Batch, Database};
use crate::error::Failure;
use crate::record::Header;
use crate::shared::{EngineShared, Life};

/// Buffers that a writer uses again and again.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    old: Vec<u8>,
    record: Vec<u8>,
}

/// A batch under way.
pub(crate) struct BatchContext<'a, D: Database + 'a> {
    pub(crate) batch: D::Batch<'a>,
    pub(crate) shared: &'a EngineShared,
    pub(crate) item_max: usize,
    /// Items stored in this batch.
    pub(crate) stored: u64,
    /// Keys written in this batch, while any key is in doubt: these no longer are, if it takes effect.
    pub(crate) written: HashSet<Box<[u8]>>,
    /// Deletes of this batch that are to be remembered, by the hash of the key, if it takes effect.
    pub(crate) buried: HashMap<u64, Version>,
    buffers: &'a mut Buffers,
}

/// What lies under a key.
pub(crate) struct Found<'b> {
    /// The item, if it is alive.
    pub(crate) live: Option<Old<'b>>,
    /// There is one, but its time was up: its version.
    pub(crate) expired: Option<Version>,
}

/// The context without the buffer that a [`Found`] borrows.
pub(crate) struct BatchWriter<'b, 'a, D: Database + 'a> {
    batch: &'b mut D::Batch<'a>,
    shared: &'a EngineShared,
    record: &'b mut Vec<u8>,
    stored: &'b mut u64,
    written: &'b mut HashSet<Box<[u8]>>,
}

/// What a record makes of its key.
pub(crate) fn found<'b>(shared: &EngineShared, record: Option<&'b [u8]>) -> Found<'b> {
    let Some((header, value)) = record.and_then(Header::read) else { return Found { live: None, expired: None } };
    match shared.life(&header) {
        Life::Live => Found { live: Some(Old { meta: header.meta, value }), expired: None },
        Life::Expired => Found { live: None, expired: Some(header.meta.version()) },
        Life::Flushed => Found { live: None, expired: None },
    }
}

impl<'a, D: Database> BatchContext<'a, D> {
    pub(crate) fn new(
        batch: D::Batch<'a>,
        shared: &'a EngineShared,
        item_max: usize,
        buffers: &'a mut Buffers,
    ) -> Self {
        Self { batch, shared, item_max, stored: 0, written: HashSet::new(), buried: HashMap::new(), buffers }
    }

    /// Whether what the batch shows under a key may be out of date.
    pub(crate) fn is_untrusted(&self, key: &Key<'_>) -> bool {
        self.shared.untrusted.has(key.bytes) && !self.written.contains(key.bytes)
    }

    /// Looks under a key; gives with it what is needed to store something there.
    pub(crate) fn look<'b>(&'b mut self, key: &Key<'_>) -> Result<(Found<'b>, BatchWriter<'b, 'a, D>), Failure> {
        let is_untrusted = self.is_untrusted(key);
        let Self { batch, shared, stored, written, buffers, .. } = self;
        let Buffers { old, record } = &mut **buffers;
        let is_there = batch.read(key, old)? && !is_untrusted;
        let found = found(shared, is_there.then_some(&*old));
        Ok((found, BatchWriter { batch, shared, record, stored, written }))
    }

    /// Removes what is under a key, if anything is. Where nothing is, a delete would still take room in a library that
    /// notes it, and no bound counts those.
    pub(crate) fn forget(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        // What cannot be read may be there.
        if self.batch.read(key, &mut self.buffers.old).unwrap_or(true) {
            return self.blindly().remove(key);
        }
        self.blindly().note(key);
        Ok(())
    }

    /// Remembers a delete of the key under a version.
    pub(crate) fn bury(&mut self, key: &Key<'_>, version: Version) {
        let newest = self.buried.entry(key.hash).or_default();
        *newest = version.max(*newest);
    }

    /// What [`look`](Self::look) gives, without looking.
    pub(crate) fn blindly<'b>(&'b mut self) -> BatchWriter<'b, 'a, D> {
        let Self { batch, shared, stored, written, buffers, .. } = self;
        BatchWriter { batch, shared, record: &mut buffers.record, stored, written }
    }
}

impl<D: Database> BatchWriter<'_, '_, D> {
    /// Stores a version; tells its CAS value.
    pub(crate) fn store(&mut self, key: &Key<'_>, version: &change::Version<'_>) -> Result<u64, Failure> {
        let cas = version.cas.unwrap_or(0);
        self.store_item(key, &ItemRef { meta: version.meta(cas), value: version.value.value() }, version.cas.is_some())
    }

    /// Stores an item under its own CAS value or, where it has none, the next.
    pub(crate) fn store_item(&mut self, key: &Key<'_>, item: &ItemRef<'_>, has_cas: bool) -> Result<u64, Failure> {
        let sequence = self.shared.next_sequence()?;
        let cas = if has_cas { item.meta.cas } else { sequence };
        let unversioned = item.meta.unversioned || self.shared.counts();
        let header = Header { meta: ItemMeta { cas, unversioned, ..item.meta }, sequence };
        header.write(self.record, |into| item.value.copy_to(into));
        self.batch.put(key, &header, self.record)?;
        *self.stored += 1;
        self.note(key);
        Ok(cas)
    }

    /// Removes what is there.
    pub(crate) fn remove(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        self.batch.delete(key)?;
        self.note(key);
        Ok(())
    }

    fn note(&mut self, key: &Key<'_>) {
        if self.shared.untrusted.any() {
            self.written.insert(key.bytes.into());
        }
    }
}
