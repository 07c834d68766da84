//! Where a shard's CAS values come from: a clock that makes versions, or a count that all shards share.
//!
//! A shard takes counted values in blocks, so that writers of different shards seldom meet at one cache line, and no value is
//! given out twice. Those of a shard grow, and so do those of a key, which is always in one shard.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::{Version, VersionClock};

use crate::record::CasBase;

/// Values that a shard takes at a time. What a shard has of its block is all that a count skips.
const BLOCK: u64 = 16;

/// Where a shard's CAS values come from.
#[derive(Debug)]
pub(crate) enum Numbers {
    /// They are versions.
    Versions(VersionClock),
    /// They are counted.
    Counted(Block),
}

/// What a shard has left of the values that it took.
#[derive(Debug, Default)]
pub(crate) struct Block {
    next: u64,
    end: u64,
    /// The newest value of an item that was written here.
    newest: u64,
}

impl Block {
    /// The next value. `count`: the last one that a shard took.
    #[inline]
    pub(crate) fn next(&mut self, count: &AtomicU64) -> u64 {
        if self.next == self.end {
            self.next = count.fetch_add(BLOCK, Ordering::Relaxed) + 1;
            self.end = self.next + BLOCK;
        }
        let value = self.next;
        self.next += 1;
        self.newest = value;
        value
    }

    /// An item is written with a value that a tier below counted.
    #[inline]
    pub(crate) fn note(&mut self, value: u64) {
        self.newest = self.newest.max(value);
    }
}

impl Numbers {
    /// What the CAS distances of a segment that is opened now count from.
    pub(crate) fn base(&self) -> CasBase {
        match self {
            Self::Versions(clock) => CasBase::Versions { local: clock.newest().local(), origin: clock.origin() },
            Self::Counted(block) => CasBase::Counted(block.newest),
        }
    }

    /// At least every version made or seen here; counted values are none.
    pub(crate) fn newest_version(&self) -> Version {
        match self {
            Self::Versions(clock) => clock.newest(),
            Self::Counted(_) => Version::ZERO,
        }
    }

    /// Makes all further versions greater than one that came from elsewhere.
    #[inline]
    pub(crate) fn note_version(&mut self, version: Version) {
        if let Self::Versions(clock) = self {
            clock.note(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_count_up_without_giving_a_value_twice_and_skip_little() {
        let count = AtomicU64::new(0);
        let mut blocks = [Block::default(), Block::default(), Block::default()];
        let mut given = std::collections::HashSet::new();
        for round in 0..1000 {
            let block = &mut blocks[if round % 7 == 0 { 0 } else { round % 3 }];
            let last = block.newest;
            let value = block.next(&count);
            assert!(value > last && given.insert(value));
        }
        assert!(given.iter().max() < Some(&(1000 + 3 * BLOCK)) && given.contains(&1));
    }
}
