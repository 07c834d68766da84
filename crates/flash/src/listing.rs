//! What is in a region on a device: its records in order, from its footer or, where there is none, from the records.

use std::io;

use crate::devices::Devices;
use crate::format::BLOCK;
use crate::format::footer::{self, Span, Summary, kept};
use crate::format::record::{Header, Salt, View, mark};
use crate::format::region::{HEADER_BYTES, TRAILER_BYTES, Trailer};
use crate::io::Aligned;
use crate::regions::Regions;
use crate::survey::Use;
use moneta_store::Key;

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
    pub(crate) span: Span,
    pub(crate) records_end: u32,
    /// The footer, or a record, is damaged.
    pub(crate) damaged: u64,
    /// Bytes read for it.
    pub(crate) bytes: u64,
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
    Ok(fits.then_some(Listing { records, summary, span, records_end: trailer.records_end, damaged: 0, bytes }))
}

/// Lists what the records themselves say, damaged ones with the rest: nothing older may take their place. Those of a region
/// that was being filled end where no record follows any more.
fn from_records(bytes: &[u8], used: &Use, seed: u64) -> Listing {
    let limit = used.trailer.map_or(bytes.len(), |trailer| (trailer.records_end as usize).min(bytes.len()));
    let bytes = &bytes[..limit];
    // How far back its records' older versions lie nobody knows any more: as far as can be.
    let mut summary = Summary { behind: used.sequence - 1, ..Summary::EMPTY };
    let mut records = Vec::new();
    let mut damaged = u64::from(used.trailer.is_some());
    let mut at = HEADER_BYTES;
    while at < limit {
        let listed = |view: View<'_>| {
            let record = Listed {
                hash: kept(Key::new(view.key(), seed).hash),
                offset: at as u32,
                length: view.header.len() as u32,
                is_tombstone: view.header.is(mark::TOMBSTONE),
            };
            (record, Summary::moment(view.expiry()), used.base + view.header.sequence)
        };
        let salt = Salt { key: used.salt, offset: at as u32 };
        let sound = sound(bytes, salt).map(listed);
        damaged += u64::from(sound.is_none());
        let found = sound.or_else(|| repaired(bytes, salt, listed)).or_else(|| followed(bytes, salt).map(listed));
        let Some((record, expiry, sequence)) = found else { break };
        summary.add(expiry, sequence);
        records.push(record);
        at += record.length as usize;
    }
    // Where nothing follows, records end.
    if at < limit && used.trailer.is_none() {
        damaged -= 1;
    }
    let span = Span { begun: used.begun, ..Span::default() };
    Listing { records, summary, span, records_end: at as u32, damaged, bytes: bytes.len() as u64 }
}

/// The record at a place of a region, if it is sound.
fn sound(bytes: &[u8], place: Salt) -> Option<View<'_>> {
    let view = bytes.get(place.offset as usize..).and_then(View::read)?;
    (view.is_whole() && view.is_sound(place)).then_some(view)
}

/// A record of which one bit of header or key is flipped, put right: it is not served, but its key must be known, and where
/// the next one begins.
fn repaired<T>(bytes: &[u8], place: Salt, look: impl Fn(View<'_>) -> T) -> Option<T> {
    let start = place.offset as usize;
    let header = Header::read(&bytes[start..])?;
    let mut bytes = bytes.to_vec();
    (start * 8..(start + header.value_start()) * 8).find_map(|bit| {
        *bytes.get_mut(bit / 8)? ^= 1 << (bit % 8);
        let found = sound(&bytes, place).map(&look);
        bytes[bit / 8] ^= 1 << (bit % 8);
        found
    })
}

/// A record whose value is damaged, which can be told from one that was never wholly written by what follows it.
fn followed(bytes: &[u8], place: Salt) -> Option<View<'_>> {
    let view = bytes.get(place.offset as usize..).and_then(View::read).filter(View::is_whole)?;
    let offset = place.offset + view.header.len() as u32;
    sound(bytes, Salt { offset, ..place }).map(|_| view)
}

/// Brings what is known of a region in use into the table of regions.
pub(crate) fn enter(regions: &Regions, region: usize, used: &Use, listing: &Listing) {
    let entry = regions.get(region);
    entry.begin(used.sequence, used.base, used.salt, crate::regions::State::Closed);
    entry.set_summary(listing.summary);
    entry.set_span(listing.span);
    entry.set_extent(listing.records_end, listing.records.len() as u32);
    listing.records.iter().for_each(|record| regions.note_record(region, record.offset as usize));
}
