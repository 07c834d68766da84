//! Entries of the store below: what is known of an item, under the item's own key, and the pieces of a long value.
//!
//! All numbers are little-endian. A *head*, under the item's key:
//!
//! ```text
//!  0         2         3         4                   8                                       16
//!  ┌─────────┬─────────┬─────────┬───────────────────┬───────────────────────────────────────┐
//!  │ "Mh"    │ version │ marks   │ client flags      │ CAS value                             │
//!  ├─────────┴─────────┴─────────┴───────────────────┼───────────────────────────────────────┤ 16
//!  │ epoch                                           │ token of the pieces                   │
//!  ├─────────────────────────────┬───────────────────┼───────────────────────────────────────┤ 32
//!  │ expiry (Unix second; 0: no) │ last access       │ bytes of the value                    │
//!  ├─────────────────────────────┼───────────────────┼───────────────────────────────────────┤ 48
//!  │ bytes of a piece, or 0      │ 0                 │ check                                 │
//!  ├─────────────────────────────┴───────────────────┴───────────────────────────────────────┤ 64
//!  │ the value, where bytes of a piece is 0; else nothing                                    │
//!  └─────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A *piece*, under `moneta:`, the key's XXH3-64 and the token in 16 hexadecimal digits each, `:` and its number in hexadecimal:
//!
//! ```text
//!  0         2        3       4              8              16             24
//!  ┌─────────┬────────┬───────┬──────────────┬──────────────┬──────────────┬─────────┐
//!  │ "Mp"    │ version│ zero  │ number       │ token        │ check        │ data …  │
//!  └─────────┴────────┴───────┴──────────────┴──────────────┴──────────────┴─────────┘
//! ```
//!
//! A check is XXH3-64 of everything else in the entry, chained with that of the item's key. So an entry that another key, kind
//! or writer left under a name is known as foreign whatever the name, and a value is of one write or is not.

use moneta_store::{Expiry, ItemMeta};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes before the value in a head.
pub(super) const HEAD_BYTES: usize = 64;
/// Bytes before the data in a piece.
pub(super) const PIECE_HEADER_BYTES: usize = 24;
/// What names of pieces begin with.
const NAME_PREFIX: &str = "moneta:";

const HEAD_MAGIC: [u8; 2] = *b"Mh";
const PIECE_MAGIC: [u8; 2] = *b"Mp";
/// Version of both layouts.
const VERSION: u8 = 1;

/// Where the check of a head lies, after all that is fixed.
const HEAD_CHECK: usize = 56;
/// Where the check of a piece lies.
const PIECE_CHECK: usize = 16;
const _: () = assert!(HEAD_CHECK + size_of::<u64>() == HEAD_BYTES);
const _: () = assert!(PIECE_CHECK + size_of::<u64>() == PIECE_HEADER_BYTES);

const FETCHED: u8 = 1;
const STALE: u8 = 2;
const TOKEN_SENT: u8 = 4;
const UNVERSIONED: u8 = 8;

/// What a head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// All but key and value; `expiry_before` and `won` say nothing.
    pub(super) meta: ItemMeta,
    /// When it was written.
    pub(super) epoch: u64,
    /// Of its pieces and no others.
    pub(super) token: u64,
    /// Bytes of the value.
    pub(super) length: u64,
    /// Bytes of value in each piece but the last; 0: the value follows the head.
    pub(super) piece_bytes: u32,
}

impl Head {
    /// How many pieces there are.
    pub(super) fn pieces(&self) -> u32 {
        if self.piece_bytes == 0 { 0 } else { self.length.div_ceil(u64::from(self.piece_bytes)) as u32 }
    }

    /// Writes the head over the first bytes of `entry`, after which the value lies that belongs there.
    pub(super) fn write_to(&self, key: &[u8], entry: &mut [u8]) {
        let marks = [
            (self.meta.fetched, FETCHED),
            (self.meta.stale, STALE),
            (self.meta.token_sent, TOKEN_SENT),
            (self.meta.unversioned, UNVERSIONED),
        ];
        let marks = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
        let (head, value) = entry.split_at_mut(HEAD_BYTES);
        head[..2].copy_from_slice(&HEAD_MAGIC);
        (head[2], head[3]) = (VERSION, marks);
        head[4..8].copy_from_slice(&self.meta.flags.to_le_bytes());
        head[8..16].copy_from_slice(&self.meta.cas.to_le_bytes());
        head[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        head[24..32].copy_from_slice(&self.token.to_le_bytes());
        head[32..36].copy_from_slice(&self.meta.expiry.0.to_le_bytes());
        head[36..40].copy_from_slice(&self.meta.last_access.to_le_bytes());
        head[40..48].copy_from_slice(&self.length.to_le_bytes());
        head[48..52].copy_from_slice(&self.piece_bytes.to_le_bytes());
        head[52..HEAD_CHECK].fill(0);
        let check = check(key, &head[..HEAD_CHECK], value);
        head[HEAD_CHECK..].copy_from_slice(&check.to_le_bytes());
    }

    /// Reads the head of an entry found under `key`; `None` if it is nothing of the kind.
    pub(super) fn read(key: &[u8], entry: &[u8]) -> Option<Self> {
        let (head, value) = entry.split_at_checked(HEAD_BYTES)?;
        let is_whole = head[..2] == HEAD_MAGIC
            && head[2] == VERSION
            && u64_at(head, HEAD_CHECK) == check(key, &head[..HEAD_CHECK], value);
        if !is_whole {
            return None;
        }
        let expiry = Expiry(u32_at(head, 32));
        let meta = ItemMeta {
            flags: u32_at(head, 4),
            cas: u64_at(head, 8),
            unversioned: head[3] & UNVERSIONED != 0,
            expiry,
            expiry_before: expiry,
            last_access: u32_at(head, 36),
            fetched: head[3] & FETCHED != 0,
            stale: head[3] & STALE != 0,
            token_sent: head[3] & TOKEN_SENT != 0,
            won: false,
        };
        let (length, piece_bytes) = (u64_at(head, 40), u32_at(head, 48));
        let follows = if piece_bytes == 0 { length } else { 0 };
        (value.len() as u64 == follows).then_some(Self {
            meta,
            epoch: u64_at(head, 16),
            token: u64_at(head, 24),
            length,
            piece_bytes,
        })
    }
}

/// An entry with a piece of the value of `key`.
pub(super) fn piece(key: &[u8], token: u64, number: u32, data: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(PIECE_HEADER_BYTES + data.len());
    entry.extend_from_slice(&PIECE_MAGIC);
    entry.extend_from_slice(&[VERSION, 0]);
    entry.extend_from_slice(&number.to_le_bytes());
    entry.extend_from_slice(&token.to_le_bytes());
    let check = check(key, &entry, data);
    entry.extend_from_slice(&check.to_le_bytes());
    entry.extend_from_slice(data);
    entry
}

/// The data of an entry, if it is this piece of the value of `key`.
pub(super) fn piece_data<'a>(key: &[u8], token: u64, number: u32, entry: &'a [u8]) -> Option<&'a [u8]> {
    let (header, data) = entry.split_at_checked(PIECE_HEADER_BYTES)?;
    let is_it = header[..2] == PIECE_MAGIC
        && header[2] == VERSION
        && u32_at(header, 4) == number
        && u64_at(header, 8) == token
        && u64_at(header, PIECE_CHECK) == check(key, &header[..PIECE_CHECK], data);
    is_it.then_some(data)
}

/// The name a piece lies under.
pub(super) fn piece_name(key: &[u8], token: u64, number: u32) -> String {
    format!("{NAME_PREFIX}{:016x}{token:016x}:{number:x}", xxh3_64(key))
}

/// Whether a key looks like the name of a piece.
pub(super) fn is_piece_name(key: &[u8]) -> bool {
    key.starts_with(NAME_PREFIX.as_bytes())
}

fn check(key: &[u8], header: &[u8], data: &[u8]) -> u64 {
    xxh3_64_with_seed(data, xxh3_64_with_seed(header, xxh3_64(key)))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + size_of::<u32>()].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + size_of::<u64>()].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(length: u64, piece_bytes: u32) -> Head {
        let meta = ItemMeta {
            flags: 0xdead_beef,
            cas: 1 << 60,
            unversioned: false,
            expiry: Expiry(2_000_000_000),
            expiry_before: Expiry(2_000_000_000),
            last_access: 1_900_000_000,
            fetched: true,
            stale: false,
            token_sent: true,
            won: false,
        };
        Head { meta, epoch: 77, token: 99, length, piece_bytes }
    }

    fn entry(key: &[u8], head: &Head, value: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; HEAD_BYTES];
        entry.extend_from_slice(value);
        head.write_to(key, &mut entry);
        entry
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_only_under_its_key() {
        for (head, value) in [(head(5, 0), &b"value"[..]), (head(1000, 300), b"")] {
            let entry = entry(b"key", &head, value);
            assert_eq!(Head::read(b"key", &entry), Some(head));
            assert_eq!(Head::read(b"kez", &entry), None);
        }
        assert_eq!((head(1000, 300).pieces(), head(900, 300).pieces(), head(5, 0).pieces()), (4, 3, 0));
    }

    #[test]
    fn a_flipped_bit_or_a_lost_byte_is_seen() {
        let whole = entry(b"key", &head(5, 0), b"value");
        let piece = piece(b"key", 99, 3, b"data");
        for at in 0..whole.len() * 8 {
            let mut broken = whole.clone();
            broken[at / 8] ^= 1 << (at % 8);
            assert_eq!(Head::read(b"key", &broken), None, "bit {at}");
        }
        for at in 0..piece.len() * 8 {
            let mut broken = piece.clone();
            broken[at / 8] ^= 1 << (at % 8);
            assert_eq!(piece_data(b"key", 99, 3, &broken), None, "bit {at}");
        }
        for length in 0..whole.len() {
            assert_eq!(Head::read(b"key", &whole[..length]), None);
        }
    }

    #[test]
    fn a_piece_is_of_one_key_one_write_and_one_place() {
        let entry = piece(b"key", 99, 3, b"data");
        assert_eq!(piece_data(b"key", 99, 3, &entry), Some(&b"data"[..]));
        assert_eq!(piece_data(b"kez", 99, 3, &entry), None);
        assert_eq!(piece_data(b"key", 98, 3, &entry), None);
        assert_eq!(piece_data(b"key", 99, 2, &entry), None);
        assert_eq!(Head::read(b"key", &entry), None, "nor is it a head");
        assert_eq!(piece_data(b"key", 99, 3, &self::entry(b"key", &head(5, 0), b"value")), None, "nor a head a piece");
    }

    #[test]
    fn names_are_text_of_bounded_length() {
        let name = piece_name(b"any key", u64::MAX, u32::MAX);
        assert_eq!(name.len(), 48);
        assert!(is_piece_name(name.as_bytes()) && !is_piece_name(b"any key"));
        assert_ne!(piece_name(b"any key", 1, 0), piece_name(b"any key", 0, 1));
    }

    /// The layout is fixed: what it was once it stays for this version.
    #[test]
    fn the_layout_is_pinned() {
        let entry = entry(b"key", &head(2, 0), b"ab");
        let hex: String = entry.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(&hex[..8], "4d680105");
        assert_eq!(
            &hex[8..112],
            "efbeadde00000000000000104d0000000000000063000000000000000094357700b33f7102000000000000000000000000000000"
        );
        assert_eq!(&hex[128..], "6162");
    }
}
