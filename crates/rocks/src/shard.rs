//! One of the databases that keys are spread over, and its bound.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_embedded::{EmbeddedError, Failure};
use rocksdb::{DB, ErrorKind, FlushOptions, Options, WriteBatch, WriteOptions, properties};

/// A database.
pub(crate) struct Shard {
    pub(crate) db: DB,
    write_options: WriteOptions,
    /// Most bytes, where RocksDB itself keeps to none.
    bytes_max: Option<u64>,
    /// Bytes when they were last counted, and stored since.
    bytes: AtomicU64,
}

impl Shard {
    pub(crate) fn open(
        options: &Options,
        path: &Path,
        write_options: WriteOptions,
        bytes_max: Option<u64>,
    ) -> Result<Self, EmbeddedError> {
        let opened = DB::open(options, path).map_err(|error| refusal(path, &error))?;
        let shard = Self { db: opened, write_options, bytes_max, bytes: AtomicU64::new(0) };
        shard.count_bytes();
        Ok(shard)
    }

    /// A number that RocksDB keeps; 0 if it does not.
    pub(crate) fn property(&self, name: &rocksdb::properties::PropName) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }

    /// Counts anew what the shard holds.
    pub(crate) fn count_bytes(&self) {
        if self.bytes_max.is_some() {
            let bytes =
                self.property(properties::LIVE_SST_FILES_SIZE) + self.property(properties::CUR_SIZE_ALL_MEM_TABLES);
            self.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Whether so many bytes more would be too many.
    pub(crate) fn is_full(&self, more: u64) -> bool {
        self.bytes_max.is_some_and(|most| self.bytes.load(Ordering::Relaxed) + more > most)
    }

    /// Writes what is in memory to a file; waits for that if told to.
    pub(crate) fn flush(&self, wait: bool) -> Result<(), Failure> {
        let holds = self.property(properties::NUM_ENTRIES_ACTIVE_MEM_TABLE)
            + self.property(properties::NUM_ENTRIES_IMM_MEM_TABLES);
        if holds == 0 {
            return Ok(());
        }
        let mut options = FlushOptions::default();
        options.set_wait(wait);
        self.db.flush_opt(&options).map_err(|error| broken("flush", &error))
    }

    /// Syncs the log.
    pub(crate) fn sync_log(&self) -> Result<(), Failure> {
        self.db.flush_wal(true).map_err(|error| broken("sync its log", &error))
    }

    /// Counts what is about to be stored.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        if self.bytes_max.is_some() {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn write(&self, batch: WriteBatch) -> Result<(), Failure> {
        self.db.write_opt(batch, &self.write_options).map_err(|error| broken("write", &error))
    }
}

/// A failure of RocksDB's, in words.
pub(crate) fn broken(what: &str, error: &rocksdb::Error) -> Failure {
    Failure::Broken(format!("RocksDB cannot {what}: {error}"))
}

fn refusal(path: &Path, error: &rocksdb::Error) -> EmbeddedError {
    let said = error.to_string();
    let reason = if said.contains("lock") {
        format!("another process has it open, perhaps a tool of RocksDB's: stop that one ({said})")
    } else if error.kind() == ErrorKind::Corruption {
        format!("RocksDB finds it damaged: restore it, or remove the whole folder to start without items ({said})")
    } else {
        format!("RocksDB cannot open it ({said})")
    };
    EmbeddedError::Folder { path: path.into(), reason }
}
