//! Setting room aside for a file: exactly what is missing.
//!
//! `fallocate` over what is allocated already is not free of charge everywhere: XFS wants the whole range free once more. So
//! what lies beyond the file's end is allocated, then its holes, and nothing if nothing is missing. What was allocated but
//! never written counts as a hole (`lseek(2)`); there, smaller pieces make do with less that is free.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

/// Where `st_blocks` is counted in.
const SECTOR_BYTES: u64 = 512;
/// Smallest pieces in which room is set aside.
const PIECE_MIN: u64 = 256 << 10;

/// Bytes of the first `bytes` of a file that are not allocated, as far as the file system counts them.
///
/// # Errors
/// The system's.
pub(super) fn missing(file: &File, bytes: u64) -> std::io::Result<u64> {
    Ok(bytes.saturating_sub(file.metadata()?.blocks() * SECTOR_BYTES))
}

/// Allocates the first `bytes` of a file, and makes it as long as that if it is shorter.
///
/// # Errors
/// `NOSPC`, `DQUOT`, `FBIG` or `OPNOTSUPP` as `fallocate(2)`; part of it may be allocated then.
pub(super) fn set_aside(file: &File, bytes: u64) -> Result<(), Errno> {
    let is_missing = || missing(file, bytes).map(|missing| missing > 0).map_err(errno);
    let length = file.metadata().map_err(errno)?.len();
    if length < bytes {
        allocate(file, length, bytes)?;
    }
    let mut at = 0;
    while is_missing()? && at < length.min(bytes) {
        let hole = seek(file, SeekFrom::Hole(at))?;
        // Behind the last data there is a hole up to the end.
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
