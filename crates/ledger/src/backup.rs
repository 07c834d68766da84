//! A ledger as a file, and a file as a ledger, of either backend into either.
//!
//! ```text
//!  8 bytes   "MNLEDGER"
//!  4         format: 1
//!  8         incarnation of the ledger that it was taken of
//!  8         its revision
//!  8         number of entries
//!  ┌ 4       length of a key
//!  │ 4       length of its value
//!  └ …       key, value                       ascending by key
//!  4         CRC-32 of all before
//! ```
//!
//! Numbers are little-endian. Keys with a hold are left out: they tell of processes that are gone when it is restored. Nor is history
//! in it; what was changed since can be followed by nobody, since a ledger that was filled is another one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use moneta_background::runtime;

use crate::commit::{KEY_MAX, VALUE_MAX};
use crate::entry::{Cursor, Incarnation, Revision, Snapshot};
use crate::error::LedgerError;
use crate::ledger::Ledger;

const MAGIC: &[u8; 8] = b"MNLEDGER";
const FORMAT: u32 = 1;

/// Why there is no backup, or none was restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is not as it was written.
    #[error("{path} is no whole backup: {reason}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What was seen.
        reason: String,
    },
    /// The ledger did not answer, or is not empty.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// What a backup has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Of which ledger, and how far.
    pub of: Cursor,
    /// Keys and values, ascending.
    pub entries: Vec<(String, Bytes)>,
}

impl From<Snapshot> for Backup {
    fn from(snapshot: Snapshot) -> Self {
        let of = snapshot.cursor();
        let kept = snapshot.entries.into_iter().filter(|entry| entry.hold.is_none());
        Self { of, entries: kept.map(|entry| (entry.key, entry.value)).collect() }
    }
}

/// Writes all of a ledger that is in use, as it was at one revision, to a file that only its owner can read. It is whole or not there:
/// what had this name before is replaced when all is on the device. Returns what it is of, and the number of entries.
///
/// # Errors
/// When the ledger does not answer, or the file cannot be written.
pub async fn back_up(ledger: &dyn Ledger, path: &Path) -> Result<(Cursor, usize), BackupError> {
    let backup = Backup::from(ledger.snapshot("").await?);
    let said = (backup.of, backup.entries.len());
    blocking(path, move |path| backup.write_to(path)).await?;
    Ok(said)
}

/// Fills an empty ledger from a file. It is another ledger then, whose revisions go on above those of the backup.
///
/// # Errors
/// When the file is not whole, or the ledger is not empty or does not answer. A ledger on etcd may be left half filled if it fails
/// amid that, and then says so until its keys are deleted.
pub async fn restore(ledger: &dyn Ledger, path: &Path) -> Result<Cursor, BackupError> {
    let backup = blocking(path, Backup::read_from).await?;
    Ok(ledger.fill(backup.of.revision, backup.entries).await?)
}

async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    let failed = |error: io::Error| BackupError::File { path: path.to_owned(), error };
    let owned = path.to_owned();
    let done = runtime::handle().map_err(failed)?.spawn_blocking(move || work(&owned)).await;
    done.unwrap_or_else(|error| Err(failed(io::Error::other(error))))
}

impl Backup {
    /// Writes it to a file, whole or not at all. Blocks.
    ///
    /// # Errors
    /// When that cannot be done; what was there stays.
    pub fn write_to(&self, path: &Path) -> Result<(), BackupError> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".new");
        let unfinished = PathBuf::from(unfinished);
        let write = || {
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            let mut out = BufWriter::new(file);
            self.write(&mut out)?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&unfinished, path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&unfinished);
            BackupError::File { path: path.to_owned(), error }
        })
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut out = Summed { inner: out, sum: crc32fast::Hasher::new() };
        out.write_all(MAGIC)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        out.write_all(&self.of.incarnation.0.to_le_bytes())?;
        out.write_all(&self.of.revision.0.to_le_bytes())?;
        out.write_all(&(self.entries.len() as u64).to_le_bytes())?;
        for (key, value) in &self.entries {
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
            out.write_all(&length(key.as_bytes())?.to_le_bytes())?;
            out.write_all(&length(value)?.to_le_bytes())?;
            out.write_all(key.as_bytes())?;
            out.write_all(value)?;
        }
        let sum = out.sum.clone().finalize();
        out.inner.write_all(&sum.to_le_bytes())
    }

    /// Reads a file and checks all of it. Blocks.
    ///
    /// # Errors
    /// When it cannot be read, or is not as it was written.
    pub fn read_from(path: &Path) -> Result<Self, BackupError> {
        let file = File::open(path).map_err(|error| BackupError::File { path: path.to_owned(), error })?;
        Self::read(&mut BufReader::new(file)).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => BackupError::Damaged { path: path.to_owned(), reason: error.to_string() },
            io::ErrorKind::UnexpectedEof => {
                BackupError::Damaged { path: path.to_owned(), reason: "it ends too early".to_owned() }
            }
            _ => BackupError::File { path: path.to_owned(), error },
        })
    }

    fn read(input: &mut impl Read) -> io::Result<Self> {
        let mut input = Summed { inner: input, sum: crc32fast::Hasher::new() };
        if &input.bytes()? != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        let format = u32::from_le_bytes(input.bytes()?);
        if format != FORMAT {
            return Err(damaged(format!("its format is {format}, and this build reads {FORMAT}")));
        }
        let incarnation = Incarnation(u64::from_le_bytes(input.bytes()?));
        let revision = Revision(u64::from_le_bytes(input.bytes()?));
        let count = u64::from_le_bytes(input.bytes()?);
        let mut entries: Vec<(String, Bytes)> = Vec::new();
        for _ in 0..count {
            let (key, value) =
                (u32::from_le_bytes(input.bytes()?) as usize, u32::from_le_bytes(input.bytes()?) as usize);
            // Checked before it is held: a length that was altered takes no memory.
            if !(1..=KEY_MAX).contains(&key) || value > VALUE_MAX {
                return Err(damaged(format!("a key of {key} and a value of {value} bytes")));
            }
            let key = String::from_utf8(input.take(key)?).map_err(|_| damaged("a key that is no text"))?;
            if entries.last().is_some_and(|(last, _)| *last >= key) {
                return Err(damaged("its keys do not ascend"));
            }
            entries.push((key, Bytes::from(input.take(value)?)));
        }
        let sum = input.sum.clone().finalize();
        if u32::from_le_bytes(input.bytes()?) != sum {
            return Err(damaged("its checksum does not hold"));
        }
        if input.inner.read(&mut [0])? != 0 {
            return Err(damaged("it goes on behind its end"));
        }
        Ok(Self { of: Cursor { incarnation, revision }, entries })
    }
}

fn damaged(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// Sums what passes.
struct Summed<T> {
    inner: T,
    sum: crc32fast::Hasher,
}

impl<T: Write> Summed<T> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<T: Read> Summed<T> {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.inner.read_exact(&mut bytes)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }
}
