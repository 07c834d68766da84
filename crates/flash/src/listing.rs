//! The records of a region, in order, and what of them the table of regions holds.

use std::ops::Range;

use crate::format::BLOCK;
use crate::format::footer::{Span, Summary};
use crate::identity::{Identity, Shards};
use crate::regions::Regions;
use crate::survey::Use;

/// A record's place in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The bits of the key's hash that the index uses.
    pub(crate) hash: u64,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) is_tombstone: bool,
}

impl Listed {
    /// Blocks it touches.
    pub(crate) fn blocks(&self) -> usize {
        (self.offset as usize % BLOCK + self.length as usize).div_ceil(BLOCK)
    }
}

/// All records of a region.
pub(crate) struct Listing {
    pub(crate) records: Vec<Listed>,
    pub(crate) summary: Summary,
    pub(crate) span: Span,
    pub(crate) records_end: u32,
    /// How many parts are damaged: the footer, records, unreadable blocks, and gaps in which no record can be recognised.
    pub(crate) damaged: u64,
    /// Parts that held records of which none can be recognised any more.
    pub(crate) gaps: Vec<Range<u32>>,
    /// Some blocks cannot be read.
    pub(crate) unreadable: bool,
    /// Sound records may be missing: the search for them was cut short.
    pub(crate) given_up: bool,
    /// The list comes from the footer: no record is missing.
    pub(crate) complete: bool,
    /// Bytes read for it.
    pub(crate) bytes: u64,
}

/// Enters what is known about a region in use into the table of regions.
pub(crate) fn enter(regions: &Regions, identities: Shards, region: usize, used: &Use, listing: &Listing) {
    let entry = regions.get(region);
    entry.begin(used.sequence, used.base, used.salt, crate::regions::State::Closed);
    entry.set_summary(listing.summary);
    entry.set_span(listing.span);
    entry.set_extent(listing.records_end, listing.records.len() as u32);
    let mut in_block = InBlock::default();
    for record in &listing.records {
        let offset = record.offset as usize;
        let repeats = in_block.repeats(offset / BLOCK, identities.identity(record.hash));
        // The key of a damaged record is unknown: it may be a newer version of any key before it.
        regions.note_record(region, offset, repeats || !listing.complete);
    }
}

/// The identities of the records that begin in one block, which is the last one looked at.
#[derive(Default)]
struct InBlock {
    block: usize,
    identities: Vec<Identity>,
}

impl InBlock {
    /// Whether a record before this one begins in its block and is of the same identity.
    fn repeats(&mut self, block: usize, identity: Identity) -> bool {
        if self.block != block {
            self.block = block;
            self.identities.clear();
        }
        let repeats = self.identities.contains(&identity);
        self.identities.push(identity);
        repeats
    }
}
