//! Counters of reads for requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::latency::Latency;

/// Counters of reads for requests, shared by all threads that read.
#[derive(Debug, Default)]
pub struct ReadCounters {
    /// Reads that wait for a device or are in progress. Rings report theirs once a turn.
    pub in_flight: AtomicU64,
    /// Completed reads, failed ones included.
    pub reads: AtomicU64,
    /// Bytes they brought.
    pub bytes: AtomicU64,
    /// Failed reads.
    pub errors: AtomicU64,
    /// Reads by the time they took, in the buckets of [`Latency`].
    pub latency: [AtomicU64; Latency::BUCKETS],
    /// Sum of these times, in microseconds.
    pub latency_sum: AtomicU64,
}

impl ReadCounters {
    /// The histogram of times.
    pub fn latency(&self) -> Latency {
        Latency {
            buckets: std::array::from_fn(|bucket| self.latency[bucket].load(Relaxed)),
            sum_microseconds: self.latency_sum.load(Relaxed),
        }
    }

    /// A source of reads now has `now` in flight; it last reported `before`.
    pub(super) fn change_in_flight(&self, before: u64, now: u64) {
        if before != now {
            self.in_flight.fetch_add(now.wrapping_sub(before), Relaxed);
        }
    }

    /// Adds a [`Tally`] and clears it.
    pub(super) fn add(&self, tally: &mut Tally) {
        if tally.reads == 0 {
            return;
        }
        self.reads.fetch_add(tally.reads, Relaxed);
        self.bytes.fetch_add(tally.bytes, Relaxed);
        if tally.errors > 0 {
            self.errors.fetch_add(tally.errors, Relaxed);
        }
        self.latency_sum.fetch_add(tally.latency.sum_microseconds, Relaxed);
        // A batch is small and fills one or two of the two dozen buckets.
        while tally.filled != 0 {
            let bucket = tally.filled.trailing_zeros() as usize;
            tally.filled &= tally.filled - 1;
            self.latency[bucket].fetch_add(std::mem::take(&mut tally.latency.buckets[bucket]), Relaxed);
        }
        (tally.reads, tally.bytes, tally.errors, tally.latency.sum_microseconds) = (0, 0, 0, 0);
    }
}

/// Completed reads of one thread that are not counted yet: the shared counters are touched once for a batch.
#[derive(Debug, Default)]
pub(super) struct Tally {
    reads: u64,
    bytes: u64,
    errors: u64,
    latency: Latency,
    /// One bit for each bucket that is not 0.
    filled: u32,
}

const _: () = assert!(Latency::BUCKETS <= u32::BITS as usize);

impl Tally {
    /// A read ended after `took`, with this many bytes or with an error (`None`).
    pub(super) fn note(&mut self, bytes: Option<usize>, took: Duration) {
        let microseconds = took.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(took.subsec_micros()));
        self.reads += 1;
        self.bytes += bytes.unwrap_or(0) as u64;
        self.errors += u64::from(bytes.is_none());
        let bucket = Latency::bucket(microseconds);
        self.latency.buckets[bucket] += 1;
        self.filled |= 1 << bucket;
        self.latency.sum_microseconds = self.latency.sum_microseconds.saturating_add(microseconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_counted_once() {
        let (counters, mut tally) = (ReadCounters::default(), Tally::default());
        tally.note(Some(4096), Duration::from_micros(90));
        tally.note(None, Duration::from_micros(3));
        counters.add(&mut tally);
        counters.add(&mut tally);
        assert_eq!(counters.reads.load(Relaxed), 2);
        assert_eq!(counters.bytes.load(Relaxed), 4096);
        assert_eq!(counters.errors.load(Relaxed), 1);
        let latency = counters.latency();
        assert_eq!((latency.count(), latency.sum_microseconds), (2, 93));
        assert_eq!((latency.buckets[7], latency.buckets[2]), (1, 1));

        for took in [Duration::from_micros(90), Duration::from_micros(90), Duration::from_secs(3600)] {
            tally.note(Some(8192), took);
        }
        counters.add(&mut tally);
        let latency = counters.latency();
        assert_eq!((latency.count(), latency.sum_microseconds), (5, 273 + 3_600_000_000));
        assert_eq!((latency.buckets[7], latency.buckets[Latency::BUCKETS - 1]), (3, 1));
    }
}
