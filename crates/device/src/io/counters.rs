//! Counters of reads for requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use moneta_store::latency::{LatencyBatch, SharedLatency};

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
    /// Times that reads took.
    pub latency: SharedLatency,
}

impl ReadCounters {
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
        self.latency.add(&mut tally.latency);
        (tally.reads, tally.bytes, tally.errors) = (0, 0, 0);
    }
}

/// Completed reads of one thread that are not counted yet: the shared counters are touched once for a batch.
#[derive(Debug, Default)]
pub(super) struct Tally {
    reads: u64,
    bytes: u64,
    errors: u64,
    latency: LatencyBatch,
}

impl Tally {
    /// A read ended after `took`, with this many bytes or with an error (`None`).
    pub(super) fn note(&mut self, bytes: Option<usize>, took: Duration) {
        self.reads += 1;
        self.bytes += bytes.unwrap_or(0) as u64;
        self.errors += u64::from(bytes.is_none());
        self.latency.note(took);
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
        assert_eq!(counters.latency.latency().count(), 2);
    }
}
