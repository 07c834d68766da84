//! One of the databases that keys are spread over, and its bound.

use std::path::Path;

use moneta_embedded::{EmbeddedError, Failure};
use parking_lot::Mutex;
use rocksdb::{DB, ErrorKind, FlushOptions, Options, WriteBatch, WriteOptions, properties};

/// A database.
pub(crate) struct Shard {
    pub(crate) db: DB,
    write_options: WriteOptions,
    /// Most bytes, where RocksDB itself keeps to none.
    bytes_max: Option<u64>,
    used: Mutex<Used>,
}

/// Bytes that a shard is taken to hold.
#[derive(Default)]
struct Used {
    /// When they were last counted, and written since.
    written: u64,
    /// Of the batch under way: what a count cannot see yet.
    batch: u64,
    /// Whether a record was refused since a count last found less.
    refused: bool,
}

impl Shard {
    pub(crate) fn open(
        options: &Options,
        path: &Path,
        write_options: WriteOptions,
        bytes_max: Option<u64>,
    ) -> Result<Self, EmbeddedError> {
        let opened = DB::open(options, path).map_err(|error| refusal(path, &error))?;
        let shard = Self { db: opened, write_options, bytes_max, used: Mutex::default() };
        shard.count_bytes();
        Ok(shard)
    }

    /// A number that RocksDB keeps; 0 if it does not.
    pub(crate) fn property(&self, name: &rocksdb::properties::PropName) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }

    /// Counts anew what the shard holds; true if that is less than it was taken for.
    pub(crate) fn count_bytes(&self) -> bool {
        if self.bytes_max.is_none() {
            return false;
        }
        let mut used = self.used.lock();
        // Memory first: what becomes a file meanwhile is counted twice, and not left out.
        let memory = self.property(properties::CUR_SIZE_ALL_MEM_TABLES);
        let counted = memory + self.property(properties::LIVE_SST_FILES_SIZE);
        let fell = counted < used.written;
        used.written = counted;
        used.refused &= !fell;
        fell
    }

    /// Whether the shard is short of room.
    pub(crate) fn refuses(&self) -> bool {
        self.used.lock().refused
    }

    /// Counts a record for the batch under way; false if there is no room for it.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let Some(most) = self.bytes_max else { return true };
        let mut used = self.used.lock();
        if used.written + used.batch + bytes > most {
            used.refused = true;
            return false;
        }
        used.batch += bytes;
        true
    }

    /// Counts bytes for the batch under way, whether there is room for them or not.
    pub(crate) fn take(&self, bytes: u64) {
        self.used.lock().batch += bytes;
    }

    /// The batch has ended: what was reserved for it is written, or not needed.
    pub(crate) fn settle(&self, is_written: bool) {
        let mut used = self.used.lock();
        let batch = std::mem::take(&mut used.batch);
        if is_written {
            used.written += batch;
        }
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
