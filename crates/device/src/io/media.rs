//! The device trait, and its usual implementation over a file or a block device.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::fs::fdatasync;

/// One device. Offsets and lengths are multiples of 4 KiB, buffers are aligned to it ([`super::Aligned`]).
pub trait Media: Send + Sync {
    /// Its size in bytes.
    fn bytes(&self) -> u64;

    /// Fills `buffer` from `offset`, all of it.
    ///
    /// # Errors
    /// The system's, or `UnexpectedEof` beyond the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes `bytes` at `offset`, all of it.
    ///
    /// # Errors
    /// The system's. How much was written is then unknown.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when everything written before is on the device.
    ///
    /// # Errors
    /// The system's. Everything written since the last successful sync must then be considered lost.
    fn sync(&self) -> io::Result<()>;

    /// The descriptor that a ring may read from; `None` if only [`Media::read_at`] works.
    fn descriptor(&self) -> Option<RawFd>;
}

/// A file or a block device.
#[derive(Debug)]
pub struct FileMedia {
    /// The file for reads and writes.
    file: File,
    /// Hold the locks as long as this device may be written. Separate from `file`: a ring keeps that one open slightly longer than
    /// its owner, which must not lock out the next owner.
    _locks: Vec<File>,
    bytes: u64,
}

impl FileMedia {
    /// The first `bytes` of `file`, protected by `locks`.
    pub fn new(file: File, locks: Vec<File>, bytes: u64) -> Self {
        Self { file, _locks: locks, bytes }
    }
}

impl Media for FileMedia {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(fdatasync(&self.file)?)
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }
}
