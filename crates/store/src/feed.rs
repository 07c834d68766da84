//! What a store tells of its changes, for replication, catching up and capture.

mod change;
mod place;

use std::fmt;
use std::str::FromStr;

use moneta_item::Version;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use change::{Batch, Change, Entry, Gap, GapCause, NoGapCause, Recorded, Set};
pub use place::{FeedPlace, NoPlace};

use crate::error::StoreError;

/// The name of a reader that is a copy of the same data and catches up, or how it begins, before a colon and the node's address.
/// Nodes keep places for such readers.
pub const COPY_READER: &str = "catch-up";
/// The name of a reader that carries changes to another region, or the begin of its name before a colon.
pub const RELAY_READER: &str = "relay";

/// Tells of the changes of a store, in about the order in which they happened.
pub trait Feed: Send + Sync {
    /// Where the feed ends now: what comes after this happens from now on.
    fn end(&self) -> FeedPlace;

    /// Where the changes since a moment begin, in milliseconds since the Unix epoch, by this store's clock.
    fn since(&self, millis: u64) -> FeedPlace;

    /// Whether a reader at this place has something to read: a change, or a gap. Cheap enough to ask every few milliseconds.
    fn has_more(&self, from: FeedPlace) -> bool;

    /// About how many changes are after a place, of all keys and regions. Takes as long as a look at each region of a log.
    fn behind(&self, from: FeedPlace) -> u64;

    /// A reader that begins at a place. It holds nothing back: what it has not read may be forgotten before it comes to it.
    fn reader(&self, from: FeedPlace, wanted: Wanted) -> Box<dyn Reader>;
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
    /// No item that its key does not hold any more, where that is known and something later is told of the key or it is gone.
    pub current: bool,
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
}
