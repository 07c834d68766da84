//! Times that reads of devices took, by size.

use moneta_store::metric::Histogram;

/// A histogram of times: powers of two of microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many took less than 2^n microseconds and no less than half of it; the last also everything longer.
    pub buckets: [u64; Latency::BUCKETS],
    /// Their sum, in microseconds.
    pub sum_microseconds: u64,
}

impl Latency {
    /// Buckets: up to 8 s, and longer.
    pub const BUCKETS: usize = 24;

    /// The bucket of a time in microseconds.
    pub fn bucket(microseconds: u64) -> usize {
        ((u64::BITS - microseconds.leading_zeros()) as usize).min(Self::BUCKETS - 1)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// In seconds.
    pub fn histogram(&self) -> Histogram {
        let bound = |bits: usize| if bits + 1 == Self::BUCKETS { f64::INFINITY } else { (1u64 << bits) as f64 / 1e6 };
        Histogram {
            buckets: self.buckets.iter().enumerate().map(|(bits, &count)| (bound(bits), count)).collect(),
            sum: self.sum_microseconds as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_counted_under_the_first_bound_above_it() {
        let mut latency = Latency::default();
        for microseconds in [0, 1, 100, 127, 128, 1 << 22, u64::MAX] {
            latency.buckets[Latency::bucket(microseconds)] += 1;
        }
        let shown: Vec<_> = latency.histogram().buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(shown, [(1e-6, 1), (2e-6, 1), (128e-6, 2), (256e-6, 1), (f64::INFINITY, 2)]);
    }
}
