//! One process at a time has an app's files in a folder: two that append to one file, and rewrite it beside each other, lose
//! hints.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::ClusterError;

/// How long a start waits for a process that is about to end: its locks go a moment after its ports.
const ENDING: Duration = Duration::from_secs(1);

/// The lock on an app's files in a folder; it goes with the process at the latest.
pub(crate) struct FolderLock(#[expect(dead_code, reason = "open for as long as the lock is held")] File);

impl FolderLock {
    /// Locks the file at `path`, which is made if it is not there and stays.
    ///
    /// # Errors
    /// If another process has it for longer than a second, or the file cannot be made.
    pub(crate) fn take(path: &Path) -> Result<Self, ClusterError> {
        let failed = |source| ClusterError::Hints { path: path.to_owned(), source };
        let file = File::options().create(true).truncate(false).write(true).open(path).map_err(failed)?;
        let from = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK) if from.elapsed() < ENDING => std::thread::sleep(Duration::from_millis(20)),
                Err(Errno::WOULDBLOCK) => return Err(ClusterError::HintsInUse { path: path.to_owned() }),
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_the_files_of_an_app() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.lock");
        let first = FolderLock::take(&path).expect("it is free");
        assert!(matches!(FolderLock::take(&path), Err(ClusterError::HintsInUse { .. })));
        drop(first);
        assert!(FolderLock::take(&path).is_ok(), "the file stays, the lock does not");
    }
}
