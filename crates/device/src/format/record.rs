//! A record: one version of an item, or a tombstone.
//!
//! ```text
//!   0          4              8                 14        15       16
//!  +----------+--------------+-----------------+---------+--------+--------------------------------------+
//!  | checksum | value length | sequence, 48 b  | key len | marks  | expiry? flags? cas? | key | value    |
//!  +----------+--------------+-----------------+---------+--------+--------------------------------------+
//! ```
//!
//! The region's base is a version, and `sequence` is added to its time and counter; where stamps are counted (`stamp.rs`), the
//! base is a stamp, and `sequence` has 24 bits to add to it and 24 of the second of the write. The marks say which of the fields
//! with a question mark are present: 4 bytes of expiry (Unix second), 4 of client flags, 8 of CAS value; without the last, the
//! CAS value is the record's own stamp. A record without the mark of a version counts as version 0: a client chose its CAS value,
//! it was counted, or its region is of format 1 or 2. Records are packed without padding.
//!
//! The checksum is the low half of XXH3-64 over the key of the region's use, the record's offset in the region, the rest of the
//! header, and a hash of everything after the header. So a record at a wrong offset, or from an earlier use of its region, is
//! rejected. So is a forged record inside a client's value, which a scan after a lost block may meet: clients do not know the
//! key.

use moneta_store::{Expiry, ItemMeta, Version};

use super::hash::{hash, hash_of_runs, hash_with_seed};
use super::integers::{u32_at, u64_at};
use super::layout::VERSION_1;

/// Bytes before the optional fields.
pub const HEADER_BYTES: usize = 16;
/// Most bytes of a key; the least is one.
pub const KEY_BYTES_MAX: u8 = 250;

const _: () = assert!(HEADER_BYTES == 4 + 4 + 6 + 1 + 1);

/// Marks of a record.
pub mod mark {
    /// The item was read since it was stored.
    pub const FETCHED: u8 = 1;
    /// The item is stale.
    pub const STALE: u8 = 2;
    /// A client was told to fetch the item anew.
    pub const TOKEN: u8 = 4;
    /// A field with the expiry is there.
    pub const EXPIRY: u8 = 8;
    /// A field with the client's flags is there.
    pub const FLAGS: u8 = 16;
    /// A field with the CAS value is there.
    pub const CAS: u8 = 32;
    /// The key has no item: older records of it are void.
    pub const TOMBSTONE: u8 = 64;
    /// Its CAS value is its version.
    pub const VERSION: u8 = 128;
}

/// A record to be written, without its place.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The value in two runs.
    pub value: [&'a [u8]; 2],
    /// Marks that the fields below do not tell: [`mark::FETCHED`], [`mark::STALE`], [`mark::TOKEN`], [`mark::TOMBSTONE`].
    pub marks: u8,
    /// When the item expires.
    pub expiry: Expiry,
    /// The client's flags.
    pub flags: u32,
    /// CAS value, if it differs from the record's own version.
    pub cas: Option<u64>,
    /// It counts as version 0: the CAS value is no version, or a tombstone is no delete but hides what is here.
    pub unversioned: bool,
}

impl Draft<'_> {
    #[inline]
    fn all_marks(&self) -> u8 {
        self.marks
            | if self.expiry == Expiry::NEVER { 0 } else { mark::EXPIRY }
            | if self.flags == 0 { 0 } else { mark::FLAGS }
            | if self.cas.is_some() { mark::CAS } else { 0 }
            | if self.unversioned { 0 } else { mark::VERSION }
    }

    /// The version it comes with, if it does.
    #[inline]
    pub fn version(&self) -> Option<Version> {
        if self.unversioned { Some(Version::ZERO) } else { self.cas.map(Version) }
    }

    /// Bytes the record takes.
    #[expect(clippy::len_without_is_empty, reason = "no record is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        HEADER_BYTES + fields_len(self.all_marks()) + self.key.len() + self.value_len()
    }

    #[inline]
    fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    #[inline]
    fn fields(&self) -> ([u8; 16], usize) {
        let (mut fields, mut end) = ([0; 16], 0);
        let mut put = |bytes: &[u8]| {
            fields[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        };
        if self.expiry != Expiry::NEVER {
            put(&self.expiry.0.to_le_bytes());
        }
        if self.flags != 0 {
            put(&self.flags.to_le_bytes());
        }
        if let Some(cas) = self.cas {
            put(&cas.to_le_bytes());
        }
        (fields, end)
    }

    /// Hash of everything after the header. Takes long for a long value, so compute it before taking a lock.
    #[inline]
    pub fn content_hash(&self) -> u64 {
        let (fields, end) = self.fields();
        hash_of_runs(&[&fields[..end], self.key, self.value[0], self.value[1]])
    }

    /// Writes the record piece by piece through `put`. `sequence` counts from the base of its region.
    #[inline]
    pub fn write(&self, place: Salt, sequence: u64, content_hash: u64, mut put: impl FnMut(usize, &[u8])) {
        let mut header = [0; HEADER_BYTES];
        header[4..8].copy_from_slice(&(self.value_len() as u32).to_le_bytes());
        header[8..14].copy_from_slice(&sequence.to_le_bytes()[..6]);
        header[14] = self.key.len() as u8;
        header[15] = self.all_marks();
        let checksum = checksum(place, &header, content_hash);
        header[..4].copy_from_slice(&checksum.to_le_bytes());
        let (fields, end) = self.fields();
        let mut offset = 0;
        for run in [&header[..], &fields[..end], self.key, self.value[0], self.value[1]] {
            put(offset, run);
            offset += run.len();
        }
    }
}

/// The salt of checksums: differs from place to place, and from use to use of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt {
    /// Key of the region's use ([`salt_of`]).
    pub key: u64,
    /// Offset of the record in the region.
    pub offset: u32,
}

/// The key of a region's use, from the version of its layout and the tier's seed. In version 1, the sequence number itself.
pub fn salt_of(version: u16, sequence: u64, seed: u64) -> u64 {
    if version == VERSION_1 { sequence } else { hash_with_seed(&sequence.to_le_bytes(), seed) }
}

#[inline]
fn checksum(place: Salt, header: &[u8; HEADER_BYTES], content_hash: u64) -> u32 {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&place.key.to_le_bytes());
    bytes[8..12].copy_from_slice(&place.offset.to_le_bytes());
    bytes[12..24].copy_from_slice(&header[4..]);
    bytes[24..].copy_from_slice(&content_hash.to_le_bytes());
    hash(&bytes) as u32
}

#[inline]
fn fields_len(marks: u8) -> usize {
    let if_marked = |mark: u8, bytes: usize| if marks & mark == 0 { 0 } else { bytes };
    if_marked(mark::EXPIRY, 4) + if_marked(mark::FLAGS, 4) + if_marked(mark::CAS, 8)
}

/// A record's header with its optional fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    checksum: u32,
    /// Bytes of the value.
    pub value_length: u32,
    /// Counts from the base sequence of the region.
    pub sequence: u64,
    /// Bytes of the key.
    pub key_length: u8,
    /// Its [`mark`]s.
    pub marks: u8,
}

impl Header {
    /// Reads a header; `None` if fewer bytes are there.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let mut sequence = [0; 8];
        sequence[..6].copy_from_slice(&bytes[8..14]);
        Some(Self {
            checksum: u32_at(bytes, 0),
            value_length: u32_at(bytes, 4),
            sequence: u64::from_le_bytes(sequence),
            key_length: bytes[14],
            marks: bytes[15],
        })
    }

    /// Whether it has a mark.
    #[inline]
    pub fn is(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    /// When it was appended, as a stamp, given its region's base.
    #[inline]
    pub fn stamp(&self, base: u64) -> u64 {
        crate::format::stamp::stamp_after(base, self.sequence)
    }

    /// Where in the record the key begins.
    #[inline]
    pub fn key_start(&self) -> usize {
        HEADER_BYTES + fields_len(self.marks)
    }

    /// Where in the record the value begins.
    #[inline]
    pub fn value_start(&self) -> usize {
        self.key_start() + usize::from(self.key_length)
    }

    /// Bytes of the whole record.
    #[expect(clippy::len_without_is_empty, reason = "no record is empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.value_start() + self.value_length as usize
    }
}

/// A record in memory, possibly cut short.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Its header.
    pub header: Header,
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// The record at the start of `bytes`; `None` if not even its whole key is there.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let header = Header::read(bytes)?;
        (header.value_start() <= bytes.len()).then_some(Self { header, bytes })
    }

    /// Its key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        &self.bytes[self.header.key_start()..self.header.value_start()]
    }

    /// Whether its whole value is there.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.header.len() <= self.bytes.len()
    }

    /// The value. Only for a whole record.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        &self.bytes[self.header.value_start()..self.header.len()]
    }

    /// Whether the checksum matches. Only for a whole record.
    #[inline]
    pub fn is_sound(&self, place: Salt) -> bool {
        self.is_sound_with(self.content_hash(), place)
    }

    /// Hash of everything after the header. Only for a whole record.
    #[inline]
    pub fn content_hash(&self) -> u64 {
        hash(&self.bytes[HEADER_BYTES..self.header.len()])
    }

    /// Whether the checksum matches, given the hash of everything after the header.
    pub fn is_sound_with(&self, content: u64, place: Salt) -> bool {
        let header: &[u8; HEADER_BYTES] = self.bytes[..HEADER_BYTES].try_into().expect("a view has a header");
        checksum(place, header, content) == self.header.checksum
    }

    /// When the item expires.
    #[inline]
    pub fn expiry(&self) -> Expiry {
        let there = self.header.is(mark::EXPIRY);
        Expiry(if there { u32_at(self.bytes, HEADER_BYTES) } else { 0 })
    }

    /// The client's flags.
    #[inline]
    pub fn flags(&self) -> u32 {
        let offset = HEADER_BYTES + fields_len(self.header.marks & mark::EXPIRY);
        if self.header.is(mark::FLAGS) { u32_at(self.bytes, offset) } else { 0 }
    }

    /// The item's CAS value, given its region's base.
    #[inline]
    pub fn cas(&self, base: u64) -> u64 {
        let offset = HEADER_BYTES + fields_len(self.header.marks & (mark::EXPIRY | mark::FLAGS));
        if self.header.is(mark::CAS) { u64_at(self.bytes, offset) } else { self.header.stamp(base) }
    }

    /// What orders the write among all of its key, given its region's base.
    #[inline]
    pub fn version(&self, base: u64) -> Version {
        if self.header.is(mark::VERSION) { Version(self.cas(base)) } else { Version::ZERO }
    }

    /// The item's meta data, given its region's base and whether it was read since it was written. Its last access is for
    /// [`second_before`](crate::format::stamp::second_before).
    #[inline]
    pub fn meta(&self, base: u64, read_since: bool) -> ItemMeta {
        let expiry = self.expiry();
        ItemMeta {
            flags: self.flags(),
            cas: self.cas(base),
            unversioned: !self.header.is(mark::VERSION),
            expiry,
            expiry_before: expiry,
            last_access: crate::format::stamp::second_written(base, self.header.sequence),
            fetched: read_since || self.header.is(mark::FETCHED),
            stale: self.header.is(mark::STALE),
            token_sent: self.header.is(mark::TOKEN),
            won: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(draft: &Draft<'_>, place: Salt) -> Vec<u8> {
        let mut bytes = vec![0; draft.len()];
        draft.write(place, 77, draft.content_hash(), |offset, run| {
            bytes[offset..offset + run.len()].copy_from_slice(run);
        });
        bytes
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let place = Salt { key: 9, offset: 64 };
        for (expiry, flags, cas) in [(0, 0, None), (5, 0, None), (0, 6, Some(7)), (5, 6, Some(7)), (0, 0, Some(1))] {
            let draft = Draft {
                key: b"key",
                value: [b"val", b"ue"],
                marks: mark::STALE,
                expiry: Expiry(expiry),
                flags,
                cas,
                unversioned: cas.is_some(),
            };
            let bytes = written(&draft, place);
            let view = View::read(&bytes).unwrap();
            assert!(view.is_whole() && view.is_sound(place));
            assert_eq!((view.key(), view.value()), (&b"key"[..], &b"value"[..]));
            assert_eq!((view.expiry(), view.flags(), view.cas(1000)), (Expiry(expiry), flags, cas.unwrap_or(1077)));
            assert!(view.meta(1000, false).stale);
        }
    }

    #[test]
    fn the_key_of_a_use_depends_on_the_seed_but_in_version_1() {
        assert_eq!(salt_of(VERSION_1, 7, 1), 7);
        let keys = [salt_of(2, 7, 1), salt_of(2, 7, 2), salt_of(2, 8, 1), 7];
        assert!((0..4).all(|one| (0..one).all(|other| keys[one] != keys[other])));
        assert_eq!(keys[0], 0xa409ca3d6061b510, "what is on disk depends on it");
    }

    #[test]
    fn a_flipped_bit_or_another_place_does_not_pass() {
        let place = Salt { key: 9, offset: 64 };
        let draft = Draft {
            key: b"key",
            value: [b"value", b""],
            marks: 0,
            expiry: Expiry(5),
            flags: 6,
            cas: None,
            unversioned: false,
        };
        let mut bytes = written(&draft, place);
        for elsewhere in [Salt { key: 8, ..place }, Salt { offset: 65, ..place }] {
            assert!(!View::read(&bytes).unwrap().is_sound(elsewhere));
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let passes = View::read(&bytes).is_some_and(|view| view.is_whole() && view.is_sound(place));
            assert!(!passes, "bit {bit} does not matter");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
