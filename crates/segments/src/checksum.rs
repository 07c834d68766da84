//! The checksum of headers and blocks.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// XXH3 of some bytes.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// XXH3 of two runs of bytes, as of one.
pub(crate) fn of_both(first: &[u8], second: &[u8]) -> u64 {
    let mut hash = XxHash3_64::new();
    hash.write(first);
    hash.write(second);
    hash.finish()
}
