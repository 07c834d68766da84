//! What lies under a key in the library: a header of fixed layout, then the value. No checksum: the libraries have theirs.
//!
//! ```text
//!  0         1       2          6          10           14           22            30 = HEADER_BYTES
//!  +---------+-------+----------+----------+------------+------------+-------------+----------
//!  | version | marks | flags    | expiry   | last write | sequence   | CAS value   | value ...
//!  |   u8    |  u8   |  u32     |  u32     |   u32      |   u64      |  u64        |
//!  +---------+-------+----------+----------+------------+------------+-------------+----------
//! ```
//!
//! Numbers are little-endian. The sequence number orders versions and says what a flush covers; the CAS value is the same
//! number unless a client chose its own. Reads write nothing, so *last write* is all that is known of the last access.

use moneta_store::{Expiry, ItemMeta};

/// Version of this layout, the first byte of every record.
pub const VERSION: u8 = 1;

/// Bytes before the value.
pub const HEADER_BYTES: usize = 30;

const _: () = assert!(HEADER_BYTES == 1 + 1 + 3 * size_of::<u32>() + 2 * size_of::<u64>());

const FETCHED: u8 = 1;
const STALE: u8 = 2;
const TOKEN_SENT: u8 = 4;
/// The CAS value is a version; in records of before there were any it is not.
const VERSIONED: u8 = 8;

/// Everything of a record but its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The item without key and value; `expiry_before` and `won` are not kept.
    pub meta: ItemMeta,
    /// Grows from one version of a key to the next, and over restarts.
    pub sequence: u64,
}

impl Header {
    /// Writes a record to `into`, which is emptied first; `value` appends the value.
    pub fn write(&self, into: &mut Vec<u8>, value: impl FnOnce(&mut Vec<u8>)) {
        let ItemMeta { flags, cas, unversioned, expiry, last_access, fetched, stale, token_sent, .. } = self.meta;
        let mark = |set: bool, mark: u8| if set { mark } else { 0 };
        let marks =
            mark(fetched, FETCHED) | mark(stale, STALE) | mark(token_sent, TOKEN_SENT) | mark(!unversioned, VERSIONED);
        into.clear();
        into.extend_from_slice(&[VERSION, marks]);
        into.extend_from_slice(&flags.to_le_bytes());
        into.extend_from_slice(&expiry.0.to_le_bytes());
        into.extend_from_slice(&last_access.to_le_bytes());
        into.extend_from_slice(&self.sequence.to_le_bytes());
        into.extend_from_slice(&cas.to_le_bytes());
        value(into);
    }

    /// Takes a record apart; `None` if it is not one of this layout.
    pub fn read(record: &[u8]) -> Option<(Self, &[u8])> {
        let (header, value) = record.split_first_chunk::<HEADER_BYTES>()?;
        if header[0] != VERSION {
            return None;
        }
        let marks = header[1];
        let short = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let meta = ItemMeta {
            flags: short(2),
            cas: long(22),
            unversioned: marks & VERSIONED == 0,
            expiry: Expiry(short(6)),
            expiry_before: Expiry(short(6)),
            last_access: short(10),
            fetched: marks & FETCHED != 0,
            stale: marks & STALE != 0,
            token_sent: marks & TOKEN_SENT != 0,
            won: false,
        };
        Some((Self { meta, sequence: long(14) }, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let meta = ItemMeta {
            flags: 0x0102_0304,
            cas: u64::MAX - 1,
            unversioned: true,
            expiry: Expiry(77),
            expiry_before: Expiry(77),
            last_access: 66,
            fetched: true,
            stale: false,
            token_sent: true,
            won: false,
        };
        Header { meta, sequence: 1 << 40 }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut record = vec![9; 100];
        header().write(&mut record, |into| into.extend_from_slice(b"value"));
        assert_eq!(Header::read(&record), Some((header(), &b"value"[..])));
    }

    /// The first version's bytes, as they lie on devices.
    #[test]
    fn the_layout_is_pinned() {
        let mut record = Vec::new();
        header().write(&mut record, |_| ());
        let expected = [
            1, 5, 4, 3, 2, 1, 77, 0, 0, 0, 66, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 254, 255, 255, 255, 255, 255, 255, 255,
        ];
        assert_eq!(record, expected);
    }

    #[test]
    fn what_is_no_record_is_not_read() {
        let mut record = Vec::new();
        header().write(&mut record, |_| ());
        assert_eq!(Header::read(&record[..HEADER_BYTES - 1]), None);
        record[0] = VERSION + 1;
        assert_eq!(Header::read(&record), None);
    }
}
