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

/// Keys that outlive the call they came with, all in one piece of memory.
#[derive(Clone, Debug, Default)]
pub struct OwnedKeys {
    bytes: Vec<u8>,
    /// Where each ends, and its hash.
    ends: Vec<(u32, u64)>,
}

impl OwnedKeys {
    /// Copies of `keys`.
    pub fn of(keys: &[Key<'_>]) -> Self {
        let mut all = Self::default();
        all.replace(keys);
        all
    }

    /// Takes copies of `keys` in place of those that are there.
    pub fn replace(&mut self, keys: &[Key<'_>]) {
        self.bytes.clear();
        self.ends.clear();
        self.bytes.reserve(keys.iter().map(|key| key.bytes.len()).sum());
        self.ends.reserve(keys.len());
        for key in keys {
            self.bytes.extend_from_slice(key.bytes);
            self.ends.push((self.bytes.len() as u32, key.hash));
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key at `index`.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn key(&self, index: usize) -> Key<'_> {
        let start = if index == 0 { 0 } else { self.ends[index - 1].0 as usize };
        let (end, hash) = self.ends[index];
        Key { bytes: &self.bytes[start..end as usize], hash }
    }

    /// A copy of one of them.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn owned(&self, index: usize) -> OwnedKey {
        OwnedKey::of(&self.key(index))
    }
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
