//! Lists the records of a region on a device, in order: from its footer, or from the records if it has none.

use moneta_store::KeyHash;
use std::io;
use std::ops::Range;

use crate::devices::Devices;
use crate::format::BLOCK;
use crate::format::footer::{self, Span, Summary};
use crate::format::hash::hash;
use crate::format::region::{HEADER_BYTES, TRAILER_BYTES, Trailer};
use crate::identity::{Identity, Shards};
use crate::io::Aligned;
use crate::regions::Regions;
use crate::salvage;
use crate::scan::from_records;
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

/// Lists a region's records: from its footer if that is sound, else by reading all records that can be read.
///
/// # Errors
/// The device's, if nothing of the region can be read.
pub(crate) fn list(devices: &Devices, region: usize, used: &Use, hash: KeyHash) -> io::Result<Listing> {
    // An unreadable footer counts as a damaged one.
    let footer = used.trailer.and_then(|trailer| from_footer(devices, region, &trailer).ok().flatten());
    if let Some(listing) = footer {
        return Ok(listing);
    }
    let found = salvage::read(devices, region, 0..devices.region_bytes())?;
    let mut listing = from_records(&found.bytes, used, hash);
    listing.damaged += (found.lost / BLOCK) as u64;
    listing.unreadable = found.lost > 0;
    if used.headless {
        listing.records.iter_mut().for_each(|record| record.is_tombstone = true);
    }
    Ok(listing)
}

fn from_footer(devices: &Devices, region: usize, trailer: &Trailer) -> io::Result<Option<Listing>> {
    let region_bytes = devices.region_bytes();
    let footer_bytes = trailer.footer_bytes as usize;
    let Some(footer_start) = (region_bytes - TRAILER_BYTES).checked_sub(footer_bytes) else { return Ok(None) };
    let block = footer_start / BLOCK * BLOCK;
    let (device, start) = devices.place(region);
    let mut bytes = Aligned::zeroed(region_bytes - block);
    devices.media(device).read_at(&mut bytes, start + block as u64)?;
    let footer = &bytes[footer_start - block..footer_start - block + footer_bytes];
    if hash(footer) != trailer.footer_hash {
        return Ok(None);
    }
    let Some((summary, span, entries)) = footer::decode_head(footer, trailer.version) else { return Ok(None) };
    let mut offset = HEADER_BYTES as u32;
    let mut records = Vec::with_capacity(trailer.records as usize);
    for entry in footer::entries(entries) {
        let footer::Entry { hash, length, is_tombstone } = entry;
        records.push(Listed { hash, offset, length, is_tombstone });
        offset = offset.saturating_add(length);
    }
    let fits = offset == trailer.records_end && records.len() == trailer.records as usize;
    let bytes = bytes.len() as u64;
    Ok(fits.then_some(Listing {
        records,
        summary,
        span,
        records_end: trailer.records_end,
        damaged: 0,
        gaps: Vec::new(),
        unreadable: false,
        given_up: false,
        complete: true,
        bytes,
    }))
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
