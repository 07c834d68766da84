//! A region's header and trailer.
//!
//! ```text
//!  header, at the start of the region                 trailer, its last 64 bytes
//!   0  magic "MONETARG"                                0  magic "MONETATR"
//!   8  version u16, group u8, 0 u8, 0 u32              8  version u16, 0 u16, records u32
//!  16  tier                                           16  tier
//!  24  sequence number of the region                  24  sequence number of the region
//!  32  base sequence of its records                   32  base sequence of its records
//!  40  time begun u64, in version 1: 0                40  end of the records u32, bytes of the footer u32
//!  48  0                                              48  hash of the footer
//!  56  XXH3-64 of the bytes before                    56  XXH3-64 of the bytes before
//! ```
//!
//! The header is written with the first records, together with a copy in the last 64 bytes of the region, which the trailer
//! replaces when the region is full. So each end says that the region is in use, and under which sequence number. One lost
//! block does not hide that, and neither does an end left by an earlier use, whose number is lower. A region with zeros at both
//! ends is free. Version 1 has no copy.

use super::hash::hash;
use super::integers::{u16_at, u32_at, u64_at};
use super::layout::{BLOCK, VERSION, VERSION_1};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a trailer.
pub const TRAILER_BYTES: usize = 64;
const HEADER_MAGIC: [u8; 8] = *b"MONETARG";
const TRAILER_MAGIC: [u8; 8] = *b"MONETATR";

const _: () =
    assert!(HEADER_BYTES < BLOCK && TRAILER_BYTES == HEADER_BYTES, "the header's copy stands where the trailer goes");

/// The contents of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionHeader {
    /// Version of the region's layout.
    pub version: u16,
    /// Identity of the tier.
    pub tier: u64,
    /// Sequence number of this use of the region.
    pub sequence: u64,
    /// The stamp that its records' sequence numbers count from.
    pub base: u64,
    /// The group of lifetimes of its records.
    pub group: u8,
    /// When it was begun, in milliseconds since the Unix epoch; 0 in version 1.
    pub begun: u64,
}

/// The 64 bytes at one end of a region, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing: zeros.
    Blank,
    /// A header of this tier: at the region's start, and at its end while it is being filled.
    Header(RegionHeader),
    /// A trailer of this tier: at the region's end.
    Trailer(Trailer),
    /// Neither: damaged, or of an earlier tier on this device.
    Unknown,
}

impl End {
    /// Decodes one end of a region of `tier`.
    pub fn decode(bytes: &[u8; HEADER_BYTES], tier: u64) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::Blank;
        }
        let version = u16_at(bytes, 8);
        let is_ours = u64_at(bytes, 56) == hash(&bytes[..56])
            && u64_at(bytes, 16) == tier
            && (VERSION_1..=VERSION).contains(&version);
        match &bytes[..8] {
            magic if is_ours && *magic == HEADER_MAGIC => Self::Header(RegionHeader::fields(bytes, version)),
            magic if is_ours && *magic == TRAILER_MAGIC => Self::Trailer(Trailer::fields(bytes, version)),
            _ => Self::Unknown,
        }
    }

    /// Decodes an end with one flipped bit. A region that loses both ends is lost, and older versions of all its keys would be
    /// served.
    pub fn repair(bytes: &[u8; HEADER_BYTES], tier: u64) -> Self {
        let mut bytes = *bytes;
        let found = (0..HEADER_BYTES * 8).find_map(|bit| {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let end = Self::decode(&bytes, tier);
            bytes[bit / 8] ^= 1 << (bit % 8);
            matches!(end, Self::Header(_) | Self::Trailer(_)).then_some(end)
        });
        found.unwrap_or(Self::Unknown)
    }

    /// Sequence number of the region, if this end has it.
    pub fn sequence(&self) -> Option<u64> {
        match self {
            Self::Header(header) => Some(header.sequence),
            Self::Trailer(trailer) => Some(trailer.sequence),
            Self::Blank | Self::Unknown => None,
        }
    }
}

impl RegionHeader {
    /// The bytes of it on a device.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = self.group;
        bytes[16..24].copy_from_slice(&self.tier.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.base.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.begun.to_le_bytes());
        let hash = hash(&bytes[..56]);
        bytes[56..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    fn fields(bytes: &[u8; HEADER_BYTES], version: u16) -> Self {
        Self {
            version,
            tier: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            base: u64_at(bytes, 32),
            group: bytes[10],
            begun: u64_at(bytes, 40),
        }
    }
}

/// The contents of a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Version of the footer.
    pub version: u16,
    /// Identity of the tier.
    pub tier: u64,
    /// Sequence number of this use of the region.
    pub sequence: u64,
    /// The stamp that its records' sequence numbers count from.
    pub base: u64,
    /// Records in the region, tombstones included.
    pub records: u32,
    /// Where the records end in the region.
    pub records_end: u32,
    /// Bytes of the footer, which ends where the trailer begins.
    pub footer_bytes: u32,
    /// XXH3-64 of the footer.
    pub footer_hash: u64,
}

impl Trailer {
    /// The bytes of it on a device.
    pub fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..8].copy_from_slice(&TRAILER_MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.records.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.tier.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.base.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.records_end.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.footer_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.footer_hash.to_le_bytes());
        let hash = hash(&bytes[..56]);
        bytes[56..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    fn fields(bytes: &[u8; TRAILER_BYTES], version: u16) -> Self {
        Self {
            version,
            tier: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            base: u64_at(bytes, 32),
            records: u32_at(bytes, 12),
            records_end: u32_at(bytes, 40),
            footer_bytes: u32_at(bytes, 44),
            footer_hash: u64_at(bytes, 48),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_trailers_come_back_and_flipped_bits_do_not_pass() {
        let header = RegionHeader { version: VERSION, tier: 1, sequence: 2, base: 3, group: 4, begun: 5 };
        let trailer = Trailer {
            version: VERSION,
            tier: 1,
            sequence: 2,
            base: 3,
            records: 4,
            records_end: 5,
            footer_bytes: 6,
            footer_hash: 7,
        };
        for (bytes, end) in [(header.encode(), End::Header(header)), (trailer.encode(), End::Trailer(trailer))] {
            assert_eq!(End::decode(&bytes, 1), end);
            assert_eq!(End::decode(&bytes, 2), End::Unknown, "of another tier");
            for bit in 0..HEADER_BYTES * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(End::decode(&bytes, 1), End::Unknown);
                assert_eq!(End::repair(&bytes, 1), end);
                assert_eq!(End::repair(&bytes, 2), End::Unknown);
            }
        }
        assert_eq!(End::decode(&[0; HEADER_BYTES], 1), End::Blank);
    }

    #[test]
    fn version_1_is_read_and_a_later_one_is_not() {
        let of_version = |version: u16| {
            End::decode(&RegionHeader { version, tier: 1, sequence: 2, base: 3, group: 4, begun: 0 }.encode(), 1)
        };
        assert_eq!(of_version(VERSION_1).sequence(), Some(2));
        assert_eq!(of_version(VERSION + 1), End::Unknown);
    }
}
