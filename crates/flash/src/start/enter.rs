//! Enters a region that was read into the table of regions.

use moneta_device::format::BLOCK;
use moneta_device::regions::identity::{Identity, Shards};
use moneta_device::regions::listing::Listing;
use moneta_device::regions::survey::Use;

use crate::log::regions::{RegionStage, Regions};

/// Enters what is known about a region in use into the table of regions.
pub(crate) fn enter(regions: &Regions, identities: Shards, region: usize, used: &Use, listing: &Listing) {
    let entry = regions.get(region);
    entry.begin(used.sequence, used.base, used.salt, RegionStage::Closed);
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
