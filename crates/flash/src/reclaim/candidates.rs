//! What is carried forward from a region that is emptied, when there is not room for all that was read.
//!
//! A byte that is carried costs the same whatever it belongs to, so records go by hits for each byte. All records of a region
//! are about as old, so their hits compare.

use std::cmp::Reverse;

use moneta_device::regions::listing::Listed;

/// A record that was read since it was written or last carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate<'l> {
    pub(crate) record: &'l Listed,
    /// Reads since then, as far as its index entry counts them; more than 0.
    pub(crate) hits: u64,
}

impl Candidate<'_> {
    /// Hits for each byte, in units that only compare.
    fn worth(&self) -> u64 {
        (self.hits << u32::BITS) / u64::from(self.record.length.max(1))
    }
}

/// Puts first what is worth most; of equals, what was first.
pub(crate) fn rank(candidates: &mut [Candidate<'_>]) {
    candidates.sort_by_key(|candidate| Reverse(candidate.worth()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_count_against_bytes() {
        let listed = |offset, length| Listed { hash: 0, offset, length, is_tombstone: false };
        let records = [listed(0, 900), listed(1, 100), listed(2, 300), listed(3, 100), listed(4, u32::MAX)];
        let mut candidates: Vec<_> =
            records.iter().zip([3, 1, 2, 1, 3]).map(|(record, hits)| Candidate { record, hits }).collect();
        rank(&mut candidates);
        let order: Vec<_> = candidates.iter().map(|candidate| candidate.record.offset).collect();
        assert_eq!(order, [1, 3, 2, 0, 4]);
    }
}
