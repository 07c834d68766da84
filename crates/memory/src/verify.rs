//! The books of a shard, checked: segments against their records, records against the index, and back. Errors here stay
//! silent for long: a segment that is never given up, an item that is never found, memory that is not accounted.

use std::collections::{HashMap, HashSet};

use moneta_store::Key;

use crate::record::{Header, NO_FRAGMENT, mark};
use crate::segments::{Entry, FIRST, Location};
use crate::shard::{Shard, location_of};

/// What a walk over all segments has found.
#[derive(Default)]
struct Census {
    /// Live records, by location.
    records: HashMap<u64, Header>,
    /// Live fragments, by location.
    fragments: HashSet<u64>,
}

/// `Err` with what was to hold and does not.
macro_rules! hold {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+));
        }
    };
}

impl Shard {
    pub(crate) fn verify(&mut self) -> Result<(), String> {
        self.settle();
        self.segments.verify_queues()?;
        let mut census = Census::default();
        for number in (0..self.segments.numbers()).filter(|&number| self.segments.is_in_use(number)) {
            self.count_segment(number, &mut census)?;
        }
        hold!(
            census.records.len() == self.index.len(),
            "{} live records, and {} entries in the index",
            census.records.len(),
            self.index.len()
        );
        self.verify_owners(&census)?;
        let used = self.index.pages() + self.segments.len() + self.ghosts.pages();
        hold!(used <= self.quota, "{used} pages are used, of {}", self.quota);
        Ok(())
    }

    fn count_segment(&self, number: u32, census: &mut Census) -> Result<(), String> {
        let (mut offset, mut live, mut soonest) = (FIRST, 0, u32::MAX);
        while let Some((entry, next)) = self.segments.entry(number, offset) {
            hold!(next > offset, "a record without a size at {offset} of segment {number}");
            let place = Location::new(number, offset).0;
            match entry {
                Entry::Live(_, header) => {
                    live += next - offset;
                    if header.expiry.0 != 0 {
                        soonest = soonest.min(header.expiry.0);
                    }
                    census.records.insert(place, header);
                }
                Entry::Fragment { live: true } => {
                    live += next - offset;
                    census.fragments.insert(place);
                }
                Entry::Fragment { live: false } | Entry::Dead => {}
            }
            offset = next;
        }
        self.segments.verify_segment(number, offset, live, soonest)
    }

    /// Every live record is in the index under its key, once, and every live fragment belongs to one of them.
    fn verify_owners(&mut self, census: &Census) -> Result<(), String> {
        let mut keys = HashSet::new();
        let mut fragments = census.fragments.clone();
        for (&location, &header) in &census.records {
            let location = Location(location);
            let key = self.segments.key(location);
            hold!(keys.insert(key), "two live records of one key");
            let hash = Key::new(key, self.shared.seed).hash;
            let entry = self.index.find(hash, |payload| location_of(payload) == location);
            hold!(entry.is_some(), "a live record is not in the index under its key");
            let (mut next, mut length) = (header.next, header.first_length);
            while header.split && next != NO_FRAGMENT {
                hold!(fragments.remove(&next), "a fragment of a live item is dead, or of two items");
                let (fragment, payload) = self.segments.fragment(Location(next));
                length += payload.len() as u32;
                next = fragment.next;
            }
            hold!(length == header.value_length, "the parts of a value do not add up to it");
            hold!(!header.is(mark::DEAD), "a dead record counts as live");
        }
        hold!(fragments.is_empty(), "{} live fragments belong to no item", fragments.len());
        Ok(())
    }
}
