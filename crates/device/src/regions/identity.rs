//! Identities: the hash bits by which the engine distinguishes keys.
//!
//! The index stores no keys, only bits of their hashes: those that choose the shard, and those the shard's index keeps. Keys
//! that agree in both share one entry, so the record stored last replaces the other's. Everything that decides what is newer
//! or deleted has to use the same bits: index, tombstones at recovery, forgotten keys, records carried forward. Otherwise a
//! restart would bring back what the running node had treated as overwritten or deleted.
//!
//! ```text
//!   63         64-s                    36                                0
//!  +--------------+----------------------+--------------------------------+
//!  | shard, s bits| not used            | place in the shard's index, 36 |
//!  +--------------+----------------------+--------------------------------+
//! ```
//!
//! Footers keep 12 bits for the shard, whatever `s` is.

/// Bits of a hash that choose the shard, at most.
pub const SHARD_BITS_MAX: u32 = 12;
/// Bits of a hash that the index of a shard tells apart.
pub const INDEX_BITS: u32 = 36;

/// The hash bits by which the engine knows a key. Keys with equal identities share an index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(u64);

/// How a tier distributes keys over the shards of its index.
#[derive(Clone, Copy, Debug)]
pub struct Shards {
    bits: u32,
}

impl Shards {
    /// `1 << bits` shards.
    pub fn new(bits: u32) -> Self {
        debug_assert!((1..=SHARD_BITS_MAX).contains(&bits));
        Self { bits }
    }

    /// The shard that keys of this hash are in.
    #[inline]
    pub fn number(self, hash: u64) -> usize {
        (hash >> (64 - self.bits)) as usize
    }

    /// The identity of keys with this hash. Depends only on bits that footers keep.
    #[inline]
    pub fn identity(self, hash: u64) -> Identity {
        Identity((self.number(hash) as u64) << INDEX_BITS | hash & ((1 << INDEX_BITS) - 1))
    }
}

/// One of `1 << bits` buckets, the same for all hashes of an identity, however many shards there are.
#[inline]
pub fn bucket(hash: u64, bits: u32) -> usize {
    debug_assert!(bits <= INDEX_BITS);
    (hash & ((1 << bits) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::footer::kept;

    #[test]
    fn hashes_that_an_index_cannot_tell_apart_are_one_identity_and_fall_into_one_bucket() {
        let shards = Shards::new(4);
        let hash = 0x9e37_79b9_7f4a_7c15;
        for bit in 0..64 {
            let other = hash ^ (1 << bit);
            let same = (36..60).contains(&bit);
            assert_eq!(shards.identity(other) == shards.identity(hash), same, "bit {bit}");
            assert_eq!(shards.identity(kept(other)), shards.identity(other), "bit {bit} in a footer");
            if same {
                assert_eq!((bucket(other, 16), shards.number(other)), (bucket(hash, 16), shards.number(hash)));
            }
        }
    }
}
