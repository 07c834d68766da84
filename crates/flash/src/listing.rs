//! What is in a region on a device: its records in order, from its footer or, where there is none, from the records.

use std::io;

use crate::devices::Devices;
use crate::format::BLOCK;
use crate::format::footer::{self, Summary, kept};
use crate::format::record::{Salt, View, mark};
use crate::format::region::{Begin, HEADER_BYTES, RegionHeader, TRAILER_BYTES, Trailer};
use crate::io::Aligned;
use crate::regions::Regions;
use moneta_store::Key;

/// What a region's first and last block say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survey {
    /// It is free, or of a tier that was here before.
    Free,
    /// It is in use.
    InUse(Use),
}

/// A region in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) sequence: u64,
    pub(crate) base: u64,
    /// Its trailer, unless it was being filled when the node ended.
    pub(crate) trailer: Option<Trailer>,
    /// Its header is damaged; the trailer knew.
    pub(crate) damaged: bool,
}

/// A record's place in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The bits of the key's hash that an index needs.
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
    pub(crate) records_end: u32,
    /// The footer, or a record, is damaged.
    pub(crate) damaged: u64,
    /// Bytes read for it.
    pub(crate) bytes: u64,
}

/// Looks at a region's first and last block.
pub(crate) fn survey(devices: &Devices, region: usize) -> io::Result<Survey> {
    let (device, start) = devices.place(region);
    let media = devices.media(device);
    let mut block = Aligned::zeroed(BLOCK);
    media.read_at(&mut block, start)?;
    let begin = RegionHeader::decode(&block, devices.tier());
    if begin == Begin::Free {
        return Ok(Survey::Free);
    }
    media.read_at(&mut block, start + (devices.region_bytes() - BLOCK) as u64)?;
    let trailer = Trailer::decode(&block[BLOCK - TRAILER_BYTES..], devices.tier());
    Ok(match (begin, trailer) {
        (Begin::Region(header), trailer) => Survey::InUse(Use {
            sequence: header.sequence,
            base: header.base,
            trailer: trailer.filter(|trailer| trailer.sequence == header.sequence),
            damaged: false,
        }),
        // Freeing a region wipes both its ends, so this trailer is of the records that are there.
        (Begin::Unknown, Some(trailer)) => {
            Survey::InUse(Use { sequence: trailer.sequence, base: trailer.base, trailer: Some(trailer), damaged: true })
        }
        _ => Survey::Free,
    })
}

/// Lists a region's records: from its footer if that is sound, else by reading all of them.
pub(crate) fn list(devices: &Devices, region: usize, used: &Use, seed: u64) -> io::Result<Listing> {
    let footer = used.trailer.map(|trailer| from_footer(devices, region, &trailer)).transpose()?.flatten();
    match footer {
        Some(listing) => Ok(listing),
        None => {
            let (device, start) = devices.place(region);
            let mut bytes = Aligned::zeroed(devices.region_bytes());
            devices.media(device).read_at(&mut bytes, start)?;
            Ok(from_records(&bytes, used, seed))
        }
    }
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
    if xxhash_rust::xxh3::xxh3_64(footer) != trailer.footer_hash {
        return Ok(None);
    }
    let Some(summary) = Summary::decode(footer) else { return Ok(None) };
    let mut offset = HEADER_BYTES as u32;
    let mut records = Vec::with_capacity(trailer.records as usize);
    for entry in footer::entries(&footer[footer::SUMMARY_BYTES..]) {
        let footer::Entry { hash, length, is_tombstone } = entry;
        records.push(Listed { hash, offset, length, is_tombstone });
        offset = offset.saturating_add(length);
    }
    let fits = offset == trailer.records_end && records.len() == trailer.records as usize;
    let bytes = bytes.len() as u64;
    Ok(fits.then_some(Listing { records, summary, records_end: trailer.records_end, damaged: 0, bytes }))
}

/// Lists what the records themselves say. Those of a region that was being filled end at the first that does not check;
/// where a trailer says how far records go, damaged ones are listed with the rest: nothing older may take their place.
fn from_records(bytes: &[u8], used: &Use, seed: u64) -> Listing {
    let limit = used.trailer.map_or(bytes.len(), |trailer| (trailer.records_end as usize).min(bytes.len()));
    // How far back its records' older versions lie nobody knows any more: as far as can be.
    let mut summary = Summary { behind: used.sequence - 1, ..Summary::EMPTY };
    let mut records = Vec::new();
    let mut damaged = u64::from(used.trailer.is_some());
    let mut at = HEADER_BYTES;
    while let Some(view) = bytes[..limit].get(at..).and_then(View::read).filter(View::is_whole) {
        let salt = Salt { region: used.sequence, offset: at as u32 };
        let sound = view.is_sound(salt);
        if !sound && used.trailer.is_none() {
            break;
        }
        damaged += u64::from(!sound);
        summary.add(Summary::moment(view.expiry()), used.base + view.header.sequence);
        records.push(Listed {
            hash: kept(Key::new(view.key(), seed).hash),
            offset: at as u32,
            length: view.header.len() as u32,
            is_tombstone: view.header.is(mark::TOMBSTONE),
        });
        at += view.header.len();
    }
    Listing { records, summary, records_end: at as u32, damaged, bytes: bytes.len() as u64 }
}

/// Brings what is known of a region in use into the table of regions.
pub(crate) fn enter(regions: &Regions, region: usize, used: &Use, listing: &Listing) {
    let entry = regions.get(region);
    entry.begin(used.sequence, used.base, crate::regions::State::Closed);
    entry.set_summary(listing.summary);
    entry.set_extent(listing.records_end, listing.records.len() as u32);
    listing.records.iter().for_each(|record| regions.note_record(region, record.offset as usize));
}
