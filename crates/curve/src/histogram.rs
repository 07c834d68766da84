//! How much room gets need to be hits: a histogram with buckets that are at most a sixteenth of their values wide.

/// Buckets of one power of two, as a power of two.
const SUB_BITS: u32 = 4;
/// Values from here on are in the last bucket: 64 TiB are more than a node can hold.
const MAX_BITS: u32 = 46;
/// Buckets.
const BUCKETS: usize = ((MAX_BITS - SUB_BITS) << SUB_BITS) as usize + (1 << SUB_BITS);

/// Gets, counted by the room that they need.
#[derive(Clone, Debug)]
pub(crate) struct Counts(Box<[u32; BUCKETS]>);

impl Default for Counts {
    fn default() -> Self {
        Self(Box::new([0; BUCKETS]))
    }
}

impl Counts {
    /// Memory of one.
    pub(crate) const BYTES: usize = BUCKETS * size_of::<u32>();

    /// Counts a get that needs room for `value`.
    #[inline]
    pub(crate) fn add(&mut self, value: u64) {
        let count = &mut self.0[bucket_of(value)];
        *count = count.saturating_add(1);
    }

    /// Makes all that was counted weigh half.
    pub(crate) fn halve(&mut self) {
        // Every other bucket is rounded up, so that what is rare is halved, too, and no more than that.
        self.0
            .iter_mut()
            .zip([0, 1].into_iter().cycle())
            .for_each(|(count, up)| *count = (*count >> 1) + (*count & up));
    }

    /// All that was counted.
    pub(crate) fn total(&self) -> f64 {
        self.0.iter().map(|&count| f64::from(count)).sum()
    }
}

/// Gets by the room that they need, each with a weight.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Box<[f64; BUCKETS]>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Box::new([0.0; BUCKETS]))
    }
}

impl From<&Counts> for Histogram {
    fn from(counts: &Counts) -> Self {
        let mut histogram = Self::default();
        histogram.add_all(counts, 1.0);
        histogram
    }
}

impl Histogram {
    /// Adds gets that were counted, each so many times.
    pub(crate) fn add_all(&mut self, counts: &Counts, times: f64) {
        self.0.iter_mut().zip(counts.0.iter()).for_each(|(sum, &count)| *sum += f64::from(count) * times);
    }

    /// All weights.
    pub(crate) fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The buckets that are not empty: the first value in them, the first above, and the weight.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (u64, u64, f64)> {
        let filled = self.0.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
        filled.map(|(index, weight)| (begin_of(index), end_of(index), *weight))
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros();
    let index =
        (u64::from(octave - SUB_BITS + 1) << SUB_BITS) + ((value >> (octave - SUB_BITS)) & ((1 << SUB_BITS) - 1));
    (index as usize).min(BUCKETS - 1)
}

/// The first value above a bucket.
fn end_of(index: usize) -> u64 {
    let index = index as u64 + 1;
    if index < 1 << SUB_BITS {
        return index;
    }
    let octave = index >> SUB_BITS;
    ((1 << SUB_BITS) + (index & ((1 << SUB_BITS) - 1))) << (octave - 1)
}

/// The first value of a bucket.
fn begin_of(index: usize) -> u64 {
    index.checked_sub(1).map_or(0, end_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_bucket_that_is_a_sixteenth_wide() {
        for value in (0..5000).chain((5..45).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let index = bucket_of(value);
            let (begin, end) = (begin_of(index), end_of(index));
            assert!(begin <= value && value < end, "{value} in {begin}..{end}");
            assert!(end - begin <= (value / 16).max(1), "{value} in {begin}..{end}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn rare_gets_are_halved_on_the_whole() {
        let mut counts = Counts::default();
        (0..16).for_each(|value| counts.add(value));
        counts.halve();
        assert_eq!(counts.total(), 8.0);
    }
}
