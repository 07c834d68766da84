//! The checksum of headers and blocks.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// XXH3 of some bytes.
pub(crate) fn of(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// XXH3 of two runs of bytes, as of one.
pub(crate) fn of_both(first: &[u8], second: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(first);
    hash.update(second);
    hash.digest()
}
