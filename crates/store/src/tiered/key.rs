//! A key that outlives the call it came with.

use crate::key::Key;

/// A key of a request that waits.
pub(super) struct OwnedKey {
    bytes: Box<[u8]>,
    hash: u64,
}

impl OwnedKey {
    pub(super) fn of(key: &Key<'_>) -> Self {
        Self { bytes: key.bytes.into(), hash: key.hash }
    }

    pub(super) fn key(&self) -> Key<'_> {
        Key { bytes: &self.bytes, hash: self.hash }
    }
}
