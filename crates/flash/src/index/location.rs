//! The location of a record, as the index stores it.
//!
//! ```text
//!   36   35 34       30 29                    0
//!  +-------+-----------+-----------------------+
//!  | hits  | size      | block + 1             |
//!  +-------+-----------+-----------------------+
//! ```
//!
//! `block` is the 4 KiB block in which the record begins, counted over all regions; `size` is how many blocks hold the whole
//! record, in size classes; `hits` counts reads since the record was written, up to 3.

use moneta_device::regions::identity::INDEX_BITS;

/// Bits of the index's tags: the rest of a slot.
pub(crate) const TAG_BITS: u32 = 26;
const BLOCK_BITS: u32 = 30;
const SIZE_BITS: u32 = 5;
const SIZE_SHIFT: u32 = BLOCK_BITS;
const HITS_SHIFT: u32 = BLOCK_BITS + SIZE_BITS;
const HITS_MAX: u64 = 3;

/// Footers keep the bits of a hash that an index tells apart.
const _: () = assert!(moneta_index::Index::<TAG_BITS>::HASH_BITS == INDEX_BITS);
const _: () = assert!(TAG_BITS + 1 + HITS_SHIFT + 2 == 64);

/// Blocks that locations can address: 4 TiB in blocks of 4 KiB.
pub(crate) const BLOCKS_MAX: usize = (1 << BLOCK_BITS) - 1;

/// An index's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location(pub(crate) u64);

impl Location {
    /// A record that begins in `block` and touches `blocks` blocks; not read yet.
    pub(crate) fn new(block: usize, blocks: usize) -> Self {
        debug_assert!(block < BLOCKS_MAX && blocks > 0);
        Self((size_class(blocks) << SIZE_SHIFT) | (block as u64 + 1))
    }

    pub(crate) fn block(self) -> usize {
        (self.0 & ((1 << BLOCK_BITS) - 1)) as usize - 1
    }

    /// Blocks to read. Fewer than the record touches only if it touches more than [`SIZE_MAX`].
    pub(crate) fn blocks(self) -> usize {
        class_blocks((self.0 >> SIZE_SHIFT) & ((1 << SIZE_BITS) - 1))
    }

    pub(crate) fn hits(self) -> u64 {
        self.0 >> HITS_SHIFT
    }

    /// The location of a tombstone. The index holds tombstones only during recovery.
    pub(crate) fn tombstone(block: usize, blocks: usize) -> Self {
        Self(Self::new(block, blocks).0 | HITS_MAX << HITS_SHIFT)
    }

    /// Whether an entry is a tombstone, in an index that is being recovered: no item has been read yet, so hits mark tombstones.
    pub(crate) fn is_tombstone(self) -> bool {
        self.hits() == HITS_MAX
    }

    /// The same location with one more hit.
    pub(crate) fn hit(self) -> Self {
        if self.hits() < HITS_MAX { Self(self.0 + (1 << HITS_SHIFT)) } else { self }
    }
}

/// Sizes up to 8 blocks are exact, then there are four to a power of two, the last 512 blocks (2 MiB).
fn size_class(blocks: usize) -> u64 {
    if blocks <= 8 {
        return blocks as u64 - 1;
    }
    if blocks >= SIZE_MAX {
        return (1 << SIZE_BITS) - 1;
    }
    // In the octave (2^n, 2^(n+1)] a quarter is 2^(n-2).
    let octave = (blocks - 1).ilog2();
    let quarter = (blocks - (1 << octave)).div_ceil(1 << (octave - 2)) as u64;
    7 + u64::from(octave - 3) * 4 + quarter
}

fn class_blocks(class: u64) -> usize {
    if class < 8 {
        return class as usize + 1;
    }
    let (octave, quarter) = ((class - 8) / 4 + 3, (class - 8) % 4 + 1);
    (1 << octave) + quarter as usize * (1 << (octave - 2))
}

/// Blocks of the largest size class.
pub(crate) const SIZE_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_enough_and_not_much_more() {
        for blocks in 1..=SIZE_MAX {
            let read = Location::new(7, blocks).blocks();
            assert!(read >= blocks && read * 4 <= blocks * 5, "{blocks} blocks are read as {read}");
        }
        assert_eq!(Location::new(7, SIZE_MAX).blocks(), SIZE_MAX);
        assert_eq!(Location::new(7, 10_000).blocks(), SIZE_MAX);
    }

    #[test]
    fn the_parts_do_not_touch() {
        let location = Location::new(BLOCKS_MAX - 1, 512);
        assert_eq!((location.block(), location.blocks(), location.hits()), (BLOCKS_MAX - 1, 512, 0));
        let hot = location.hit().hit().hit().hit();
        assert_eq!((hot.block(), hot.blocks(), hot.hits()), (BLOCKS_MAX - 1, 512, 3));
        assert!(hot.0 < 1 << 37);
    }
}
