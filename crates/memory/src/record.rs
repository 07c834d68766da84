//! The bytes of a record in a log.
//!
//! ```text
//!   0       1       2               4                               8
//! +-------+-------+---------------+-------------------------------+------------------+
//! | marks | key   | value length  | last access (Unix seconds)    | CAS: 2 to 8 B    |
//! |       | length| 16 bit        | 32 bit                        | as marks say     |
//! +-------+-------+---------------+-------------------------------+------------------+
//! | expiry 32 bit, if marked | flags 32 bit, if marked | split: length 32 bit, first |
//! |                          |                         | 16 bit, next 64 bit         |
//! +--------------------------+-------------------------+-----------------------------+
//! | key | value, or its first part | padding to 4 bytes |
//! +-----+--------------------------+--------------------+
//! ```
//!
//! An item of a plain `set` costs 10 bytes of header where CAS values are counted, 12 where they are versions. The CAS value is
//! kept in one of three forms:
//!
//! | form  | counted | version |
//! |-------|---------|---------|
//! | plain | 16 bits: distance from its segment's base | 32 bits: the same, of what was made here within four minutes from the base |
//! | short | 32 bits: the value | 48 bits: distance from 4 hours before the base, up to 13 hours after it |
//! | long  | 64 bits: the value | 64 bits: the value |
//!
//! A key that is overwritten gets at least the short form, in which later values fit, so that it can be rewritten where it lies.
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
    /// Two bits: the form of the CAS field. None of them: plain. Both: 64 bits that a client chose, where others are versions.
    pub(crate) const CAS: u8 = 32 | 64;
    /// The short form.
    pub(crate) const CAS_SHORT: u8 = 32;
    /// The long form.
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
pub(crate) enum CasBase {
    /// CAS values are versions.
    Versions {
        /// Time and counter of the newest version when the segment was opened.
        local: u64,
        /// Who makes versions here.
        origin: Origin,
    },
    /// CAS values are counted: the newest when the segment was opened.
    Counted(u64),
}

/// Bytes of a CAS field by the two bits of its form, a byte for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Widths(u32);

impl Widths {
    const VERSIONS: Self = Self(u32::from_le_bytes([4, 6, 8, 8]));
    const COUNTED: Self = Self(u32::from_le_bytes([2, 4, 8, 8]));

    #[inline]
    pub(crate) fn of(self, marks: u8) -> usize {
        const FORM_SHIFT: u32 = mark::CAS.trailing_zeros();
        (self.0 >> (u32::from((marks & mark::CAS) >> FORM_SHIFT) * u8::BITS)) as u8 as usize
    }
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
    /// How wide the CAS fields of records are that count from such a base.
    #[inline]
    pub(crate) fn widths(self) -> Widths {
        match self {
            Self::Versions { .. } => Widths::VERSIONS,
            Self::Counted(_) => Widths::COUNTED,
        }
    }

    /// The form and the field of a CAS value; `lasting`: in a form in which a later one fits, too.
    #[inline]
    pub(crate) fn encode(self, stamp: Stamp, lasting: bool) -> (u8, u64) {
        if let (Self::Versions { .. }, Stamp::Chosen(cas)) = (self, stamp) {
            return (mark::CAS, cas);
        }
        if !lasting && let Some(field) = self.field(0, stamp) {
            return (0, field);
        }
        match self.field(mark::CAS_SHORT, stamp) {
            Some(field) => (mark::CAS_SHORT, field),
            None => (mark::CAS_LONG, stamp.cas()),
        }
    }

    /// The form and the field of a CAS value that mean the same in any segment.
    #[inline]
    pub(crate) fn encode_full(self, stamp: Stamp) -> (u8, u64) {
        match (self, stamp) {
            (Self::Versions { .. }, Stamp::Chosen(cas)) => (mark::CAS, cas),
            _ => (mark::CAS_LONG, stamp.cas()),
        }
    }

    /// Form and field of another CAS value in the room of a form, if it can hold it.
    #[inline]
    pub(crate) fn refit(self, form: u8, stamp: Stamp) -> Option<(u8, u64)> {
        if form & mark::CAS_LONG != 0 {
            return Some(self.encode_full(stamp));
        }
        self.field(form, stamp).map(|field| (form & mark::CAS, field))
    }

    /// The field of a CAS value in the plain or the short form, if that can hold it.
    #[inline]
    fn field(self, form: u8, stamp: Stamp) -> Option<u64> {
        let is_plain = form & mark::CAS == 0;
        match (self, stamp) {
            (Self::Counted(base), _) if is_plain => {
                stamp.cas().checked_sub(base).filter(|distance| *distance <= u64::from(u16::MAX))
            }
            (Self::Counted(_), _) => Some(stamp.cas()).filter(|cas| *cas <= u64::from(u32::MAX)),
            (Self::Versions { local, origin }, Stamp::Version(version)) if is_plain => {
                let distance = version.local().checked_sub(local)?;
                (version.origin() == origin && distance <= u64::from(u32::MAX)).then_some(distance)
            }
            (Self::Versions { local, .. }, Stamp::Version(version)) => {
                version.0.checked_sub(short_base(local)).filter(|distance| *distance < CAS_SHORT_END)
            }
            (Self::Versions { .. }, Stamp::Chosen(_)) => None,
        }
    }

    /// The CAS value that a header's field means.
    #[inline]
    pub(crate) fn decode(self, header: &Header) -> u64 {
        match (header.marks & mark::CAS, self) {
            (0, Self::Versions { local, origin }) => Version::new(local + header.cas_field, origin).0,
            (0, Self::Counted(base)) => base + header.cas_field,
            (mark::CAS_SHORT, Self::Versions { local, .. }) => short_base(local) + header.cas_field,
            _ => header.cas_field,
        }
    }
}

/// What 48-bit distances count from.
fn short_base(local: u64) -> u64 {
    (local << ORIGIN_BITS).saturating_sub(CAS_SHORT_BACK)
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
    /// Bytes of that field.
    pub(crate) cas_bytes: u8,
    /// When it dies.
    pub(crate) expiry: Expiry,
    /// Client flags.
    pub(crate) flags: u32,
    /// Whether the value goes on in fragments.
    pub(crate) split: bool,
}

/// Bytes at a place, by one comparison with the length for all of them.
#[inline]
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the range has as many")
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, at))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

/// Rounds up to whole units.
pub(crate) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(UNIT)
}

/// Bytes before the key.
#[inline]
fn header_bytes(marks: u8, cas_bytes: usize, split: bool) -> usize {
    FIXED_BYTES
        + cas_bytes
        + if marks & mark::EXPIRY != 0 { 4 } else { 0 }
        + if marks & mark::FLAGS != 0 { 4 } else { 0 }
        + if split { SPLIT_BYTES } else { 0 }
}

/// Bytes before the key of the record that begins with `bytes`, one unit.
#[inline]
pub(crate) fn header_length(bytes: &[u8], widths: Widths) -> usize {
    header_bytes(bytes[0], widths.of(bytes[0]), u16_at(bytes, 2) == SPLIT)
}

/// Bytes of the header of the record without a key that begins with `bytes`, one unit.
pub(crate) fn fragment_header_length(bytes: &[u8]) -> usize {
    if bytes[0] & mark::FRAGMENT != 0 { FRAGMENT_HEADER_BYTES } else { UNIT }
}

impl Header {
    /// Decodes the header that `bytes` begin with.
    #[inline]
    pub(crate) fn read(bytes: &[u8], widths: Widths) -> Self {
        let [marks, key_length, low, high, last_access @ ..] = bytes_at::<FIXED_BYTES>(bytes, 0);
        let length = u16::from_le_bytes([low, high]);
        let mut at = FIXED_BYTES;
        let cas_bytes = widths.of(marks);
        let cas_field = match cas_bytes {
            2 => u64::from(u16_at(bytes, at)),
            4 => u64::from(u32_at(bytes, at)),
            6 => u64::from(u32_at(bytes, at)) | u64::from(u16_at(bytes, at + 4)) << 32,
            _ => u64_at(bytes, at),
        };
        at += cas_bytes;
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
        let split = length == SPLIT;
        let (value_length, first_length, next) = if split {
            (u32_at(bytes, at), u32::from(u16_at(bytes, at + 4)), u64_at(bytes, at + 6))
        } else {
            (u32::from(length), u32::from(length), NO_FRAGMENT)
        };
        Self {
            marks,
            key_length,
            value_length,
            first_length,
            next,
            last_access: u32::from_le_bytes(last_access),
            cas_field,
            cas_bytes: cas_bytes as u8,
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
        let cas = usize::from(self.cas_bytes);
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

    /// Whether a client chose the CAS value, where others are versions: the item counts as version 0.
    #[inline]
    pub(crate) fn is_unversioned(&self) -> bool {
        self.is(mark::CAS)
    }

    /// Bytes before the key.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        header_bytes(self.marks, self.cas_bytes.into(), self.split)
    }

    /// Bytes before the key, were its value split.
    #[inline]
    pub(crate) fn bytes_if_split(&self) -> usize {
        header_bytes(self.marks, self.cas_bytes.into(), true)
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
const _: () = assert!(FIXED_BYTES + 2 == 10);
const _: () = assert!(SPLIT_BYTES == 4 + 2 + 8);
const _: () = assert!(FRAGMENT_HEADER_BYTES == 4 + 8 + 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_in_every_form() {
        let all = (0..=255u8).flat_map(|marks| [(marks, Widths::VERSIONS), (marks, Widths::COUNTED)]);
        for (marks, widths) in all {
            for split in [false, true] {
                let header = Header {
                    marks,
                    key_length: 30,
                    value_length: if split { 1_000_000 } else { 100 },
                    first_length: if split { 40_000 } else { 100 },
                    next: if split { 77 } else { NO_FRAGMENT },
                    last_access: 1_700_000_000,
                    cas_field: 0xbeef,
                    cas_bytes: widths.of(marks) as u8,
                    expiry: if marks & mark::EXPIRY != 0 { Expiry(5) } else { Expiry::NEVER },
                    flags: if marks & mark::FLAGS != 0 { 9 } else { 0 },
                    split,
                };
                let mut bytes = vec![0; 128];
                header.write(&mut bytes);
                assert_eq!(Header::read(&bytes, widths), header);
                assert_eq!(header_length(&bytes[..UNIT], widths), header.bytes());
            }
        }
    }

    #[test]
    fn a_plain_item_costs_ten_or_twelve_bytes_of_header() {
        let bytes = |widths: Widths| header_bytes(0, widths.of(0), false);
        assert_eq!((bytes(Widths::COUNTED), bytes(Widths::VERSIONS)), (10, 12));
    }

    #[test]
    fn a_counted_value_reads_back_in_the_shortest_form_that_holds_it() {
        let base = CasBase::Counted(1_000_000);
        let cases = [
            (1_000_000, 0),
            (1_065_535, 0),
            (1_065_536, mark::CAS_SHORT),
            (999_999, mark::CAS_SHORT),
            (u64::from(u32::MAX), mark::CAS_SHORT),
            (1 << 32, mark::CAS_LONG),
            (u64::MAX, mark::CAS_LONG),
        ];
        for (cas, expected) in cases {
            for stamp in [Stamp::Chosen(cas), Stamp::Version(Version(cas))] {
                let (form, cas_field) = base.encode(stamp, false);
                assert_eq!(form, expected, "{cas}");
                let (lasting, lasting_field) = base.encode(stamp, true);
                assert_eq!(lasting, if expected == 0 { mark::CAS_SHORT } else { expected }, "{cas}");
                for (marks, cas_field) in [(form, cas_field), (lasting, lasting_field)] {
                    let cas_bytes = Widths::COUNTED.of(marks) as u8;
                    let header = Header { marks, cas_field, cas_bytes, ..HEADER };
                    let mut bytes = [0; HEADER_MAX];
                    header.write(&mut bytes);
                    assert_eq!(base.decode(&Header::read(&bytes, base.widths())), cas);
                }
            }
        }
    }

    #[test]
    fn a_cas_value_reads_back_in_the_shortest_form_that_holds_it() {
        let (here, elsewhere) = (Origin::new(1, 2), Origin::new(1, 3));
        let local = 3_500_000_000_000_000_u64;
        let base = CasBase::Versions { local, origin: here };
        let at = |distance: i64, origin| Stamp::Version(Version::new(local.wrapping_add_signed(distance), origin));
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
        cas_bytes: 4,
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
