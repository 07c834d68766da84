//! A footer: what the index needs of each record of a region, in the order of the records.
//!
//! ```text
//!  +----------------------+------------------------------------------+
//!  | hash, 48 bits        | length of the record x 2 + tombstone     |   7 to 9 bytes a record
//!  +----------------------+------------------------------------------+
//!                           LEB128: 7 bits a byte, least first
//! ```
//!
//! Of the key's hash those bits are kept that choose the shard (the highest 12) and the place in its index (the lowest 36).
//! The records of a region follow each other from its header on, so their lengths say where each begins. Before the entries
//! stand 24 bytes on the region as a whole ([`Summary`]).

use super::read_int;
use crate::identity::{INDEX_BITS, SHARD_BITS_MAX as SHARD_BITS};

/// Bytes before the entries.
pub(crate) const SUMMARY_BYTES: usize = 24;
/// Bytes of an entry, at most.
pub(crate) const ENTRY_BYTES_MAX: usize = 11;

const _: () = assert!(SHARD_BITS + INDEX_BITS == 48);

/// What has to be known of a region as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The least expiry of its records; [`Summary::NEVER`] if none of them ever dies.
    pub(crate) expiry_min: u32,
    /// The greatest expiry of its records, [`Summary::NEVER`] if there is one that never dies.
    pub(crate) expiry_max: u32,
    /// Regions up to this sequence number may hold older versions that outlive this region's records: it must not go
    /// before them.
    pub(crate) behind: u64,
    /// The greatest sequence number of its records.
    pub(crate) last: u64,
}

impl Summary {
    /// An expiry that never comes.
    pub(crate) const NEVER: u32 = u32::MAX;
    /// Of a region without records.
    pub(crate) const EMPTY: Self = Self { expiry_min: Self::NEVER, expiry_max: 0, behind: 0, last: 0 };

    /// An item's expiry as summaries have it.
    pub(crate) fn moment(expiry: moneta_store::Expiry) -> u32 {
        if expiry == moneta_store::Expiry::NEVER { Self::NEVER } else { expiry.0 }
    }

    /// Takes a record in that dies at `moment` and has the sequence number `sequence`.
    pub(crate) fn add(&mut self, moment: u32, sequence: u64) {
        self.last = self.last.max(sequence);
        self.expiry_min = self.expiry_min.min(moment);
        self.expiry_max = self.expiry_max.max(moment);
    }

    pub(crate) fn encode(&self) -> [u8; SUMMARY_BYTES] {
        let mut bytes = [0; SUMMARY_BYTES];
        bytes[..4].copy_from_slice(&self.expiry_min.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.expiry_max.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.behind.to_le_bytes());
        bytes[16..].copy_from_slice(&self.last.to_le_bytes());
        bytes
    }

    /// Reads the summary at the start of a footer; `None` if the footer is too short.
    pub(crate) fn decode(footer: &[u8]) -> Option<Self> {
        let bytes = footer.get(..SUMMARY_BYTES)?;
        Some(Self {
            expiry_min: read_int!(u32, bytes, 0),
            expiry_max: read_int!(u32, bytes, 4),
            behind: read_int!(u64, bytes, 8),
            last: read_int!(u64, bytes, 16),
        })
    }
}

/// One record, as a footer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The key's hash, with zeros for the bits that are not kept.
    pub(crate) hash: u64,
    /// Bytes of the record.
    pub(crate) length: u32,
    pub(crate) is_tombstone: bool,
}

/// The bits of a hash that a footer keeps, where they stand in a hash.
pub(crate) fn kept(hash: u64) -> u64 {
    hash & !(((1 << (64 - SHARD_BITS - INDEX_BITS)) - 1) << INDEX_BITS)
}

/// Appends an entry.
pub(crate) fn push(footer: &mut Vec<u8>, entry: &Entry) {
    let packed = (entry.hash & ((1 << INDEX_BITS) - 1)) | (entry.hash >> (64 - SHARD_BITS) << INDEX_BITS);
    footer.extend_from_slice(&packed.to_le_bytes()[..6]);
    let mut rest = u64::from(entry.length) << 1 | u64::from(entry.is_tombstone);
    while rest >= 0x80 {
        footer.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    footer.push(rest as u8);
}

/// Reads the entries behind a footer's summary, up to its end or to where they make no sense.
pub(crate) fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry> {
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
