//! What a store tells of its changes, for replication, catching up and capture.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use moneta_item::{ItemMeta, Version};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::StoreError;
use crate::versions::Floor;

/// The name of a reader that is a copy of the same data and catches up, or how it begins, before a colon and the node's address. Nodes keep
/// places for such readers.
pub const COPY_READER: &str = "catch-up";

/// Tells of the changes of a store, in about the order in which they happened.
pub trait Feed: Send + Sync {
    /// Where the feed ends now: what comes behind this happens from now on.
    fn end(&self) -> Place;

    /// Where the changes since a moment begin, in milliseconds since the Unix epoch, by this store's clock.
    fn since(&self, millis: u64) -> Place;

    /// Whether a reader at this place has something to read: a change, or a gap. Cheap enough to ask every few milliseconds.
    fn has_more(&self, from: Place) -> bool;

    /// A reader that begins at a place. It holds nothing back: what it has not read may be forgotten before it comes to it.
    fn reader(&self, from: Place, wanted: Wanted) -> Box<dyn Reader>;
}

/// Reads a feed from a place on.
pub trait Reader: Send {
    /// The next changes, up to `limit`, and not many more bytes of keys and values than `bytes`. May wait for a device.
    ///
    /// # Errors
    /// The device's. The reader has not moved then.
    fn read(&mut self, limit: usize, bytes: usize) -> Result<Batch, StoreError>;

    /// Bytes of the buffers that it keeps between two reads.
    fn held(&self) -> usize;
}

/// Which changes a reader wants, and how much of them. What it does not want may be told all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Values, too.
    pub values: bool,
    /// Only of keys that begin so.
    pub prefix: Vec<u8>,
    /// Only what was written in this region.
    pub region: Option<u8>,
    /// Only of keys in these buckets of a ring of slots.
    pub buckets: Option<Buckets>,
}

impl Wanted {
    /// Whether a change of this key is wanted.
    #[inline]
    pub fn has_key(&self, key: &[u8]) -> bool {
        // Most readers want all: a comparison of no bytes costs what one of some does.
        (self.prefix.is_empty() || key.starts_with(&self.prefix)) && self.buckets.is_none_or(|buckets| buckets.has(key))
    }

    /// Whether what was written under this version is wanted.
    #[inline]
    pub fn has_version(&self, version: Version) -> bool {
        self.region.is_none_or(|region| version.origin().region() == region)
    }
}

/// What the hash of a key in a ring of slots begins with.
const RING_SEED: u64 = u64::from_le_bytes(*b"mn.slots");

/// A range of the 65,536 buckets that a ring of slots divides keys into, as text `FIRST-LAST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    first: u16,
    last: u16,
}

impl Buckets {
    /// The bucket of a key: the leading 16 bits of its hash in a ring of slots.
    pub fn of(key: &[u8]) -> u16 {
        (xxh3_64_with_seed(key, RING_SEED) >> 48) as u16
    }

    /// Whether a key is in one of these.
    #[inline]
    pub fn has(self, key: &[u8]) -> bool {
        (self.first..=self.last).contains(&Self::of(key))
    }
}

impl fmt::Display for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// The text is no range of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no range of buckets: FIRST-LAST, from 0 to 65535")]
pub struct NoBuckets;

impl FromStr for Buckets {
    type Err = NoBuckets;

    fn from_str(text: &str) -> Result<Self, NoBuckets> {
        let (first, last) = text.split_once('-').ok_or(NoBuckets)?;
        let [first, last] = [first, last].map(str::parse);
        match (first, last) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(NoBuckets),
        }
    }
}

/// A place in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of the feed: another where it begins anew.
    pub incarnation: u64,
    /// Grows with what is before it.
    pub position: u64,
    /// Behind the last gap that was told, as a position; 0: none was.
    pub told: u64,
}

/// As the cursors of readers.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.incarnation, self.position)?;
        if self.told == 0 { Ok(()) } else { write!(f, "-{}", self.told) }
    }
}

/// The text is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor of a feed")]
pub struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let mut parts = text.split('-');
        let incarnation = parts.next().and_then(|part| u64::from_str_radix(part, 16).ok()).ok_or(NoPlace)?;
        let position = parts.next().and_then(|part| part.parse().ok()).ok_or(NoPlace)?;
        let told = parts.next().map_or(Ok(0), |part| part.parse().map_err(|_| NoPlace))?;
        if parts.next().is_some() { Err(NoPlace) } else { Ok(Self { incarnation, position, told }) }
    }
}

/// Changes that follow each other.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Changes are missing before the first: those since this moment at the latest, in milliseconds since the Unix epoch.
    pub gap: Option<u64>,
    /// The changes.
    pub changes: Vec<Told>,
    /// Where to read on.
    pub next: Place,
    /// Everything that the feed was told until then is before [`Batch::next`], in milliseconds since the Unix epoch.
    pub watermark: u64,
    /// There was no more when it was read.
    pub is_end: bool,
}

/// A change, as a reader is told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The change.
    pub change: Change,
    /// Where to read on behind it.
    pub next: Place,
}

/// One change of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key was given a value, or another life, or was marked. What it holds by now is for the reader to look up: this
    /// change, or a newer one.
    Set(Arc<[u8]>),
    /// The same, with what the change left.
    Item(Left),
    /// The key was deleted under this version, whether it was there or not.
    Deleted(Arc<[u8]>, Version),
    /// The store was flushed.
    Flushed(Floor),
    /// The store was killed: what it was told shortly before it began again, at this moment in milliseconds since the Unix epoch,
    /// may be lost.
    Lost(u64),
}

/// What a change left under a key. Key and value may be parts of a buffer of a MiB, which lives as long as they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The key.
    pub key: Bytes,
    /// All but key and value.
    pub meta: ItemMeta,
    /// The value; `None` if the reader does not want values.
    pub value: Option<Bytes>,
    /// When the key was last known to hold it, in milliseconds since the Unix epoch; `None`: it does now.
    pub as_of: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_one_of_ranges_that_cover_all_buckets() {
        let ranges: Vec<Buckets> = ["0-16383", "16384-65534", "65535-65535"].map(|text| text.parse().unwrap()).into();
        for key in 0..1000u32 {
            let key = key.to_le_bytes();
            assert_eq!(ranges.iter().filter(|range| range.has(&key)).count(), 1);
        }
        assert!(ranges.iter().all(|range| range.to_string().parse() == Ok(*range)));
        for wrong in ["", "7", "-", "8-7", "0-65536", "a-b", "1-2-3"] {
            assert_eq!(wrong.parse::<Buckets>(), Err(NoBuckets), "{wrong}");
        }
    }

    #[test]
    fn a_place_comes_back_from_its_text() {
        for place in [
            Place { incarnation: u64::MAX, position: 0, told: 0 },
            Place { incarnation: 7, position: u64::MAX, told: 12 },
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["", "7", "7-", "x-1", "7-1-", "7-1-2-3", "7-1-x", "-7-1"] {
            assert_eq!(wrong.parse::<Place>(), Err(NoPlace), "{wrong}");
        }
    }
}
