//! A key with its hash, computed once for a command and used by every layer below.

use smallvec::SmallVec;
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

/// Bytes of an owned key that need no allocation: more than most keys have.
const INLINE: usize = 48;

/// A key that outlives the call it came with: of a request that waits.
#[derive(Clone, Debug)]
pub struct OwnedKey {
    bytes: SmallVec<[u8; INLINE]>,
    hash: u64,
}

impl OwnedKey {
    /// A copy of `key`.
    pub fn of(key: &Key<'_>) -> Self {
        Self { bytes: SmallVec::from_slice(key.bytes), hash: key.hash }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> Key<'_> {
        Key { bytes: &self.bytes, hash: self.hash }
    }
}
