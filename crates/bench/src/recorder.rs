//! What one thread of a load counts and times, and how the threads' records are put together.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::operation::Operation;

/// Longest latency a histogram tells apart, in nanoseconds; longer ones count as this one.
const LONGEST: u64 = 120_000_000_000;
/// Significant decimal digits of a recorded latency.
const DIGITS: u8 = 3;
/// How many wrong values are described.
const EXAMPLES: usize = 5;

/// Counts of what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Commands answered; a multi-get is one, a fill after a miss is one.
    pub requests: u64,
    /// Keys in those commands.
    pub keys: u64,
    /// Keys that were read or changed and were there.
    pub hits: u64,
    /// Keys that were not.
    pub misses: u64,
    /// Values written because a read missed.
    pub fills: u64,
    /// Conditional writes the server declined: add of a key that exists and the like.
    pub not_stored: u64,
    /// Commands answered with an error.
    pub failed: u64,
    /// Values read that were never written for their key.
    pub mismatches: u64,
}

impl Tally {
    /// Applies `combine` field by field.
    fn zip(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requests: combine(self.requests, other.requests),
            keys: combine(self.keys, other.keys),
            hits: combine(self.hits, other.hits),
            misses: combine(self.misses, other.misses),
            fills: combine(self.fills, other.fills),
            not_stored: combine(self.not_stored, other.not_stored),
            failed: combine(self.failed, other.failed),
            mismatches: combine(self.mismatches, other.mismatches),
        }
    }

    /// The sum of two tallies.
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    /// What happened since an earlier tally.
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }
}

/// A tally that another thread may read while it grows.
#[derive(Debug, Default)]
pub struct SharedTally([AtomicU64; 8]);

impl SharedTally {
    /// Makes `tally` visible to readers.
    #[inline]
    pub fn publish(&self, tally: &Tally) {
        let fields = [
            tally.requests,
            tally.keys,
            tally.hits,
            tally.misses,
            tally.fills,
            tally.not_stored,
            tally.failed,
            tally.mismatches,
        ];
        for (slot, field) in self.0.iter().zip(fields) {
            slot.store(field, Ordering::Relaxed);
        }
    }

    /// The latest published counts; each is exact, together they may be a few requests apart.
    pub fn read(&self) -> Tally {
        let [requests, keys, hits, misses, fills, not_stored, failed, mismatches] =
            std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed));
        Tally { requests, keys, hits, misses, fills, not_stored, failed, mismatches }
    }
}

/// Latencies by operation.
#[derive(Debug, Default)]
pub struct Latencies {
    by_operation: [Option<Box<Histogram<u64>>>; Operation::ALL.len()],
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are constants that hdrhistogram accepts")
}

impl Latencies {
    /// Counts one latency.
    #[inline]
    pub fn record(&mut self, operation: Operation, nanoseconds: u64) {
        let slot = &mut self.by_operation[operation as usize];
        slot.get_or_insert_with(|| Box::new(histogram())).saturating_record(nanoseconds);
    }

    /// Forgets everything recorded so far, keeping the memory.
    pub fn clear(&mut self) {
        self.by_operation.iter_mut().flatten().for_each(|histogram| histogram.reset());
    }

    /// Adds another thread's latencies.
    pub fn add(&mut self, other: &Self) {
        for (slot, other) in self.by_operation.iter_mut().zip(&other.by_operation) {
            if let Some(other) = other {
                let sum = slot.get_or_insert_with(|| Box::new(histogram()));
                sum.add(other.as_ref()).expect("all histograms have the same bounds");
            }
        }
    }

    /// The figures over all operations.
    pub fn total(&self) -> LatencySummary {
        let mut total = histogram();
        for part in self.by_operation.iter().flatten() {
            total.add(part.as_ref()).expect("all histograms have the same bounds");
        }
        LatencySummary::of(&total)
    }

    /// The figures of every operation that was made.
    pub fn summaries(&self) -> Vec<(Operation, LatencySummary)> {
        let recorded = Operation::ALL.into_iter().zip(&self.by_operation);
        recorded
            .filter_map(|(operation, histogram)| Some((operation, LatencySummary::of(histogram.as_ref()?))))
            .filter(|(_, summary)| summary.count > 0)
            .collect()
    }
}

/// Latency figures in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct LatencySummary {
    /// How many latencies they stand for.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl LatencySummary {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            count: histogram.len(),
            mean: histogram.mean() / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1000.0,
        }
    }
}

/// Everything one thread records.
#[derive(Debug, Default)]
pub struct Recorder {
    /// What happened since the load started.
    pub tally: Tally,
    /// Latencies since the timed phase started.
    pub latencies: Latencies,
    /// Descriptions of the first wrong values.
    pub mismatches: Vec<String>,
    /// The server's words for the first commands that failed.
    pub failures: Vec<String>,
}

impl Recorder {
    /// Counts a wrong value and keeps its description if it is among the first.
    #[cold]
    pub fn mismatch(&mut self, describe: impl FnOnce() -> String) {
        self.tally.mismatches += 1;
        if self.mismatches.len() < EXAMPLES {
            self.mismatches.push(describe());
        }
    }

    /// Counts a command that failed and keeps the server's words if they are among the first.
    #[cold]
    pub fn failure(&mut self, describe: impl FnOnce() -> String) {
        self.tally.failed += 1;
        if self.failures.len() < EXAMPLES {
            self.failures.push(describe());
        }
    }

    /// Adds another thread's record.
    pub fn add(&mut self, other: Self) {
        self.tally = self.tally.plus(other.tally);
        self.latencies.add(&other.latencies);
        self.mismatches.extend(other.mismatches);
        self.mismatches.truncate(EXAMPLES);
        self.failures.extend(other.failures);
        self.failures.truncate(EXAMPLES);
    }
}
