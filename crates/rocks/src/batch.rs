//! Writes of a shard that take effect together.

use std::collections::HashMap;
use std::ops::Range;

use moneta_embedded::{Batch, Failure, Header};
use moneta_store::Key;
use rocksdb::WriteBatch;

use crate::shard::{Shard, broken};

/// A batch, which RocksDB writes in one piece.
pub struct RocksBatch<'a> {
    shard: &'a Shard,
    writes: WriteBatch,
    /// Where in `writes` the newest record of each key lies; `None`: the key is deleted. RocksDB shows a batch to no reader before
    /// its end, and reads of this batch have to see it.
    newest: HashMap<Box<[u8]>, Option<Range<usize>>>,
}

impl<'a> RocksBatch<'a> {
    pub(crate) fn new(shard: &'a Shard) -> Self {
        Self { shard, writes: WriteBatch::default(), newest: HashMap::new() }
    }
}

impl Batch for RocksBatch<'_> {
    fn read(&mut self, key: &Key<'_>, into: &mut Vec<u8>) -> Result<bool, Failure> {
        into.clear();
        if let Some(newest) = self.newest.get(key.bytes) {
            let record = newest.clone().map(|range| &self.writes.data()[range]);
            into.extend_from_slice(record.unwrap_or_default());
            return Ok(newest.is_some());
        }
        let found = self.shard.db.get_pinned(key.bytes).map_err(|error| broken("read", &error))?;
        into.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, key: &Key<'_>, _header: &Header, record: &[u8]) -> Result<(), Failure> {
        if !self.shard.reserve(key.bytes.len(), record.len()) {
            return Err(Failure::Full(
                "rocks has used up its bytes, and this kind of compaction lets nothing go".into(),
            ));
        }
        self.writes.put(key.bytes, record);
        // A batch is a row of writes, each of which ends with its value.
        let end = self.writes.size_in_bytes();
        self.newest.insert(key.bytes.into(), Some(end - record.len()..end));
        Ok(())
    }

    /// Never refused, though it takes room until compaction drops it.
    fn delete(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        self.shard.take(key.bytes.len());
        self.writes.delete(key.bytes);
        self.newest.insert(key.bytes.into(), None);
        Ok(())
    }

    fn commit(mut self) -> Result<(), Failure> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let ended = self.shard.write(std::mem::take(&mut self.writes));
        self.shard.settle(ended.is_ok());
        ended
    }
}

/// A batch that is not written needs no room.
impl Drop for RocksBatch<'_> {
    fn drop(&mut self) {
        self.shard.settle(false);
    }
}
