//! The open shards, and what RocksDB says of all of them together.

use std::sync::Arc;

use rocksdb::Options;
use rocksdb::properties::PropName;

use crate::config::Log;
use crate::filter::Removed;
use crate::shard::Shard;

/// RocksDB, sharded.
pub struct RocksDatabase {
    pub(crate) shards: Box<[Shard]>,
    // Statistics of all shards are read through it.
    pub(crate) options: Options,
    pub(crate) removed: Arc<Removed>,
    pub(crate) log: Log,
}

impl RocksDatabase {
    /// A number that RocksDB keeps, over all shards.
    pub(crate) fn sum(&self, name: &PropName) -> u64 {
        self.shards.iter().map(|shard| shard.property(name)).sum()
    }

    /// Compacts everything there is, for tests of what compaction leaves out.
    #[cfg(feature = "testing")]
    pub fn compact(&self) {
        for shard in &self.shards {
            shard.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        }
    }

    /// Bytes of all table files, for tests of the bound.
    #[cfg(feature = "testing")]
    pub fn file_bytes(&self) -> u64 {
        self.sum(rocksdb::properties::LIVE_SST_FILES_SIZE)
    }
}
