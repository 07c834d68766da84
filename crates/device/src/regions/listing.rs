//! The records of a region, in order.

use std::ops::Range;

use crate::format::BLOCK;
use crate::format::footer::{Span, Summary};

/// A record's place in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The bits of the key's hash that the index uses.
    pub hash: u64,
    /// Where in the region it begins.
    pub offset: u32,
    /// Bytes of it.
    pub length: u32,
    /// It is a tombstone, or as good as one.
    pub is_tombstone: bool,
}

impl Listed {
    /// Blocks it touches.
    pub fn blocks(&self) -> usize {
        (self.offset as usize % BLOCK + self.length as usize).div_ceil(BLOCK)
    }
}

/// All records of a region.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The records, in the order in which they were appended.
    pub records: Vec<Listed>,
    /// What is true of all of them.
    pub summary: Summary,
    /// When the region was filled.
    pub span: Span,
    /// Where in the region they end.
    pub records_end: u32,
    /// How many parts are damaged: the footer, records, unreadable blocks, and gaps in which no record can be recognised.
    pub damaged: u64,
    /// Parts that held records of which none can be recognised any more.
    pub gaps: Vec<Range<u32>>,
    /// Some blocks cannot be read.
    pub unreadable: bool,
    /// Sound records may be missing: the search for them was cut short.
    pub given_up: bool,
    /// The list comes from the footer: no record is missing.
    pub complete: bool,
    /// Bytes read for it.
    pub bytes: u64,
}
