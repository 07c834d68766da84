//! A key with its hash, computed once for a command and used by every layer below.

use smallvec::SmallVec;

use crate::key_hash::KeyHash;

/// An item's key and its 64-bit hash.
///
/// The hash function is the store's (its `seed`), and fixed by its specification, so that engines may keep hashes
/// on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The key's bytes: 1 to 250 of them, any value.
    pub bytes: &'a [u8],
    /// Hash of `bytes` by the store's function.
    pub hash: u64,
}

impl<'a> Key<'a> {
    /// Hashes `bytes` by `hash`.
    #[inline]
    pub fn new(bytes: &'a [u8], hash: KeyHash) -> Self {
        Self { bytes, hash: hash.hash(bytes) }
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
