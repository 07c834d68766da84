//! Lists the records of a region on a device, in order: from its footer, or from the records if it has none.

use std::io;

use moneta_store::KeyHash;

use crate::devices::Devices;
use crate::format::BLOCK;
use crate::format::footer;
use crate::format::hash::hash;
use crate::format::region::{HEADER_BYTES, TRAILER_BYTES, Trailer};
use crate::io::Aligned;
use crate::regions::listing::{Listed, Listing};
use crate::regions::salvage;
use crate::regions::scan::from_records;
use crate::regions::survey::Use;

/// Lists a region's records: from its footer if that is sound, else by reading all records that can be read.
///
/// # Errors
/// The device's, if nothing of the region can be read.
pub fn list(devices: &Devices, region: usize, used: &Use, hash: KeyHash) -> io::Result<Listing> {
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
