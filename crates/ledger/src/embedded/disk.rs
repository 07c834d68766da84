//! The file as redb sees it.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use redb::StorageBackend;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// A file that grows, is read and written at places, and synced. Tests have others than [`FileDisk`].
pub(crate) trait Disk: Debug + Send + Sync + 'static {
    /// Bytes of it.
    fn len(&self) -> io::Result<u64>;
    /// Fills `out` from `offset` on.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Makes it so long; new bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Returns when all that was written is on the device.
    fn sync(&self) -> io::Result<()>;
    /// Writes all of `data` at `offset`.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;
}

/// What opens a file, and makes it if it is not there.
pub(crate) type Opener = Arc<dyn Fn(&Path) -> io::Result<Box<dyn Disk>> + Send + Sync>;

/// A file of the file system.
#[derive(Debug)]
pub(crate) struct FileDisk(File);

impl FileDisk {
    /// Opens a file, which only its owner can read if it is made now.
    pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Disk>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        Ok(Box::new(Self(file)))
    }
}

impl Disk for FileDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let now = self.len()?;
        if len > now {
            // Room is taken when the file grows: a disk that is full says so before anything is written.
            match fallocate(&self.0, FallocateFlags::empty(), now, len - now) {
                Ok(()) => return Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

/// A disk for redb. It locks nothing: the directory is locked.
#[derive(Debug)]
pub(crate) struct Backend(pub(crate) Box<dyn Disk>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
