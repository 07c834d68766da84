//! The key hash of a tier, as stored in its superblocks.

use std::fmt;

use moneta_store::{KeyHash, SECRET_BYTES};

use crate::error::TierError;

/// A hash function: its number on disk, and its secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedHash {
    /// [`NamedHash::XXH3`] or [`NamedHash::AES_CMAC`]; others belong to later builds.
    pub(super) name: u32,
    /// The secret of a keyed hash, padded with zeros; all zeros for an unkeyed hash.
    pub(super) key: [u8; 32],
}

impl NamedHash {
    /// XXH3-64 under the tier's seed: for tiers created before there was a keyed hash.
    pub(super) const XXH3: u32 = 1;
    /// AES-128-CMAC under a secret of the tier.
    pub(super) const AES_CMAC: u32 = 2;

    /// The hash of tiers whose superblocks do not name one.
    pub(super) const UNNAMED: Self = Self { name: Self::XXH3, key: [0; 32] };

    /// The keyed hash of a new tier; `random` gives its secret.
    pub(super) fn keyed(mut random: impl FnMut() -> Result<u64, TierError>) -> Result<Self, TierError> {
        let mut key = [0; 32];
        for part in key[..SECRET_BYTES].chunks_exact_mut(8) {
            part.copy_from_slice(&random()?.to_le_bytes());
        }
        Ok(Self { name: Self::AES_CMAC, key })
    }

    /// Whether this build knows the function.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.name, Self::XXH3 | Self::AES_CMAC)
    }

    /// The function, given the tier's seed. An unknown number is treated as [`NamedHash::XXH3`]; tiers with one are refused before
    /// any key is hashed.
    pub(super) fn function(&self, seed: u64) -> KeyHash {
        match self.name {
            Self::AES_CMAC => KeyHash::keyed(*self.key.first_chunk().expect("a key is longer than a secret")),
            _ => KeyHash::seeded(seed),
        }
    }
}

/// Omits the secret.
impl fmt::Debug for NamedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedHash").field("name", &self.name).finish_non_exhaustive()
    }
}
