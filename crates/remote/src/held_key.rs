//! A key that a request keeps until its reply has come.

use moneta_store::Key;
use moneta_store::request::KEY_MAX;

/// A key, stored without a separate allocation.
pub(crate) struct HeldKey {
    bytes: [u8; KEY_MAX],
    length: u8,
    hash: u64,
}

impl HeldKey {
    #[inline]
    pub(crate) fn new(key: &Key<'_>) -> Self {
        let mut bytes = [0; KEY_MAX];
        let length = key.bytes.len().min(KEY_MAX);
        bytes[..length].copy_from_slice(&key.bytes[..length]);
        Self { bytes, length: length as u8, hash: key.hash }
    }

    pub(crate) fn get(&self) -> Key<'_> {
        Key { bytes: &self.bytes[..usize::from(self.length)], hash: self.hash }
    }
}
