//! Times that something took, by size: counted by each thread, and added to the common numbers in batches; and the kinds of
//! commands that are timed apart.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::metric::Histogram;
use crate::op::Op;
use crate::scale::Scale;

/// One command in this many is timed. A prime, so that it does not fall into step with pipelines or repeated patterns of
/// commands.
pub const SAMPLE: u64 = 61;

/// Kinds of commands, and of operations on a store, with separate times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `get`, `gets` and their binary and meta kin.
    Get,
    /// `gat`, `gats`, `touch` and their kin.
    Touch,
    /// `set` and everything else that stores a value.
    Set,
    /// `delete`.
    Delete,
    /// `incr`, `decr`.
    Arithmetic,
    /// All others.
    Other,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Get, Self::Touch, Self::Set, Self::Delete, Self::Arithmetic, Self::Other];

    /// The kind's name, for labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Touch => "touch",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::Arithmetic => "arithmetic",
            Self::Other => "other",
        }
    }

    /// The kind of an operation that a client waits for.
    pub fn of(op: &Op<'_>) -> Self {
        match op {
            Op::Read(request) if request.touch.is_some() => Self::Touch,
            Op::Read(_) => Self::Get,
            Op::Write(..) | Op::Put(..) => Self::Set,
            Op::Delete(_) | Op::Bury(_) => Self::Delete,
            Op::Arithmetic(_) => Self::Arithmetic,
            _ => Self::Other,
        }
    }
}

/// A histogram of times: powers of two of microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many took less than 2^n microseconds and no less than half of it; the last also everything longer.
    pub buckets: [u64; Latency::BUCKETS],
    /// Their sum, in microseconds.
    pub sum_microseconds: u64,
}

/// Its buckets: powers of two of microseconds.
type Micros = Scale<0, 0, { Latency::BUCKETS }>;

impl Latency {
    /// Buckets: up to 4 s, and longer.
    pub const BUCKETS: usize = 24;

    /// The bucket of a time in microseconds.
    #[inline]
    pub fn bucket(microseconds: u64) -> usize {
        Micros::bucket(microseconds)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// In seconds.
    pub fn histogram(&self) -> Histogram {
        let bound = |index| Micros::bound_over(index, 1e6);
        Histogram {
            buckets: self.buckets.iter().enumerate().map(|(index, &count)| (bound(index), count)).collect(),
            sum: self.sum_microseconds as f64 / 1e6,
        }
    }
}

/// A histogram that all threads add to.
#[derive(Debug, Default)]
pub struct SharedLatency {
    buckets: [AtomicU64; Latency::BUCKETS],
    sum_microseconds: AtomicU64,
}

impl SharedLatency {
    /// The numbers so far.
    pub fn latency(&self) -> Latency {
        Latency {
            buckets: std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed)),
            sum_microseconds: self.sum_microseconds.load(Relaxed),
        }
    }

    /// So many took this long. Touches the numbers that all threads share: for what is rare, as a sample is.
    pub fn note(&self, took: Duration, times: u64) {
        let microseconds = microseconds(took);
        self.buckets[Latency::bucket(microseconds)].fetch_add(times, Relaxed);
        self.sum_microseconds.fetch_add(microseconds.saturating_mul(times), Relaxed);
    }

    /// Their sum alone.
    pub fn sum_microseconds(&self) -> u64 {
        self.sum_microseconds.load(Relaxed)
    }

    /// Adds a batch and clears it.
    #[inline]
    pub fn add(&self, batch: &mut LatencyBatch) {
        // It is small and fills one or two of the two dozen buckets.
        while batch.filled != 0 {
            let bucket = batch.filled.trailing_zeros() as usize;
            batch.filled &= batch.filled - 1;
            self.buckets[bucket].fetch_add(std::mem::take(&mut batch.latency.buckets[bucket]), Relaxed);
        }
        if batch.latency.sum_microseconds > 0 {
            self.sum_microseconds.fetch_add(std::mem::take(&mut batch.latency.sum_microseconds), Relaxed);
        }
    }
}

/// Times of one thread that are not counted yet: the shared numbers are touched once for a batch.
#[derive(Debug, Default)]
pub struct LatencyBatch {
    latency: Latency,
    /// One bit for each bucket that is not 0.
    filled: u32,
}

const _: () = assert!(Latency::BUCKETS <= u32::BITS as usize);

impl LatencyBatch {
    /// Something took this long.
    #[inline]
    pub fn note(&mut self, took: Duration) {
        let microseconds = microseconds(took);
        let bucket = Latency::bucket(microseconds);
        self.latency.buckets[bucket] += 1;
        self.filled |= 1 << bucket;
        self.latency.sum_microseconds = self.latency.sum_microseconds.saturating_add(microseconds);
    }
}

#[inline]
fn microseconds(took: Duration) -> u64 {
    took.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(took.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_many() {
        let shared = SharedLatency::default();
        shared.note(Duration::from_micros(100), 61);
        shared.note(Duration::from_micros(3), 1);
        let latency = shared.latency();
        assert_eq!((latency.count(), latency.sum_microseconds), (62, 6103));
        assert_eq!((latency.buckets[7], latency.buckets[2]), (61, 1));
    }

    #[test]
    fn a_time_is_counted_under_the_first_bound_above_it() {
        let mut latency = Latency::default();
        for microseconds in [0, 1, 100, 127, 128, 1 << 22, u64::MAX] {
            latency.buckets[Latency::bucket(microseconds)] += 1;
        }
        let shown: Vec<_> = latency.histogram().buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(shown, [(1e-6, 1), (2e-6, 1), (128e-6, 2), (256e-6, 1), (f64::INFINITY, 2)]);
    }

    #[test]
    fn a_batch_is_counted_once() {
        let (shared, mut batch) = (SharedLatency::default(), LatencyBatch::default());
        [90, 3].into_iter().for_each(|microseconds| batch.note(Duration::from_micros(microseconds)));
        shared.add(&mut batch);
        shared.add(&mut batch);
        let latency = shared.latency();
        assert_eq!((latency.count(), latency.sum_microseconds), (2, 93));
        assert_eq!((latency.buckets[7], latency.buckets[2]), (1, 1));

        [90, 90, 3_600_000_000].into_iter().for_each(|microseconds| batch.note(Duration::from_micros(microseconds)));
        shared.add(&mut batch);
        let latency = shared.latency();
        assert_eq!((latency.count(), latency.sum_microseconds), (5, 273 + 3_600_000_000));
        assert_eq!((latency.buckets[7], latency.buckets[Latency::BUCKETS - 1]), (3, 1));
    }
}
