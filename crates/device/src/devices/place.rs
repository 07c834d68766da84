//! One place of a tier: opens the file or block device at a path, locks it, and gives it its size.
//!
//! A refusal leaves nothing behind: a file that was created is removed, a file that was extended is cut back.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fstatvfs};
use rustix::io::Errno;

use super::lock::{LockFile, Locked, Whereabouts, lock_exclusively};
use super::room;
use super::size::Size;
use super::superblock::Head;
use super::tier::refused;
use crate::config::DeviceConfig;
use crate::error::TierError;
use crate::io::{Aligned, BLOCK_BYTES, FileMedia};

/// Name of the file if a device is given as a directory.
const FILE_NAME: &str = "moneta.flash";

const IN_USE: &str = "is in use by another process; stop that one first, or give this one another place";

/// An open and locked place.
pub(super) struct DevicePlace {
    pub(super) path: PathBuf,
    /// Bytes to use.
    pub(super) bytes: u64,
    /// Holds the lock; reads and writes through the page cache.
    file: File,
    /// Holds the place even if the file is removed. A block device needs none.
    lock_file: Option<LockFile>,
    is_block: bool,
    /// Bytes it had when it was opened.
    pub(super) length_before: u64,
    undo: Undo,
}

/// How a refusal undoes what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    Nothing,
    /// This run created the file.
    Remove,
    /// The file existed, and may have been extended.
    CutBack,
}

impl DevicePlace {
    /// Opens and locks the file or block device at the path, creating a file if needed. `earlier` are the places opened before.
    pub(super) fn open(device: &DeviceConfig, earlier: &[Self]) -> Result<Self, TierError> {
        let path = file_path(&device.path);
        let existing = std::fs::metadata(&path);
        let is_block = existing.as_ref().is_ok_and(|found| found.file_type().is_block_device());
        if let Ok(found) = &existing
            && !found.is_file()
            && !is_block
        {
            return Err(refused(&path, "is neither a file, a directory nor a block device; name one of these".into()));
        }
        let lock_file = if is_block { None } else { lock_beside(&path, earlier)? };
        let created = matches!(&existing, Err(error) if error.kind() == io::ErrorKind::NotFound);
        // On a block device, O_EXCL fails if it is mounted.
        let flags = if is_block { OFlags::EXCL } else { OFlags::empty() };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(created)
            // Only the owner may read cached data.
            .mode(0o600)
            .custom_flags(flags.bits() as i32)
            .open(&path)
            .map_err(|error| open_refused(&path, error))?;
        let (bytes, length_before) = (device.bytes, 0);
        let mut place = Self { path, bytes, file, lock_file, is_block, length_before, undo: Undo::Nothing };
        place.lock(earlier)?;
        place.length_before = place.length().map_err(|source| place.failed("find the size", source))?;
        // Only the lock's holder may change or remove the file.
        place.undo = match (is_block, created) {
            (true, _) => Undo::Nothing,
            (false, true) => Undo::Remove,
            (false, false) => Undo::CutBack,
        };
        if is_block && place.length_before < place.bytes {
            return Err(place.refused(format!(
                "has {}, not {}; give a size that it has",
                Size(place.length_before),
                Size(place.bytes)
            )));
        }
        Ok(place)
    }

    fn lock(&self, earlier: &[Self]) -> Result<(), TierError> {
        if let Some(other) = earlier.iter().find(|place| place.is_same(self)) {
            return Err(self.refused(format!("is the same as {}; name it once", other.path.display())));
        }
        lock_exclusively(&self.file).map_err(|error| match error {
            Errno::WOULDBLOCK => self.refused(IN_USE.into()),
            error => self.failed("lock it", error.into()),
        })
    }

    /// Whether both are the same file, possibly by different paths.
    fn is_same(&self, other: &Self) -> bool {
        let identity = |place: &Self| {
            let found = place.file.metadata().ok()?;
            Some(if place.is_block { (0, found.rdev()) } else { (found.dev(), found.ino()) })
        };
        identity(self).is_some() && identity(self) == identity(other)
    }

    fn length(&self) -> io::Result<u64> {
        rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0)).map_err(io::Error::from)
    }

    /// Decodes its first MiB.
    pub(super) fn head(&self) -> Result<Head, TierError> {
        let read = |buffer: &mut [u8], offset: u64| {
            let mut filled = 0;
            while filled < buffer.len() {
                match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            buffer[filled..].fill(0);
            Ok(())
        };
        Head::read(read).map_err(|source| self.failed("read its superblock", source))
    }

    /// Extends a file to its size and allocates all of it, so that no later write fails for a full disk.
    pub(super) fn allocate(&self) -> Result<(), TierError> {
        if self.is_block {
            return Ok(());
        }
        let missing = room::missing(&self.file, self.bytes).map_err(|source| self.failed("look at it", source))?;
        let free = self.free_bytes()?;
        if free < missing {
            return Err(self.no_room(missing, free));
        }
        match room::set_aside(&self.file, self.bytes) {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(self.no_room(missing, self.free_bytes()?)),
            Err(Errno::FBIG) => {
                Err(self.refused(format!("cannot be as large as {} on this file system; give less", Size(self.bytes))))
            }
            Err(Errno::OPNOTSUPP) => {
                tracing::warn!(path = %self.path.display(), "the file system cannot set room aside: writes may find it full");
                let length = self.bytes.max(self.length_before);
                self.file.set_len(length).map_err(|source| self.failed("give it its size", source))
            }
            Err(error) => Err(self.failed("set room aside", error.into())),
        }
    }

    fn free_bytes(&self) -> Result<u64, TierError> {
        let system = fstatvfs(&self.file).map_err(|error| self.failed("find the free space", error.into()))?;
        Ok(system.f_bavail * system.f_frsize)
    }

    fn no_room(&self, missing: u64, free: u64) -> TierError {
        self.refused(format!(
            "needs {} more on its file system, where {} are free; give it less, or make room",
            Size(missing.next_multiple_of(1 << 20)),
            Size(free & !((1 << 20) - 1))
        ))
    }

    /// Opens it for the engine. From here on, nothing is undone.
    pub(super) fn accept(&mut self, direct: bool) -> Result<FileMedia, TierError> {
        let (file, direct) = self.open_again(direct)?;
        let mut locks = vec![self.file.try_clone().map_err(|source| self.failed("open it", source))?];
        if let Some(lock) = &mut self.lock_file {
            let kept = lock.keep();
            locks.push(kept.map_err(|source| self.failed("keep its lock file", source))?);
        }
        if self.undo == Undo::Remove {
            self.sync_directory().map_err(|source| self.failed("write its directory", source))?;
        }
        self.undo = Undo::Nothing;
        let (path, way) = (self.path.display(), if direct { "direct" } else { "buffered" });
        tracing::info!(%path, bytes = self.bytes, io = way, "opened a device");
        Ok(FileMedia::new(file, locks, self.bytes))
    }

    /// The identity for later checks that the path still leads to it.
    pub(super) fn whereabouts(&self) -> Result<Whereabouts, TierError> {
        Whereabouts::of(&self.path, &self.file).map_err(|source| self.failed("look at it", source))
    }

    /// Truncates a file to its size. Only after its superblock has been written with the new size.
    pub(super) fn cut(&self) -> Result<(), TierError> {
        if self.is_block || self.length_before <= self.bytes {
            return Ok(());
        }
        self.file.set_len(self.bytes).map_err(|source| self.failed("cut it to its size", source))
    }

    /// A second open file description, with `O_DIRECT` if that is wanted and works.
    fn open_again(&self, direct: bool) -> Result<(File, bool), TierError> {
        let open = |flags: OFlags| {
            OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(&self.path)
        };
        let direct = direct.then(|| open(OFlags::DIRECT).and_then(|file| read_directly(&file).map(|()| file)));
        let (file, direct) = match direct {
            Some(Ok(file)) => (file, true),
            Some(Err(error)) => {
                tracing::warn!(path = %self.path.display(), %error, "no direct I/O here: going through the page cache");
                (open(OFlags::empty()).map_err(|source| self.failed("open it", source))?, false)
            }
            None => (open(OFlags::empty()).map_err(|source| self.failed("open it", source))?, false),
        };
        let same = |one: &std::fs::Metadata, other: &std::fs::Metadata| {
            (one.dev(), one.ino(), one.rdev()) == (other.dev(), other.ino(), other.rdev())
        };
        match (self.file.metadata(), file.metadata()) {
            (Ok(one), Ok(other)) if same(&one, &other) => Ok((file, direct)),
            _ => Err(self.refused("was replaced while it was being opened; start again".into())),
        }
    }

    fn sync_directory(&self) -> io::Result<()> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }

    /// Where an index snapshot goes.
    pub(super) fn snapshot_path(&self) -> Option<PathBuf> {
        let mut name = self.path.file_name()?.to_owned();
        name.push(".snapshot");
        (!self.is_block).then(|| self.path.with_file_name(name))
    }

    pub(super) fn refused(&self, reason: String) -> TierError {
        refused(&self.path, reason)
    }

    pub(super) fn failed(&self, what: &'static str, source: io::Error) -> TierError {
        TierError::Io { path: self.path.clone(), what, source }
    }
}

impl Drop for DevicePlace {
    fn drop(&mut self) {
        // If this fails, an empty file or zeros are left, which the next start treats as new.
        match self.undo {
            Undo::Nothing => {}
            Undo::Remove => drop(std::fs::remove_file(&self.path)),
            Undo::CutBack => {
                if self.length().is_ok_and(|length| length > self.length_before) {
                    let _ = self.file.set_len(self.length_before);
                }
            }
        }
    }
}

/// Locks the place of a file before the file is opened or created.
fn lock_beside(path: &Path, earlier: &[DevicePlace]) -> Result<Option<LockFile>, TierError> {
    match LockFile::of(path) {
        Locked::Ours(lock) => Ok(Some(lock)),
        Locked::Without => Ok(None),
        Locked::Others(lock) => {
            let is_same = |place: &&DevicePlace| place.lock_file.as_ref().is_some_and(|other| other.path == lock);
            Err(refused(
                path,
                match earlier.iter().find(is_same) {
                    Some(other) => format!("is the same as {}; name it once", other.path.display()),
                    None => IN_USE.into(),
                },
            ))
        }
    }
}

/// The file that a path stands for.
pub(super) fn file_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() }
}

/// Some file systems reject `O_DIRECT` only at the first read.
fn read_directly(file: &File) -> io::Result<()> {
    file.read_at(&mut Aligned::recycled(BLOCK_BYTES), 0).map(drop)
}

fn open_refused(path: &Path, error: io::Error) -> TierError {
    let reason = match Errno::from_io_error(&error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            "this user may not read and write it; change its owner or mode, or run as a user who may"
        }
        Some(Errno::ROFS) => {
            "lies on a file system that is mounted read-only; mount it for writing, or name another place"
        }
        Some(Errno::BUSY) => "is mounted or in use by another process; unmount it or stop that one first",
        Some(Errno::NOENT) => "lies in a directory that does not exist; make the directory, or correct the path",
        Some(Errno::NOSPC | Errno::DQUOT) => {
            "cannot be made: its file system is full; make room, or name another place"
        }
        _ => return TierError::Io { path: path.to_owned(), what: "open it", source: error },
    };
    refused(path, reason.into())
}
