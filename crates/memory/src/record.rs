//! The bytes of a record in a log.
//!
//! ```text
//!   0       1       2               4                               8
//! +-------+-------+---------------+-------------------------------+------------------+
//! | marks | key   | value length  | last access (Unix seconds)    | CAS: 4, 6 or 8 B |
//! |       | length| 16 bit        | 32 bit                        | as marks say     |
//! +-------+-------+---------------+-------------------------------+------------------+
//! | expiry 32 bit, if marked | flags 32 bit, if marked | split: length 32 bit, first |
//! |                          |                         | 16 bit, next 64 bit         |
//! +--------------------------+-------------------------+-----------------------------+
//! | key | value, or its first part | padding to 4 bytes |
//! +-----+--------------------------+--------------------+
//! ```
//!
//! An item of a plain `set` costs 12 bytes of header. Its CAS value is its version, kept as a distance from its segment's
//! base: in 32 bits if it was made here within four minutes from the base; else in 48 bits, which reach from 4 hours before
//! the base to 13 hours after it, so that a key that is overwritten can be rewritten where it lies; else in full.
//!
//! A record that does not fit the rest of its segment is split: its value goes on in *fragments*, each in the log too.
//! A key length of 0 is no item: a fragment, or filler where a record shrank in place.
//!
//! ```text
//!   0       1       2               4               12              20
//! +-------+-------+---------------+---------------+---------------+---------+
//! | marks | 0     | length 16 bit | next 64 bit   | hash of owner | bytes   |
//! +-------+-------+---------------+---------------+---------------+---------+
//! ```

use moneta_store::{Expiry, ItemMeta, Origin, Version};

/// Records start at multiples of this.
pub(crate) const UNIT: usize = 4;
/// Value length field of a split record.
const SPLIT: u16 = u16::MAX;
/// Bytes before the first field that may be missing.
const FIXED_BYTES: usize = 8;
/// Bytes that a split adds to a header.
const SPLIT_BYTES: usize = 14;
/// Bytes of a fragment's header.
pub(crate) const FRAGMENT_HEADER_BYTES: usize = 20;
/// End of a chain of fragments.
pub(crate) const NO_FRAGMENT: u64 = 0;
/// Bytes that a header takes at most.
pub(crate) const HEADER_MAX: usize = 40;
/// Values larger than this, in bytes, are never copied while a shard is locked; but for `incr` and `decr` of one, which no
/// client has a use for.
pub(crate) const LARGE: usize = 64 << 10;

/// Bits of the first byte.
pub(crate) mod mark {
    /// Was read since it was stored.
    pub(crate) const FETCHED: u8 = 1;
    /// Invalidated; someone is to recache it.
    pub(crate) const STALE: u8 = 2;
    /// Someone has won the recache.
    pub(crate) const TOKEN: u8 = 4;
    /// Has an expiry field.
    pub(crate) const EXPIRY: u8 = 8;
    /// Has a flags field.
    pub(crate) const FLAGS: u8 = 16;
    /// Two bits: the form of the CAS field. None of them: a 32-bit distance. Both: 64 bits that a client chose.
    pub(crate) const CAS: u8 = 32 | 64;
    /// A 48-bit distance.
    pub(crate) const CAS_SHORT: u8 = 32;
    /// A version in 64 bits.
    pub(crate) const CAS_LONG: u8 = 64;
    /// Not the newest version of anything any more.
    pub(crate) const DEAD: u8 = 128;
    /// In a record without key: a fragment, else filler.
    pub(crate) const FRAGMENT: u8 = 1;
}

/// First distance that does not fit 48 bits.
const CAS_SHORT_END: u64 = 1 << 48;
/// How far before a segment's base 48-bit distances begin.
const CAS_SHORT_BACK: u64 = 1 << 46;
/// Bits of a version that say where it was made.
const ORIGIN_BITS: u32 = 8;

/// What makes a record's CAS value of the field in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CasBase {
    /// Time and counter of the newest version when the segment was opened.
    pub(crate) local: u64,
    /// Who makes versions here.
    pub(crate) origin: Origin,
}

/// An item's CAS value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// It is a version.
    Version(Version),
    /// A client chose it, or it is older than versions are.
    Chosen(u64),
}

impl Stamp {
    /// The CAS value of an item as another store shows it; `None` if this one is to make it.
    pub(crate) fn of(meta: &ItemMeta) -> Option<Self> {
        match meta {
            ItemMeta { cas: 0, .. } => None,
            ItemMeta { unversioned: true, cas, .. } => Some(Self::Chosen(*cas)),
            ItemMeta { cas, .. } => Some(Self::Version(Version(*cas))),
        }
    }

    /// As clients see it.
    #[inline]
    pub(crate) fn cas(self) -> u64 {
        match self {
            Self::Version(version) => version.0,
            Self::Chosen(cas) => cas,
        }
    }
}

impl CasBase {
    fn short(self) -> u64 {
        (self.local << ORIGIN_BITS).saturating_sub(CAS_SHORT_BACK)
    }

    /// The form and the field of a CAS value; `lasting`: in a form in which a later version fits, too.
    #[inline]
    pub(crate) fn encode(self, stamp: Stamp, lasting: bool) -> (u8, u64) {
        let version = match stamp {
            Stamp::Chosen(cas) => return (mark::CAS, cas),
            Stamp::Version(version) => version,
        };
        if !lasting && let Some(field) = self.field(0, stamp) {
            return (0, field);
        }
        match self.field(mark::CAS_SHORT, stamp) {
            Some(field) => (mark::CAS_SHORT, field),
            None => (mark::CAS_LONG, version.0),
        }
    }

    /// Form and field of another CAS value in the room of a form, if it can hold it.
    #[inline]
    pub(crate) fn refit(self, form: u8, stamp: Stamp) -> Option<(u8, u64)> {
        match stamp {
            Stamp::Version(version) if form & mark::CAS_LONG != 0 => Some((mark::CAS_LONG, version.0)),
            Stamp::Chosen(cas) if form & mark::CAS_LONG != 0 => Some((mark::CAS, cas)),
            stamp => self.field(form, stamp).map(|field| (form & mark::CAS, field)),
        }
    }

    /// The field of a CAS value in this form, if it can hold it.
    #[inline]
    fn field(self, form: u8, stamp: Stamp) -> Option<u64> {
        match (form & mark::CAS, stamp) {
            (0, Stamp::Version(version)) => {
                let distance = version.local().checked_sub(self.local)?;
                (version.origin() == self.origin && distance <= u64::from(u32::MAX)).then_some(distance)
            }
            (mark::CAS_SHORT, Stamp::Version(version)) => {
                version.0.checked_sub(self.short()).filter(|distance| *distance < CAS_SHORT_END)
            }
            (mark::CAS_LONG, Stamp::Version(version)) => Some(version.0),
            (mark::CAS, Stamp::Chosen(cas)) => Some(cas),
            _ => None,
        }
    }

    /// The CAS value that a header's field means.
    #[inline]
    pub(crate) fn decode(self, header: &Header) -> u64 {
        match header.marks & mark::CAS {
            0 => Version::new(self.local + header.cas_field, self.origin).0,
            mark::CAS_SHORT => self.short() + header.cas_field,
            _ => header.cas_field,
        }
    }
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// See [`mark`].
    pub(crate) marks: u8,
    /// Bytes of the key.
    pub(crate) key_length: u8,
    /// Bytes of the whole value.
    pub(crate) value_length: u32,
    /// Bytes of it in this record.
    pub(crate) first_length: u32,
    /// Where the value goes on, if `first_length` is not all.
    pub(crate) next: u64,
    /// Unix second.
    pub(crate) last_access: u32,
    /// The CAS field as it stands there; see [`CasBase`].
    pub(crate) cas_field: u64,
    /// When it dies.
    pub(crate) expiry: Expiry,
    /// Client flags.
    pub(crate) flags: u32,
    /// Whether the value goes on in fragments.
    pub(crate) split: bool,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Rounds up to whole units.
pub(crate) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(UNIT)
}

#[inline]
fn cas_bytes(marks: u8) -> usize {
    match marks & mark::CAS {
        0 => 4,
        mark::CAS_SHORT => 6,
        _ => 8,
    }
}

/// Bytes before the key.
#[inline]
pub(crate) fn header_bytes(marks: u8, split: bool) -> usize {
    FIXED_BYTES
        + cas_bytes(marks)
        + if marks & mark::EXPIRY != 0 { 4 } else { 0 }
        + if marks & mark::FLAGS != 0 { 4 } else { 0 }
        + if split { SPLIT_BYTES } else { 0 }
}

/// Bytes before the key of the record that begins with `bytes`, one unit.
#[inline]
pub(crate) fn header_length(bytes: &[u8]) -> usize {
    header_bytes(bytes[0], u16_at(bytes, 2) == SPLIT)
}

/// Bytes of the header of the record without a key that begins with `bytes`, one unit.
pub(crate) fn fragment_header_length(bytes: &[u8]) -> usize {
    if bytes[0] & mark::FRAGMENT != 0 { FRAGMENT_HEADER_BYTES } else { UNIT }
}

impl Header {
    /// Decodes the header that `bytes` begin with.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let marks = bytes[0];
        let mut at = FIXED_BYTES;
        let cas_field = match marks & mark::CAS {
            0 => u64::from(u32_at(bytes, at)),
            mark::CAS_SHORT => u64::from(u32_at(bytes, at)) | u64::from(u16_at(bytes, at + 4)) << 32,
            _ => u64_at(bytes, at),
        };
        at += cas_bytes(marks);
        let mut expiry = Expiry::NEVER;
        if marks & mark::EXPIRY != 0 {
            expiry = Expiry(u32_at(bytes, at));
            at += 4;
        }
        let mut flags = 0;
        if marks & mark::FLAGS != 0 {
            flags = u32_at(bytes, at);
            at += 4;
        }
        let length = u16_at(bytes, 2);
        let split = length == SPLIT;
        let (value_length, first_length, next) = if split {
            (u32_at(bytes, at), u32::from(u16_at(bytes, at + 4)), u64_at(bytes, at + 6))
        } else {
            (u32::from(length), u32::from(length), NO_FRAGMENT)
        };
        Self {
            marks,
            key_length: bytes[1],
            value_length,
            first_length,
            next,
            last_access: u32_at(bytes, 4),
            cas_field,
            expiry,
            flags,
            split,
        }
    }

    /// Writes the header to the front of `bytes`.
    #[inline]
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        bytes[0] = self.marks;
        bytes[1] = self.key_length;
        let length = if self.split { SPLIT } else { self.value_length as u16 };
        bytes[2..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.last_access.to_le_bytes());
        let mut at = FIXED_BYTES;
        let cas = cas_bytes(self.marks);
        bytes[at..at + cas].copy_from_slice(&self.cas_field.to_le_bytes()[..cas]);
        at += cas;
        if self.marks & mark::EXPIRY != 0 {
            bytes[at..at + 4].copy_from_slice(&self.expiry.0.to_le_bytes());
            at += 4;
        }
        if self.marks & mark::FLAGS != 0 {
            bytes[at..at + 4].copy_from_slice(&self.flags.to_le_bytes());
            at += 4;
        }
        if self.split {
            bytes[at..at + 4].copy_from_slice(&self.value_length.to_le_bytes());
            bytes[at + 4..at + 6].copy_from_slice(&(self.first_length as u16).to_le_bytes());
            bytes[at + 6..at + 14].copy_from_slice(&self.next.to_le_bytes());
        }
    }

    /// Whether all of `marks` are set.
    #[inline]
    pub(crate) fn is(&self, marks: u8) -> bool {
        self.marks & marks == marks
    }

    /// Sets or clears marks.
    pub(crate) fn set(&mut self, marks: u8, on: bool) {
        self.marks = if on { self.marks | marks } else { self.marks & !marks };
    }

    /// Whether a client chose the CAS value: the item counts as version 0.
    #[inline]
    pub(crate) fn is_unversioned(&self) -> bool {
        self.is(mark::CAS)
    }

    /// Bytes before the key.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        header_bytes(self.marks, self.split)
    }

    /// Bytes before the value.
    #[inline]
    pub(crate) fn value_start(&self) -> usize {
        self.bytes() + self.key_length as usize
    }

    /// Bytes of the record in its segment, padding included, fragments not.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        padded(self.value_start() + self.first_length as usize)
    }
}

/// A record without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// [`mark::FRAGMENT`] or filler, and [`mark::DEAD`].
    pub(crate) marks: u8,
    /// Payload bytes of a fragment; all units of a filler.
    pub(crate) length: u16,
    /// Where the value goes on.
    pub(crate) next: u64,
    /// Hash of the key it belongs to.
    pub(crate) hash: u64,
}

impl Fragment {
    /// Decodes the record without a key that `bytes` begin with.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let marks = bytes[0];
        let (next, hash) =
            if marks & mark::FRAGMENT != 0 { (u64_at(bytes, 4), u64_at(bytes, 12)) } else { (NO_FRAGMENT, 0) };
        Self { marks, length: u16_at(bytes, 2), next, hash }
    }

    /// Writes a fragment's header.
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        bytes[0] = self.marks;
        bytes[1] = 0;
        bytes[2..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.next.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.hash.to_le_bytes());
    }

    /// Writes filler over `bytes`, whole units of it.
    pub(crate) fn fill(bytes: &mut [u8]) {
        debug_assert!(bytes.len() >= UNIT && bytes.len().is_multiple_of(UNIT));
        bytes[0] = mark::DEAD;
        bytes[1] = 0;
        let units = (bytes.len() / UNIT) as u16;
        bytes[2..4].copy_from_slice(&units.to_le_bytes());
    }

    /// Bytes in the segment.
    pub(crate) fn size(&self) -> usize {
        if self.marks & mark::FRAGMENT != 0 {
            padded(FRAGMENT_HEADER_BYTES + self.length as usize)
        } else {
            self.length as usize * UNIT
        }
    }
}

/// Whether the record that `bytes` begin with has no key.
pub(crate) fn is_fragment(bytes: &[u8]) -> bool {
    bytes[1] == 0
}

// The layout above, pinned.
const _: () = assert!(FIXED_BYTES + 4 == 12);
const _: () = assert!(SPLIT_BYTES == 4 + 2 + 8);
const _: () = assert!(FRAGMENT_HEADER_BYTES == 4 + 8 + 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_in_every_form() {
        for marks in 0..=255u8 {
            for split in [false, true] {
                let header = Header {
                    marks,
                    key_length: 30,
                    value_length: if split { 1_000_000 } else { 100 },
                    first_length: if split { 40_000 } else { 100 },
                    next: if split { 77 } else { NO_FRAGMENT },
                    last_access: 1_700_000_000,
                    cas_field: 0xbeef,
                    expiry: if marks & mark::EXPIRY != 0 { Expiry(5) } else { Expiry::NEVER },
                    flags: if marks & mark::FLAGS != 0 { 9 } else { 0 },
                    split,
                };
                let mut bytes = vec![0; 128];
                header.write(&mut bytes);
                assert_eq!(Header::read(&bytes), header);
                assert_eq!(header_length(&bytes[..UNIT]), header.bytes());
            }
        }
    }

    #[test]
    fn a_plain_item_costs_twelve_bytes_of_header() {
        assert_eq!(header_bytes(0, false), 12);
    }

    #[test]
    fn a_cas_value_reads_back_in_the_shortest_form_that_holds_it() {
        let (here, elsewhere) = (Origin::new(1, 2), Origin::new(1, 3));
        let base = CasBase { local: 3_500_000_000_000_000, origin: here };
        let at = |distance: i64, origin| Stamp::Version(Version::new(base.local.wrapping_add_signed(distance), origin));
        let cases = [
            (at(0, here), 0),
            (at(u32::MAX.into(), here), 0),
            (at(-1, here), mark::CAS_SHORT),
            (at(0, elsewhere), mark::CAS_SHORT),
            (at(1 << 32, here), mark::CAS_SHORT),
            (at(-(1 << 38), here), mark::CAS_SHORT),
            (at(-(1 << 39), here), mark::CAS_LONG),
            (at(1 << 40, here), mark::CAS_LONG),
            (Stamp::Chosen(5), mark::CAS),
            (Stamp::Chosen(u64::MAX), mark::CAS),
        ];
        for (stamp, expected) in cases {
            for lasting in [false, true] {
                let (form, cas_field) = base.encode(stamp, lasting);
                assert_eq!(form, if lasting && expected == 0 { mark::CAS_SHORT } else { expected }, "{stamp:?}");
                let header = Header { marks: form, cas_field, ..HEADER };
                assert_eq!(base.decode(&header), stamp.cas(), "{stamp:?}");
                assert_eq!(header.is_unversioned(), matches!(stamp, Stamp::Chosen(_)));
            }
        }
    }

    const HEADER: Header = Header {
        marks: 0,
        key_length: 1,
        value_length: 0,
        first_length: 0,
        next: NO_FRAGMENT,
        last_access: 0,
        cas_field: 0,
        expiry: Expiry::NEVER,
        flags: 0,
        split: false,
    };

    #[test]
    fn fragments_and_filler_read_back() {
        let fragment = Fragment { marks: mark::FRAGMENT, length: 65_000, next: 1 << 34, hash: u64::MAX };
        let mut bytes = [0; 32];
        fragment.write(&mut bytes);
        assert!(is_fragment(&bytes));
        assert_eq!(Fragment::read(&bytes[..fragment_header_length(&bytes[..UNIT])]), fragment);
        Fragment::fill(&mut bytes[..8]);
        assert_eq!(Fragment::read(&bytes[..fragment_header_length(&bytes[..UNIT])]).size(), 8);
    }
}
