//! Locks that keep a second node away from a device, and a check that the path still leads to the same file.
//!
//! A lock on a file is lost with the file: after an unlink, a second node would create another at the same path and run beside
//! the first. So a lock file beside it is locked too, `moneta.flash.lock` for `moneta.flash`. It stays when the node ends:
//! removing it would race with others that open it.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Attempts to lock a lock file that is removed while it is being locked.
const TRIES: usize = 10;

/// A lock file, locked for as long as this or a clone of its file lives.
pub(super) struct LockFile {
    pub(super) path: PathBuf,
    file: File,
    /// Remove the file on drop: this run created it, and the device was then refused.
    temporary: bool,
}

/// The result of locking.
pub(super) enum Locked {
    /// This process has it now.
    Ours(LockFile),
    /// It was locked already, in this process or another.
    Others(PathBuf),
    /// No lock file is possible here.
    Without,
}

impl LockFile {
    /// Locks the lock file of a device file, which may not be there yet.
    pub(super) fn of(device: &Path) -> Locked {
        let Some(path) = path_for(device) else { return Locked::Without };
        match Self::at(&path) {
            Ok(Some(lock)) => Locked::Ours(lock),
            Ok(None) => Locked::Others(path),
            // A missing folder is reported when the file is opened.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Locked::Without,
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), %error,
                    "no lock file: if the tier's file is removed while the node runs, a second node can start beside it"
                );
                Locked::Without
            }
        }
    }

    fn at(path: &Path) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            let open = |new: bool| OpenOptions::new().write(true).create_new(new).mode(0o600).open(path);
            let (file, temporary) = match open(true) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (open(false)?, false),
                made => (made?, true),
            };
            match lock_exclusively(&file) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // Another run may have removed the file between opening and locking.
            if is_at(path, &Identity::of(&file.metadata()?)) {
                return Ok(Some(Self { path: path.to_owned(), file, temporary }));
            }
        }
        Ok(None)
    }

    /// Keeps the file on drop; the lock lasts as long as the returned file.
    pub(super) fn keep(&mut self) -> io::Result<File> {
        self.temporary = false;
        self.file.try_clone()
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.temporary {
            // While it is locked, so that no other process has locked it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The lock file lies beside the file itself, not beside a link to it.
fn path_for(device: &Path) -> Option<PathBuf> {
    let real = std::fs::canonicalize(device).or_else(|_| {
        let folder = device.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::canonicalize(folder).map(|folder| folder.join(device.file_name().unwrap_or_default()))
    });
    let real = real.unwrap_or_else(|_| device.to_owned());
    let mut name = real.file_name()?.to_owned();
    name.push(".lock");
    Some(real.with_file_name(name))
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
    special: u64,
}

impl Identity {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), number: found.ino(), special: found.rdev() }
    }
}

fn is_at(path: &Path, identity: &Identity) -> bool {
    std::fs::metadata(path).is_ok_and(|found| Identity::of(&found) == *identity)
}

/// An open file or block device, and the path it was opened by.
pub(super) struct Whereabouts {
    pub(super) path: PathBuf,
    identity: Identity,
}

impl Whereabouts {
    /// From an open file.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn of(path: &Path, file: &File) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: Identity::of(&file.metadata()?) })
    }

    /// Whether the path still leads to it.
    pub(super) fn is_there(&self) -> bool {
        is_at(&self.path, &self.identity)
    }
}

/// How long a start waits for a process that is about to end: its locks go a moment after its pid file and its ports.
const ENDING: Duration = Duration::from_secs(1);

/// Locks a file for this process alone. [`Errno::WOULDBLOCK`]: another process goes on holding it.
pub(super) fn lock_exclusively(file: &File) -> Result<(), Errno> {
    let from = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if from.elapsed() < ENDING => std::thread::sleep(Duration::from_millis(20)),
            ended => return ended,
        }
    }
}
