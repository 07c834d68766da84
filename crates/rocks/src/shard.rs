//! One of the databases that keys are spread over, and its bound.

use std::path::Path;

use moneta_embedded::{EmbeddedError, Failure};
use parking_lot::Mutex;
use rocksdb::{DB, ErrorKind, FlushOptions, Options, WriteBatch, WriteOptions, properties};

/// Bytes of a table file beside its records and what each of them takes: properties, the index of its parts and the footer.
/// About 1,300 were seen.
const FILE_EXTRA: u64 = 2 << 10;
/// Bytes of a record in a table file beside its key and value: sequence number, lengths, the frame and the index entry of its
/// block without the key in it, and up to 100 bits in a filter.
const RECORD_EXTRA: u64 = 64;

/// A database.
pub(crate) struct Shard {
    pub(crate) db: DB,
    write_options: WriteOptions,
    /// How much it may hold, where RocksDB itself keeps to nothing.
    bound: Option<Bound>,
    used: Mutex<Used>,
}

/// How much a shard may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Most bytes of table files.
    pub(crate) bytes_max: u64,
    /// Bytes of records that become a table file, at least, unless files are flushed early.
    pub(crate) file_bytes: u64,
}

impl Bound {
    /// Bytes that a record may come to in table files: the block index may repeat its key.
    fn in_files(&self, key: usize, record: usize) -> u64 {
        let bytes = 2 * key as u64 + record as u64 + RECORD_EXTRA;
        bytes + (bytes * FILE_EXTRA).div_ceil(self.file_bytes)
    }
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
        bound: Option<Bound>,
    ) -> Result<Self, EmbeddedError> {
        let opened = DB::open(options, path).map_err(|error| refusal(path, &error))?;
        let shard = Self { db: opened, write_options, bound, used: Mutex::default() };
        shard.count_bytes();
        Ok(shard)
    }

    /// A number that RocksDB keeps; 0 if it does not.
    pub(crate) fn property(&self, name: &rocksdb::properties::PropName) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }

    /// Counts anew what the shard holds; true if that is less than it was taken for.
    pub(crate) fn count_bytes(&self) -> bool {
        if self.bound.is_none() {
            return false;
        }
        let mut used = self.used.lock();
        // Memory first: what becomes a file meanwhile is counted twice, and not left out.
        let buffers = self.property(properties::NUM_IMMUTABLE_MEM_TABLE) + 1;
        let memory = self.property(properties::CUR_SIZE_ALL_MEM_TABLES) + buffers * FILE_EXTRA;
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

    /// Counts a record for the batch under way, as much as it may come to in files; false if there is no room for it.
    ///
    /// A count finds the files that there are. What is written until the next one has to be taken for more than its bytes: the
    /// files that it becomes have an end each.
    pub(crate) fn reserve(&self, key: usize, record: usize) -> bool {
        let Some(bound) = self.bound else { return true };
        let bytes = bound.in_files(key, record);
        let mut used = self.used.lock();
        if used.written + used.batch + bytes > bound.bytes_max {
            used.refused = true;
            return false;
        }
        used.batch += bytes;
        true
    }

    /// Counts a delete for the batch under way, whether there is room for it or not.
    pub(crate) fn take(&self, key: usize) {
        if let Some(bound) = self.bound {
            self.used.lock().batch += bound.in_files(key, 0);
        }
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
