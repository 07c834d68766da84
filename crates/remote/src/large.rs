//! Keys whose values were found to be large, by hash: what is asked of them travels on a connection of its own, so that small
//! values do not wait behind them.
//!
//! How large a value is, a read does not know before its reply begins. So the first one of a key may hold others up; its size is
//! kept from then on, also of what this process writes. A few KiB keep thousands of keys; of two that fall on one place the later
//! stays.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Values from this length on are large, in bytes: on a link of 1 Gbit/s one holds others up for half a millisecond.
pub(crate) const LARGE: usize = 64 << 10;
/// Keys that are kept, at most.
const PLACES: usize = 4096;
/// The low bits of a place tell the size, as a power of two; the others are a part of the key's hash.
const SIZE_BITS: u32 = 6;

/// The keys of servers that have the same ones. All threads share them.
#[derive(Debug, Default)]
pub(crate) struct LargeKeys {
    /// Made for the first one: many processes meet none.
    places: OnceLock<Box<[AtomicU32]>>,
}

impl LargeKeys {
    /// Whether any key may be known to be large.
    #[inline]
    pub(crate) fn knows_any(&self) -> bool {
        self.places.get().is_some()
    }

    /// About how large the value of a key is, if it is known to be large: its length, or up to twice that.
    #[inline]
    pub(crate) fn size(&self, hash: u64) -> Option<usize> {
        let kept = place(self.places.get()?, hash).load(Ordering::Relaxed);
        (kept >> SIZE_BITS == tag(hash)).then(|| 1 << (kept & ((1 << SIZE_BITS) - 1)))
    }

    /// The value of a key is so long.
    #[cold]
    pub(crate) fn note(&self, hash: u64, size: usize) {
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| AtomicU32::new(0)).collect());
        let power = size.next_power_of_two().trailing_zeros();
        place(places, hash).store(tag(hash) << SIZE_BITS | power, Ordering::Relaxed);
    }

    /// The value of a key is not large.
    #[inline]
    pub(crate) fn forget(&self, hash: u64) {
        if self.size(hash).is_some()
            && let Some(places) = self.places.get()
        {
            place(places, hash).store(0, Ordering::Relaxed);
        }
    }
}

fn place(places: &[AtomicU32], hash: u64) -> &AtomicU32 {
    // Not the bits that choose connections.
    &places[hash as usize % PLACES]
}

/// Never 0, which is an empty place.
fn tag(hash: u64) -> u32 {
    (hash >> 38) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_large_until_it_is_found_small() {
        let keys = LargeKeys::default();
        let hash = 0x1234_5678_9abc_def0;
        assert_eq!(keys.size(hash), None);
        keys.note(hash, 100_000);
        assert_eq!((keys.size(hash), keys.size(hash ^ 1), keys.size(!hash)), (Some(131_072), None, None));
        keys.note(hash, 1 << 20);
        assert_eq!(keys.size(hash), Some(1 << 20));
        keys.forget(hash);
        assert_eq!(keys.size(hash), None);
    }
}
