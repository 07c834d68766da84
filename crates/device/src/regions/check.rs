//! Invariants of reading a region record by record, whatever the damage. For a property test and for fuzzing.

use moneta_store::{Expiry, Key, KeyHash};

use super::scan::from_records;
use crate::format::footer::{self, kept};
use crate::format::record::{Draft, Salt, mark, salt_of};
use crate::format::region::{End, HEADER_BYTES, TRAILER_BYTES, Trailer};
use crate::format::{BLOCK, VERSION};
use crate::regions::listing::Listed;
use crate::regions::survey::{Use, weigh};

const REGION: usize = 16 * BLOCK;
const TIER: u64 = 7;
const SEED: u64 = 8;
const HASH: KeyHash = KeyHash::seeded(SEED);
const SEQUENCE: u64 = 9;
const BASE: u64 = 1 << 40;

/// Takes bytes from the front; zeros when there are no more.
struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    fn byte(&mut self) -> u8 {
        self.some(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    fn some(&mut self, bytes: usize) -> &'i [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Makes a region of `data`, damages it as `data` says, and reads it.
///
/// # Panics
/// If a record is listed that was not written and no damage is counted, or a sound one is not listed although there was time
/// to find it, or anything else that must hold does not.
pub fn check_region(data: &[u8]) {
    read_ends(data);
    let mut input = Input(data);
    let kind = input.byte();
    let mut bytes = vec![0; REGION];
    if kind & 2 != 0 {
        // Leftovers of an earlier use of the region.
        write_records(&mut bytes, &mut Input(data), salt_of(VERSION, SEQUENCE - 1, SEED));
    }
    let salt = salt_of(VERSION, SEQUENCE, SEED);
    let written = write_records(&mut bytes, &mut input, salt);
    let end = written.last().map_or(HEADER_BYTES, |last| (last.offset + last.length) as usize);
    let sound = bytes.clone();
    damage(&mut bytes, &mut input);
    let trailer = Trailer {
        version: VERSION,
        tier: TIER,
        sequence: SEQUENCE,
        base: BASE,
        records: written.len() as u32,
        records_end: end as u32,
        footer_bytes: 0,
        footer_hash: 0,
    };
    let trailer = (kind & 1 != 0).then_some(trailer);
    let used = Use {
        sequence: SEQUENCE,
        base: BASE,
        salt,
        begun: 0,
        trailer,
        damaged: false,
        unreadable: false,
        headless: false,
    };
    let listing = from_records(&bytes, &used, HASH);

    let mut at = HEADER_BYTES as u32;
    for record in &listing.records {
        assert!(record.offset >= at && record.length > 0, "records overlap");
        at = record.offset + record.length;
    }
    assert!(at as usize <= REGION && listing.records_end >= at);
    assert!(listing.gaps.iter().all(|gap| gap.start < gap.end && gap.end as usize <= REGION));
    // Without its footer a region that was full is damaged anyway.
    let damaged = listing.damaged - u64::from(trailer.is_some());
    let is_whole = |record: &&Listed| {
        let part = record.offset as usize..(record.offset + record.length) as usize;
        bytes[part.clone()] == sound[part]
    };
    for record in written.iter().filter(is_whole) {
        assert!(listing.given_up || listing.records.contains(record), "{record:?} is sound and not listed");
    }
    let foreign = listing.records.iter().filter(|record| !written.contains(record)).count();
    assert!(foreign == 0 || damaged > 0, "a record that was not written, and no damage");
    let newest = listing.records.iter().map(|record| record.offset).max().unwrap_or(0);
    let missing = written.iter().any(|record| record.offset < newest && !listing.records.contains(record));
    assert!(!missing || damaged > 0, "a record is missing before another, and no damage");
    if bytes[..end] == sound[..end] {
        assert_eq!((damaged, listing.gaps.len()), (0, 0), "nothing is damaged");
    }
}

/// Decodes arbitrary bytes as the ends and the footer of a region.
fn read_ends(data: &[u8]) {
    if let (Some(first), Some(last)) = (data.first_chunk::<HEADER_BYTES>(), data.last_chunk::<TRAILER_BYTES>()) {
        for (first, last) in [(*first, *last), (signed(*first), signed(*last))] {
            let end = |bytes| match End::decode(bytes, TIER) {
                End::Unknown => End::repair(bytes, TIER),
                end => end,
            };
            let _ = weigh(end(&first), end(&last), SEED);
        }
    }
    for version in [1, 2] {
        if let Some((_, _, entries)) = footer::decode_head(data, version) {
            let _ = footer::entries(entries).count();
        }
    }
}

/// The bytes with valid magic, tier and checksum, so that they pass for a header or trailer.
fn signed(mut bytes: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    let magic = if bytes[0] & 1 == 0 { *b"MONETARG" } else { *b"MONETATR" };
    bytes[..8].copy_from_slice(&magic);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&TIER.to_le_bytes());
    let hash = crate::format::hash::hash(&bytes[..56]);
    bytes[56..].copy_from_slice(&hash.to_le_bytes());
    bytes
}

/// Appends records until `input` says stop, or the region is full. Values come from `input`, so that they can look like records.
fn write_records(region: &mut [u8], input: &mut Input<'_>, salt: u64) -> Vec<Listed> {
    let mut written = Vec::new();
    let (mut at, mut sequence) = (HEADER_BYTES, 0);
    loop {
        let kind = input.byte();
        if kind == 0 {
            return written;
        }
        let key = vec![input.byte(); 1 + usize::from(kind) % 250];
        let is_tombstone = kind & 1 != 0;
        let length = if is_tombstone { 0 } else { input.word() % 6000 };
        let pattern = input.some(length.min(300));
        let value: Vec<u8> =
            pattern.iter().copied().cycle().take(if pattern.is_empty() { 0 } else { length }).collect();
        let (marks, expiry) = (if is_tombstone { mark::TOMBSTONE } else { 0 }, Expiry(u32::from(kind & 2)));
        let draft = Draft {
            key: &key,
            value: [&value, &[]],
            marks,
            expiry,
            flags: u32::from(kind & 4),
            cas: None,
            unversioned: false,
        };
        if at + draft.len() > REGION - TRAILER_BYTES {
            return written;
        }
        sequence += 1 + u64::from(kind & 8);
        let place = Salt { key: salt, offset: at as u32 };
        draft.write(place, sequence, draft.content_hash(), |offset, run| {
            region[at + offset..at + offset + run.len()].copy_from_slice(run);
        });
        let hash = kept(Key::new(&key, HASH).hash);
        written.push(Listed { hash, offset: at as u32, length: draft.len() as u32, is_tombstone });
        at += draft.len();
    }
}

/// Zeroes blocks and overwrites bytes.
fn damage(region: &mut [u8], input: &mut Input<'_>) {
    loop {
        match input.byte() {
            0 => return,
            kind @ 1..=127 => {
                let block = usize::from(kind) % (REGION / BLOCK) * BLOCK;
                region[block..block + BLOCK].fill(if kind < 64 { 0 } else { input.byte() });
            }
            _ => {
                let at = input.word() % (REGION - 256);
                let length = usize::from(input.byte());
                let bytes = input.some(length);
                region[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}
