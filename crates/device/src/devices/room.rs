//! Allocates the missing blocks of a file, and only those.
//!
//! `fallocate` over allocated blocks is not free everywhere: XFS demands free space for the whole range again. So the part beyond
//! the file's end is allocated first, then its holes, and nothing if nothing is missing. Blocks that are allocated but
//! unwritten count as holes (`lseek(2)`); allocating these in smaller pieces needs less free space.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

/// The unit of `st_blocks`, in bytes.
const SECTOR_BYTES: u64 = 512;
/// The smallest piece to allocate.
const PIECE_MIN: u64 = 256 << 10;

/// How many of the first `bytes` of a file are not allocated, as far as the file system counts that.
///
/// # Errors
/// The system's.
pub(super) fn missing(file: &File, bytes: u64) -> std::io::Result<u64> {
    Ok(bytes.saturating_sub(file.metadata()?.blocks() * SECTOR_BYTES))
}

/// Allocates the first `bytes` of a file, and extends it to that length if it is shorter.
///
/// # Errors
/// `NOSPC`, `DQUOT`, `FBIG` or `OPNOTSUPP` as of `fallocate(2)`; a part may then be allocated.
pub(super) fn set_aside(file: &File, bytes: u64) -> Result<(), Errno> {
    let is_missing = || missing(file, bytes).map(|missing| missing > 0).map_err(errno);
    let length = file.metadata().map_err(errno)?.len();
    if length < bytes {
        allocate(file, length, bytes)?;
    }
    let mut at = 0;
    while is_missing()? && at < length.min(bytes) {
        let hole = seek(file, SeekFrom::Hole(at))?;
        // Behind the last data, everything up to the end is a hole.
        let data = match seek(file, SeekFrom::Data(hole)) {
            Err(Errno::NXIO) => bytes,
            found => found?,
        };
        allocate(file, hole.min(bytes), data.min(bytes))?;
        at = data;
    }
    Ok(())
}

fn allocate(file: &File, start: u64, end: u64) -> Result<(), Errno> {
    let (mut at, mut piece) = (start, (end - start).max(1));
    while at < end {
        match fallocate(file, FallocateFlags::empty(), at, piece.min(end - at)) {
            Ok(()) => at += piece.min(end - at),
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC) if piece > PIECE_MIN => piece = (piece / 2).next_multiple_of(4096).max(PIECE_MIN),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
