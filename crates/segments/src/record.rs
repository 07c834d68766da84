//! Changes to and from bytes.
//!
//! ```text
//! kind u8 · marks u8 · flags u32 · expiry u32 · version u64 · key length u16 · value length u32 · as-of u64 · key · value
//! ```
//!
//! 32 bytes before the key. What a kind does not have is 0.
//!
//! | kind | | flags | expiry | version | key, value |
//! |---|---|---|---|---|---|
//! | 1 | set | the item's | its expiry, Unix seconds, 0: never | its version | both, as the marks say |
//! | 2 | delete | | | what the key held up to this version is gone | key |
//! | 3 | flush | | the second from which it holds | the floor | |
//! | 4 | gap | 1 and up: why (start, reclaimed, lost, off, ring) | | changes before this moment may be missing, Unix milliseconds | |
//! | 5 | lost | | | the source was killed, and began again then, Unix milliseconds | |
//!
//! Marks: 1: the item is stale; 2: it has a value; 4: it was known to be current then (as-of, Unix milliseconds), not now; 8: its CAS
//! value is no version.

use bytes::Bytes;
use moneta_item::request::KEY_MAX;
use moneta_item::{Expiry, ItemMeta, Version};
use moneta_store::feed::{Change, Gap, GapCause, Set};
use moneta_store::versions::Floor;

/// Bytes before the key.
pub const HEAD: usize = 32;

const STALE: u8 = 1;
const VALUE: u8 = 2;
const AS_OF: u8 = 4;
const UNVERSIONED: u8 = 8;

/// The fields of a record.
#[derive(Default)]
struct Fields<'a> {
    kind: u8,
    marks: u8,
    flags: u32,
    expiry: u32,
    version: u64,
    as_of: u64,
    key: &'a [u8],
    value: &'a [u8],
}

/// The bytes that a change takes.
pub fn size(change: &Change) -> usize {
    HEAD + change.size()
}

/// Appends a change. A key longer than [`KEY_MAX`], or a value longer than 4 GiB, is none that a store holds.
///
/// # Panics
/// At such a key or value.
pub fn write(change: &Change, out: &mut Vec<u8>) {
    let fields = match change {
        Change::Set(Set { key, meta, value, as_of }) => Fields {
            kind: 1,
            marks: [
                (STALE, meta.stale),
                (VALUE, value.is_some()),
                (AS_OF, as_of.is_some()),
                (UNVERSIONED, meta.unversioned),
            ]
            .into_iter()
            .filter_map(|(mark, is_set)| is_set.then_some(mark))
            .sum(),
            flags: meta.flags,
            expiry: meta.expiry.0,
            version: meta.cas,
            as_of: as_of.unwrap_or(0),
            key,
            value: value.as_deref().unwrap_or_default(),
        },
        Change::Delete { key, version } => Fields { kind: 2, version: version.0, key, ..Fields::default() },
        Change::Flush(Floor { version, second }) => {
            Fields { kind: 3, version: version.0, expiry: *second, ..Fields::default() }
        }
        Change::Gap(Gap { since, cause }) => Fields {
            kind: 4,
            version: *since,
            flags: cause
                .and_then(|cause| GapCause::ALL.iter().position(|one| *one == cause))
                .map_or(0, |at| at as u32 + 1),
            ..Fields::default()
        },
        Change::Lost { until } => Fields { kind: 5, version: *until, ..Fields::default() },
    };
    let key_length = u16::try_from(fields.key.len()).expect("a key of a store");
    let value_length = u32::try_from(fields.value.len()).expect("a value of a store");
    out.reserve(HEAD + fields.key.len() + fields.value.len());
    out.extend_from_slice(&[fields.kind, fields.marks]);
    out.extend_from_slice(&fields.flags.to_le_bytes());
    out.extend_from_slice(&fields.expiry.to_le_bytes());
    out.extend_from_slice(&fields.version.to_le_bytes());
    out.extend_from_slice(&key_length.to_le_bytes());
    out.extend_from_slice(&value_length.to_le_bytes());
    out.extend_from_slice(&fields.as_of.to_le_bytes());
    out.extend_from_slice(fields.key);
    out.extend_from_slice(fields.value);
}

/// The change at the front of `bytes`, which is taken from there; key and value stay parts of the same buffer. `None` if there is
/// none, or one that this build does not know.
pub fn read(bytes: &mut Bytes) -> Option<Change> {
    let head: [u8; HEAD] = bytes.get(..HEAD)?.try_into().ok()?;
    let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let (kind, marks, flags, expiry, version) = (head[0], head[1], u32_at(2), u32_at(6), u64_at(10));
    let key_length = usize::from(u16::from_le_bytes([head[18], head[19]]));
    let value_length = u32_at(20) as usize;
    let as_of = u64_at(24);
    // A longer key is none to any server, and might be taken for a command.
    if key_length > KEY_MAX || bytes.len() - HEAD < key_length + value_length {
        return None;
    }
    let is_known = marks & !(STALE | VALUE | AS_OF | UNVERSIONED) == 0 && (marks & VALUE != 0 || value_length == 0);
    let change = match kind {
        _ if !is_known => return None,
        1 if key_length > 0 => Change::Set(Set {
            key: bytes.slice(HEAD..HEAD + key_length),
            meta: ItemMeta {
                flags,
                expiry: Expiry(expiry),
                cas: version,
                stale: marks & STALE != 0,
                unversioned: marks & UNVERSIONED != 0,
                ..ItemMeta::default()
            },
            value: (marks & VALUE != 0).then(|| bytes.slice(HEAD + key_length..HEAD + key_length + value_length)),
            as_of: (marks & AS_OF != 0).then_some(as_of),
        }),
        2 if key_length > 0 && value_length == 0 => {
            Change::Delete { key: bytes.slice(HEAD..HEAD + key_length), version: Version(version) }
        }
        3..=5 if key_length + value_length > 0 => return None,
        3 => Change::Flush(Floor { version: Version(version), second: expiry }),
        4 => {
            let cause = match flags {
                0 => None,
                cause => Some(*GapCause::ALL.get(cause as usize - 1)?),
            };
            Change::Gap(Gap { since: version, cause })
        }
        5 => Change::Lost { until: version },
        _ => return None,
    };
    bytes::Buf::advance(bytes, HEAD + key_length + value_length);
    Some(change)
}
