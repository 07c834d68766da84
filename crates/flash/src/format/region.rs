//! A region's header and trailer.
//!
//! ```text
//!  header, at the start of the region                 trailer, its last 64 bytes
//!   0  magic "MONETARG"                                0  magic "MONETATR"
//!   8  version u16, group u8, 0 u8, 0 u32              8  version u16, 0 u16, records u32
//!  16  tier                                           16  tier
//!  24  sequence number of the region                  24  sequence number of the region
//!  32  base sequence of its records                   32  base sequence of its records
//!  40  0                                              40  end of the records u32, bytes of the footer u32
//!  48  0                                              48  hash of the footer
//!  56  XXH3-64 of the bytes before                    56  XXH3-64 of the bytes before
//! ```
//!
//! The header goes out with the first records, the trailer with the footer when the region is full. A region whose trailer
//! does not bear its header's sequence number was being filled when the node ended. One whose first block is zero is free.

use xxhash_rust::xxh3::xxh3_64;

use super::{BLOCK, VERSION, read_int};

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 64;
/// Bytes of a trailer.
pub(crate) const TRAILER_BYTES: usize = 64;
const HEADER_MAGIC: [u8; 8] = *b"MONETARG";
const TRAILER_MAGIC: [u8; 8] = *b"MONETATR";

const _: () = assert!(HEADER_BYTES < BLOCK && TRAILER_BYTES < BLOCK);

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionHeader {
    pub(crate) tier: u64,
    pub(crate) sequence: u64,
    pub(crate) base: u64,
    pub(crate) group: u8,
}

/// What the first block of a region says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Nothing: the region is free.
    Free,
    /// A region that belongs to this tier.
    Region(RegionHeader),
    /// Neither: damaged, or of a tier that was here before.
    Unknown,
}

impl RegionHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.group;
        bytes[16..24].copy_from_slice(&self.tier.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.base.to_le_bytes());
        let hash = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// Reads the first block of a region of `tier` in which one bit is flipped. Worth it: without its header a region that
    /// was being filled is lost, and older versions would show of all that it holds.
    pub(crate) fn repair(block: &[u8], tier: u64) -> Option<Self> {
        let mut bytes: [u8; HEADER_BYTES] = block[..HEADER_BYTES].try_into().expect("a block is longer");
        (0..HEADER_BYTES * 8).find_map(|bit| {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let begin = Self::decode(&bytes, tier);
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Begin::Region(header) = begin { Some(header) } else { None }
        })
    }

    /// Reads the first block of a region of `tier`.
    pub(crate) fn decode(block: &[u8], tier: u64) -> Begin {
        let bytes = &block[..HEADER_BYTES];
        if bytes.iter().all(|byte| *byte == 0) {
            return Begin::Free;
        }
        let header = Self {
            tier: read_int!(u64, bytes, 16),
            sequence: read_int!(u64, bytes, 24),
            base: read_int!(u64, bytes, 32),
            group: bytes[10],
        };
        if bytes[..8] == HEADER_MAGIC && read_int!(u64, bytes, 56) == xxh3_64(&bytes[..56]) && header.tier == tier {
            Begin::Region(header)
        } else {
            Begin::Unknown
        }
    }
}

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) tier: u64,
    pub(crate) sequence: u64,
    pub(crate) base: u64,
    /// Records in the region, tombstones included.
    pub(crate) records: u32,
    /// Where they end in the region.
    pub(crate) records_end: u32,
    /// Bytes of the footer, which ends where the trailer begins.
    pub(crate) footer_bytes: u32,
    /// XXH3-64 of the footer.
    pub(crate) footer_hash: u64,
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..8].copy_from_slice(&TRAILER_MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.records.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.tier.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.base.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.records_end.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.footer_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.footer_hash.to_le_bytes());
        let hash = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// Reads a trailer of `tier`; `None` if it is not one.
    pub(crate) fn decode(bytes: &[u8], tier: u64) -> Option<Self> {
        let bytes = &bytes[..TRAILER_BYTES];
        let trailer = Self {
            tier: read_int!(u64, bytes, 16),
            sequence: read_int!(u64, bytes, 24),
            base: read_int!(u64, bytes, 32),
            records: read_int!(u32, bytes, 12),
            records_end: read_int!(u32, bytes, 40),
            footer_bytes: read_int!(u32, bytes, 44),
            footer_hash: read_int!(u64, bytes, 48),
        };
        let sound =
            bytes[..8] == TRAILER_MAGIC && read_int!(u64, bytes, 56) == xxh3_64(&bytes[..56]) && trailer.tier == tier;
        sound.then_some(trailer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_trailers_come_back_and_flipped_bits_do_not_pass() {
        let header = RegionHeader { tier: 1, sequence: 2, base: 3, group: 4 };
        let trailer =
            Trailer { tier: 1, sequence: 2, base: 3, records: 4, records_end: 5, footer_bytes: 6, footer_hash: 7 };
        assert_eq!(RegionHeader::decode(&header.encode(), 1), Begin::Region(header));
        assert_eq!(RegionHeader::decode(&header.encode(), 2), Begin::Unknown);
        assert_eq!(RegionHeader::decode(&[0; BLOCK], 1), Begin::Free);
        assert_eq!(Trailer::decode(&trailer.encode(), 1), Some(trailer));
        for bit in 0..HEADER_BYTES * 8 {
            let flip = |mut bytes: [u8; 64]| {
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            };
            assert_eq!(RegionHeader::decode(&flip(header.encode()), 1), Begin::Unknown);
            assert_eq!(RegionHeader::repair(&flip(header.encode()), 1), Some(header));
            assert_eq!(RegionHeader::repair(&flip(header.encode()), 2), None);
            assert_eq!(Trailer::decode(&flip(trailer.encode()), 1), None);
        }
    }
}
