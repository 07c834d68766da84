//! Keeps a second process out of a data directory.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::error::LedgerError;

/// The file that is locked; it has the process that holds it as text.
const FILE: &str = "ledger.lock";

/// A directory that no other process opens while this lives.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Makes the directory if it is not there, readable by its owner alone, and locks it.
    pub(crate) fn take(directory: &Path) -> Result<Self, LedgerError> {
        let failed =
            |error: io::Error| LedgerError::Unavailable { reason: format!("{}: {error}", directory.display()) };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let path = directory.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = (&file).take(20).read_to_string(&mut holder);
                let reason = match holder.trim() {
                    "" => format!("{} is in use by another process", directory.display()),
                    holder => format!("{} is in use by process {holder}", directory.display()),
                };
                return Err(LedgerError::Unavailable { reason });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // For people: what locks is the lock. A full disk does not keep the ledger from being read.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}
