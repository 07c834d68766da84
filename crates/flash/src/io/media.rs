//! A device as the engine sees it, and the file or block device that it usually is.

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
    /// The system's. What was written since the last success is then to be taken as lost.
    fn sync(&self) -> io::Result<()>;

    /// The descriptor under which a ring may read it; `None` where only [`Media::read_at`] will do.
    fn descriptor(&self) -> Option<RawFd>;
}

/// A file or a block device.
#[derive(Debug)]
pub struct FileMedia {
    /// What is read and written.
    file: File,
    /// Hold the locks for as long as somebody may write. Other descriptions than `file`: a ring keeps that open for a moment
    /// longer than its owner, and that must not keep the next one out.
    _locks: Vec<File>,
    bytes: u64,
}

impl FileMedia {
    /// The first `bytes` of `file`, which `locks` keep others from.
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
