//! From hash to buckets, and from a slot back to both of its buckets.
//!
//! Buckets stand in rows of 1024 (a page). Growth adds buckets at the end and splits in the same order, so bucket `b` is
//! column `b % 1024` of row `b / 1024`. A column is fixed for an entry's life in that choice; the row is the low bits of a
//! *row word* that the tag determines: the tag itself for the first choice, the tag turned round by half for the second.
//! As the two row words are independent, so is whether their rows have been split already in this round.

/// log2 of the buckets in a row.
pub(crate) const COLUMN_BITS: u32 = 10;
const COLUMN_MASK: u64 = (1 << COLUMN_BITS) - 1;

/// A key's place, derived from its hash: independent of how far the index has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) tag: u32,
    pub(crate) column: u32,
}

impl Home {
    #[inline]
    pub(crate) fn of<const TAG_BITS: u32>(hash: u64) -> Self {
        Self { column: (hash & COLUMN_MASK) as u32, tag: ((hash >> COLUMN_BITS) & ((1 << TAG_BITS) - 1)) as u32 }
    }
}

/// How far the index has grown: `1 << level` rows are complete, and in the next round `split` buckets have been split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) level: u32,
    pub(crate) split: usize,
}

impl Extent {
    pub(crate) const INITIAL: Self = Self { level: 0, split: 0 };

    /// Buckets there are.
    #[inline]
    pub(crate) fn buckets(self) -> usize {
        self.round() + self.split
    }

    /// Buckets at the start of this round.
    #[inline]
    pub(crate) fn round(self) -> usize {
        1 << (COLUMN_BITS + self.level)
    }

    /// One bucket more.
    pub(crate) fn after(self) -> Self {
        let split = self.split + 1;
        if split == self.round() { Self { level: self.level + 1, split: 0 } } else { Self { split, ..self } }
    }

    /// One bucket less. Not for the initial extent.
    pub(crate) fn before(self) -> Self {
        if self.split > 0 {
            return Self { split: self.split - 1, ..self };
        }
        let before = Self { level: self.level - 1, split: 0 };
        Self { split: before.round() - 1, ..before }
    }

    /// The bucket of a column and a row word.
    #[inline]
    pub(crate) fn bucket(self, column: u32, row_word: u32) -> usize {
        let wide = ((row_word as usize & ((2 << self.level) - 1)) << COLUMN_BITS) | column as usize;
        if wide < self.buckets() { wide } else { wide & (self.round() - 1) }
    }
}

/// The row word of a tag in one of its choices.
#[inline]
pub(crate) fn row_word<const TAG_BITS: u32>(tag: u32, second: bool) -> u32 {
    if !second {
        return tag;
    }
    let half = TAG_BITS / 2;
    let mask = (1u32 << TAG_BITS) - 1;
    ((tag >> half) | (tag << (TAG_BITS - half))) & mask
}

/// The column of the other choice. An involution: applied twice it is the column again.
#[inline]
pub(crate) fn other_column(column: u32, tag: u32) -> u32 {
    // Odd and spread over all column bits, so that it is never 0: the two choices are never the same bucket.
    let offset = (tag.wrapping_mul(0x9e37_79b1) >> (32 - COLUMN_BITS)) | 1;
    column ^ offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_choice_of_the_other_choice_is_the_first() {
        for tag in (0..1 << 20).step_by(977) {
            let column = (tag * 7) & 1023;
            assert_ne!(other_column(column, tag), column);
            assert_eq!(other_column(other_column(column, tag), tag), column);
        }
    }

    #[test]
    fn splitting_sends_a_bucket_to_itself_or_to_its_image_one_round_up() {
        for split in 0..1024 {
            let before = Extent { level: 0, split };
            let after = Extent { level: 0, split: split + 1 };
            for word in 0..8 {
                for column in 0..1024 {
                    let (old, new) = (before.bucket(column, word), after.bucket(column, word));
                    assert!(new == old || (old == split && new == split + 1024));
                }
            }
        }
    }

    #[test]
    fn before_undoes_after() {
        let mut extent = Extent::INITIAL;
        for _ in 0..5000 {
            let grown = extent.after();
            assert_eq!(grown.buckets(), extent.buckets() + 1);
            assert_eq!(grown.before(), extent);
            extent = grown;
        }
    }

    #[test]
    fn a_full_round_is_the_next_level() {
        let full = Extent { level: 2, split: 4096 };
        let next = Extent { level: 3, split: 0 };
        for word in 0..64 {
            assert_eq!(full.bucket(5, word), next.bucket(5, word));
        }
    }
}
