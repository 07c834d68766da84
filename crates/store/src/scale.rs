//! Buckets of a histogram: how wide they are, and which one a value is in. What counts in them differs: one thread, many, a batch.

/// Bucket 0 is all below 2^`FIRST`; each power of two above it has 2^`SUB` buckets of one width, so a bound is at most one part in
/// 2^`SUB` above a value of its bucket; the last bucket, of `BUCKETS`, has no bound. `FIRST` is at least `SUB`.
#[derive(Clone, Copy, Debug)]
pub struct Scale<const FIRST: u32, const SUB: u32, const BUCKETS: usize>;

impl<const FIRST: u32, const SUB: u32, const BUCKETS: usize> Scale<FIRST, SUB, BUCKETS> {
    /// The bucket of a value.
    #[inline]
    pub fn bucket(value: u64) -> usize {
        if value < 1 << FIRST {
            return 0;
        }
        let octave = 63 - value.leading_zeros();
        let sub = (value >> (octave - SUB)) & ((1 << SUB) - 1);
        let index = 1 + (u64::from(octave - FIRST) << SUB) + sub;
        usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
    }

    /// First value that is above bucket `index`; `None` for the last bucket, which has no bound.
    pub fn bound(index: usize) -> Option<u64> {
        if index >= BUCKETS - 1 {
            return None;
        }
        if index == 0 {
            return Some(1 << FIRST);
        }
        let index = index as u64;
        let octave = (index - 1) >> SUB;
        let sub = (index - 1) & ((1 << SUB) - 1);
        Some(((1 << SUB) + sub + 1) << (octave + u64::from(FIRST) - u64::from(SUB)))
    }

    /// The same divided by `unit`, as Prometheus has it: infinite for the last bucket.
    pub fn bound_over(index: usize, unit: f64) -> f64 {
        Self::bound(index).map_or(f64::INFINITY, |bound| bound as f64 / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers<const FIRST: u32, const SUB: u32, const BUCKETS: usize>() {
        for value in (0..200).chain((7..60).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let index = Scale::<FIRST, SUB, BUCKETS>::bucket(value);
            let bound = Scale::<FIRST, SUB, BUCKETS>::bound;
            assert!(bound(index).is_none_or(|bound| value < bound), "{value} in {index}");
            assert!(index == 0 || bound(index - 1).is_some_and(|bound| value >= bound), "{value} in {index}");
            let is_narrow = |bound: u64| (bound - value) << SUB <= value.max(1 << FIRST);
            assert!(index == 0 || bound(index).is_none_or(is_narrow), "{value} in {index}");
        }
        assert_eq!(Scale::<FIRST, SUB, BUCKETS>::bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn every_value_lies_below_its_buckets_bound_and_not_below_the_one_before() {
        covers::<6, 2, 114>();
        covers::<0, 0, 24>();
        covers::<4, 4, 300>();
    }
}
