//! Corrects the checksums of a damaged segment, as an attacker can who writes into an archive. The fuzz target uses it, too.

use std::ops::Range;

use twox_hash::XxHash3_64;

/// Bytes of a block before what it stores, and of these before its checksum.
const BLOCK_HEAD: usize = 32;
const SUMMED: usize = 24;

/// Sets all checksums and the hash, as far as the parts of a segment can be told apart.
pub fn mend(segment: &mut [u8]) {
    let Some(mut at) = mend_json(segment, 8) else { return };
    while let Some(tag) = segment.get(at..at + 4) {
        if tag == b"MFTR" {
            set_hash(segment, at);
            mend_json(segment, at + 4);
            return;
        }
        let Some(stored) = length(segment, at + 4).map(|stored| at + BLOCK_HEAD..at + BLOCK_HEAD + stored) else {
            return;
        };
        let (end, Some(bytes)) = (stored.end, segment.get(stored)) else { return };
        let sum = XxHash3_64::oneshot(&[&segment[at..at + SUMMED], bytes].concat());
        segment[at + SUMMED..at + BLOCK_HEAD].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
}

fn length(segment: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(segment.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// Where the JSON of a header or a footer is whose length is here.
fn json(segment: &[u8], at: usize) -> Option<Range<usize>> {
    let json = at + 4..at + 4 + length(segment, at)?;
    (json.end + 8 <= segment.len()).then_some(json)
}

/// What follows a header or a footer.
fn mend_json(segment: &mut [u8], at: usize) -> Option<usize> {
    let json = json(segment, at)?;
    let sum = XxHash3_64::oneshot(&segment[json.clone()]);
    segment[json.end..json.end + 8].copy_from_slice(&sum.to_le_bytes());
    Some(json.end + 8)
}

/// The hash of what is before a footer.
fn set_hash(segment: &mut [u8], footer: usize) {
    const FIELD: &[u8] = b"\"blake3\":\"";
    let hash = blake3::hash(&segment[..footer]).to_hex();
    let Some(json) = json(segment, footer + 4) else { return };
    let Some(found) = segment[json.clone()].windows(FIELD.len()).position(|window| window == FIELD) else { return };
    let at = json.start + found + FIELD.len();
    if at + hash.len() <= json.end {
        segment[at..at + hash.len()].copy_from_slice(hash.as_bytes());
    }
}
