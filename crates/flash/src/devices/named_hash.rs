//! How the keys of a tier are hashed, as its superblocks say it.

use std::fmt;

use moneta_store::{KeyHash, SECRET_BYTES};

use crate::error::FlashError;

/// A hash function by its number on disk, with what is secret about it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedHash {
    /// [`NamedHash::XXH3`] or [`NamedHash::AES_CMAC`]; others are a later build's.
    pub(super) name: u32,
    /// The secret of a keyed hash, zeros behind it; all zeros for one that has none.
    pub(super) key: [u8; 32],
}

impl NamedHash {
    /// XXH3-64 under the tier's seed: in tiers that were begun before there was another.
    pub(super) const XXH3: u32 = 1;
    /// AES-128-CMAC under a secret of the tier.
    pub(super) const AES_CMAC: u32 = 2;

    /// That of tiers whose superblocks have no name for it.
    pub(super) const UNNAMED: Self = Self { name: Self::XXH3, key: [0; 32] };

    /// The keyed one that a tier begins with; `random` gives its secret.
    pub(super) fn keyed(mut random: impl FnMut() -> Result<u64, FlashError>) -> Result<Self, FlashError> {
        let mut key = [0; 32];
        for part in key[..SECRET_BYTES].chunks_exact_mut(8) {
            part.copy_from_slice(&random()?.to_le_bytes());
        }
        Ok(Self { name: Self::AES_CMAC, key })
    }

    /// Whether this build has the function.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.name, Self::XXH3 | Self::AES_CMAC)
    }

    /// The function, given the tier's seed. A number that is not known counts as [`NamedHash::XXH3`]: tiers that have one
    /// are refused before keys are hashed.
    pub(super) fn function(&self, seed: u64) -> KeyHash {
        match self.name {
            Self::AES_CMAC => KeyHash::keyed(*self.key.first_chunk().expect("a key is longer than a secret")),
            _ => KeyHash::seeded(seed),
        }
    }
}

/// Without the secret.
impl fmt::Debug for NamedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedHash").field("name", &self.name).finish_non_exhaustive()
    }
}
