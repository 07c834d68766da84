//! A key with its hash, computed once for a command and used by every layer below.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An item's key and its 64-bit hash.
///
/// The hash is XXH3-64, which is fixed by its specification, so that engines may keep it on disk. A store that faces
/// clients it does not trust gives each process its own seed, so that nobody can choose keys that share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The key's bytes: 1 to 250 of them, any value.
    pub bytes: &'a [u8],
    /// XXH3-64 of `bytes` under the store's seed.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes `bytes` under `seed`.
    #[inline]
    pub fn new(bytes: &'a [u8], seed: u64) -> Self {
        Self { bytes, hash: xxh3_64_with_seed(bytes, seed) }
    }
}

/// A key that outlives the call it came with: of a request that waits.
#[derive(Clone, Debug)]
pub(crate) struct OwnedKey {
    bytes: Box<[u8]>,
    hash: u64,
}

impl OwnedKey {
    pub(crate) fn of(key: &Key<'_>) -> Self {
        Self { bytes: key.bytes.into(), hash: key.hash }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key { bytes: &self.bytes, hash: self.hash }
    }
}
