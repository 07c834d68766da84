//! What compaction leaves out: items whose time is up, and those that a flush covers.
//!
//! RocksDB puts a delete in the place of what a filter removes wherever an older version may lie below, so nothing older comes
//! to light. It asks for what it compacts only: under FIFO that is small files, and everything else goes with its file.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_embedded::{EngineShared, Header, Life};
use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};

/// What filters have left out.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    pub(crate) expired: AtomicU64,
    pub(crate) flushed: AtomicU64,
}

/// Makes a filter for each compaction.
pub(crate) struct DeadFilterFactory {
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) removed: Arc<Removed>,
}

/// Removes what is dead.
pub(crate) struct DeadFilter {
    shared: Arc<EngineShared>,
    removed: Arc<Removed>,
}

impl CompactionFilterFactory for DeadFilterFactory {
    type Filter = DeadFilter;

    fn create(&mut self, _context: CompactionFilterContext) -> DeadFilter {
        DeadFilter { shared: Arc::clone(&self.shared), removed: Arc::clone(&self.removed) }
    }

    fn name(&self) -> &CStr {
        c"moneta-dead"
    }
}

impl CompactionFilter for DeadFilter {
    fn filter(&mut self, _level: u32, key: &[u8], record: &[u8]) -> CompactionDecision {
        // A record that cannot be read stays: a read will tell of it.
        let Some((header, _)) = Header::read(record) else { return CompactionDecision::Keep };
        let counter = match self.shared.life(&header) {
            Life::Live => return CompactionDecision::Keep,
            Life::Expired => {
                self.shared.expired(key, &header);
                &self.removed.expired
            }
            Life::Flushed => &self.removed.flushed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        CompactionDecision::Remove
    }

    fn name(&self) -> &CStr {
        c"moneta-dead"
    }
}
