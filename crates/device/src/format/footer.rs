//! A footer: what the index needs to know about each record of a region, in the order of the records.
//!
//! ```text
//!  +----------------------+------------------------------------------+
//!  | hash, 48 bits        | length of the record x 2 + tombstone     |   7 to 9 bytes a record
//!  +----------------------+------------------------------------------+
//!                           LEB128: 7 bits a byte, least first
//! ```
//!
//! An entry keeps the bits of the key's hash that choose the shard (the highest 12) and the place in its index (the lowest 36).
//! The records of a region are packed after its header, so their lengths say where each begins. The entries follow 64 bytes
//! about the region as a whole ([`Summary`] and [`Span`]); in version 1, only the first 24 of them.
//!
//! ```text
//!   0  least expiry u32, last expiry u32
//!   8  behind u64
//!  16  last u64
//!  24  begun u64
//!  32  ended u64
//!  40  greatest version u64
//!  48  0
//! ```

use super::integers::{u32_at, u64_at};
use super::layout::VERSION_1;
use crate::regions::identity::{INDEX_BITS, SHARD_BITS_MAX as SHARD_BITS};

/// Bytes before the entries.
pub const SUMMARY_BYTES: usize = 64;
/// The same in version 1.
const SUMMARY_BYTES_1: usize = 24;
/// Bytes of an entry, at most.
pub const ENTRY_BYTES_MAX: usize = 11;

const _: () = assert!(SHARD_BITS + INDEX_BITS == 48);

/// Properties of a region's records as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The earliest expiry of its records; [`Summary::NEVER`] if none expires.
    pub expiry_min: u32,
    /// The latest expiry of its records; [`Summary::NEVER`] if one never expires.
    pub expiry_max: u32,
    /// Regions up to this sequence number may hold older versions that outlive this region's records: this region must not be
    /// freed before them.
    pub behind: u64,
    /// The greatest sequence number of its records.
    pub last: u64,
}

impl Summary {
    /// An expiry that never comes.
    pub const NEVER: u32 = u32::MAX;
    /// The summary of a region without records.
    pub const EMPTY: Self = Self { expiry_min: Self::NEVER, expiry_max: 0, behind: 0, last: 0 };

    /// An item's expiry in the form of summaries.
    #[inline]
    pub fn moment(expiry: moneta_store::Expiry) -> u32 {
        if expiry == moneta_store::Expiry::NEVER { Self::NEVER } else { expiry.0 }
    }

    /// Adds a record that expires at `moment` and has the sequence number `sequence`.
    #[inline]
    pub fn add(&mut self, moment: u32, sequence: u64) {
        self.last = self.last.max(sequence);
        self.expiry_min = self.expiry_min.min(moment);
        self.expiry_max = self.expiry_max.max(moment);
    }
}

/// When a region was filled. Separate from [`Summary`], which changes with every record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it was begun, in milliseconds since the Unix epoch, as exact as the node's clock; 0 if unknown.
    pub begun: u64,
    /// When it was full, in the same unit; 0 if unknown or not yet.
    pub ended: u64,
    /// The greatest version of its records; 0: they have none, or it is of format 2.
    pub version: u64,
}

/// The bytes at the start of a footer.
pub fn encode_head(summary: &Summary, span: &Span) -> [u8; SUMMARY_BYTES] {
    let mut bytes = [0; SUMMARY_BYTES];
    bytes[..4].copy_from_slice(&summary.expiry_min.to_le_bytes());
    bytes[4..8].copy_from_slice(&summary.expiry_max.to_le_bytes());
    bytes[8..16].copy_from_slice(&summary.behind.to_le_bytes());
    bytes[16..24].copy_from_slice(&summary.last.to_le_bytes());
    bytes[24..32].copy_from_slice(&span.begun.to_le_bytes());
    bytes[32..40].copy_from_slice(&span.ended.to_le_bytes());
    bytes[40..48].copy_from_slice(&span.version.to_le_bytes());
    bytes
}

/// Reads the head of a footer of a format version, and returns the entries after it; `None` if the footer is too short.
pub fn decode_head(footer: &[u8], version: u16) -> Option<(Summary, Span, &[u8])> {
    let (bytes, entries) =
        footer.split_at_checked(if version == VERSION_1 { SUMMARY_BYTES_1 } else { SUMMARY_BYTES })?;
    let summary = Summary {
        expiry_min: u32_at(bytes, 0),
        expiry_max: u32_at(bytes, 4),
        behind: u64_at(bytes, 8),
        last: u64_at(bytes, 16),
    };
    let span = if version == VERSION_1 {
        Span::default()
    } else {
        Span { begun: u64_at(bytes, 24), ended: u64_at(bytes, 32), version: u64_at(bytes, 40) }
    };
    Some((summary, span, entries))
}

/// A footer's entry for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key's hash, with zeros for the bits that are not kept.
    pub hash: u64,
    /// Bytes of the record.
    pub length: u32,
    /// The record is a tombstone.
    pub is_tombstone: bool,
}

/// The bits of a hash that a footer keeps, in their original positions.
pub fn kept(hash: u64) -> u64 {
    hash & !(((1 << (64 - SHARD_BITS - INDEX_BITS)) - 1) << INDEX_BITS)
}

/// Appends an entry.
#[inline]
pub fn push(footer: &mut Vec<u8>, entry: &Entry) {
    let packed = (entry.hash & ((1 << INDEX_BITS) - 1)) | (entry.hash >> (64 - SHARD_BITS) << INDEX_BITS);
    let (mut bytes, mut end) = ([0; ENTRY_BYTES_MAX], 6);
    bytes[..8].copy_from_slice(&packed.to_le_bytes());
    let mut rest = u64::from(entry.length) << 1 | u64::from(entry.is_tombstone);
    while rest >= 0x80 {
        bytes[end] = rest as u8 | 0x80;
        rest >>= 7;
        end += 1;
    }
    bytes[end] = rest as u8;
    footer.extend_from_slice(&bytes[..=end]);
}

/// Decodes the entries after a footer's head, up to its end or the first invalid one.
pub fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry> {
    std::iter::from_fn(move || {
        let (packed, mut rest) = bytes.split_at_checked(6)?;
        let mut word = [0; 8];
        word[..6].copy_from_slice(packed);
        let packed = u64::from_le_bytes(word);
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let (byte, behind) = rest.split_first()?;
            rest = behind;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 35 {
                return None;
            }
        }
        bytes = rest;
        let hash = (packed & ((1 << INDEX_BITS) - 1)) | (packed >> INDEX_BITS << (64 - SHARD_BITS));
        Some(Entry { hash, length: u32::try_from(number >> 1).ok()?, is_tombstone: number & 1 == 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_comes_back_and_that_of_version_1_is_read() {
        let summary = Summary { expiry_min: 1, expiry_max: 2, behind: 3, last: 4 };
        let span = Span { begun: 5, ended: 6, version: 7 };
        let mut footer = encode_head(&summary, &span).to_vec();
        assert!(footer[48..].iter().all(|byte| *byte == 0), "reserved");
        footer.push(8);
        assert_eq!(decode_head(&footer, super::super::VERSION), Some((summary, span, &[8][..])));
        let first = [&footer[..SUMMARY_BYTES_1], &[9]].concat();
        assert_eq!(decode_head(&first, VERSION_1), Some((summary, Span::default(), &[9][..])));
        assert_eq!(decode_head(&footer[..63], super::super::VERSION), None);
    }

    #[test]
    fn entries_come_back() {
        let written: Vec<_> = [1, 63, 64, 4096, 1 << 20, u32::MAX >> 1]
            .into_iter()
            .enumerate()
            .map(|(n, length)| Entry {
                hash: kept(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(n as u64 + 1)),
                length,
                is_tombstone: n % 2 == 0,
            })
            .collect();
        let mut footer = Vec::new();
        written.iter().for_each(|entry| push(&mut footer, entry));
        assert_eq!(entries(&footer).collect::<Vec<_>>(), written);
        assert!(footer.len() <= written.len() * ENTRY_BYTES_MAX);
    }
}
