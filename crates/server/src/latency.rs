//! Service times by worker and kind of command, in fixed log-linear histograms.
//!
//! A command is timed until its reply is written, also where it waits for the store meanwhile: for an SSD, or for the nodes of a
//! proxy.
//!
//! One command in [`SAMPLE`] is timed and counted [`SAMPLE`] times. In a virtual machine, reading the clock twice can cost as
//! much as a whole `get` from RAM; sampled, it costs two or three nanoseconds a command, and percentiles do not change.

use std::time::Instant;

pub use moneta_store::latency::{Kind, SAMPLE};

use moneta_store::scale::Scale;
use moneta_store::{OwnCounter, Policy};

/// Buckets: the first ends at 64 ns, and up to 17 s four of each power of two follow, so a bound is at most 25 % above the value.
pub type Buckets = Scale<6, 2, BUCKETS>;
/// How many: the last takes everything longer.
pub const BUCKETS: usize = 2 + (28 << 2);

/// One worker's histogram of one kind of command.
#[derive(Debug)]
pub struct Histogram {
    buckets: [OwnCounter; BUCKETS],
    sum: OwnCounter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| OwnCounter::default()), sum: OwnCounter::default() }
    }
}

impl Histogram {
    /// Counts `times` commands that took `nanoseconds` each. Only the worker that owns the histogram may call this.
    #[inline]
    pub fn record(&self, nanoseconds: u64, times: u64) {
        self.buckets[Buckets::bucket(nanoseconds)].add(times);
        self.sum.add(nanoseconds.wrapping_mul(times));
    }
}

/// One worker's histograms.
#[derive(Debug, Default)]
pub struct Latencies {
    histograms: [Histogram; Kind::ALL.len()],
    /// Commands until the next one that is timed.
    until_sample: OwnCounter,
}

impl Latencies {
    /// The histogram of `kind`.
    #[inline]
    pub fn of(&self, kind: Kind) -> &Histogram {
        &self.histograms[kind as usize]
    }

    /// The command of `kind` that is timed since `started` is answered.
    #[cold]
    pub(crate) fn record(&self, kind: Kind, started: Instant) {
        let nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.of(kind).record(nanoseconds, SAMPLE);
    }
}

/// One worker's histograms, by the policy of the listeners that its clients came through: what moves items in bulk is judged by what
/// the others have to wait.
#[derive(Debug, Default)]
pub struct LatenciesByPolicy {
    online: Latencies,
    batch: Latencies,
}

impl LatenciesByPolicy {
    /// Those of a policy.
    #[inline]
    pub fn of(&self, policy: Policy) -> &Latencies {
        match policy {
            Policy::Online => &self.online,
            Policy::Batch => &self.batch,
        }
    }
}

/// Picks the commands that are timed, one in [`SAMPLE`].
pub(crate) struct Stopwatch<'a> {
    latencies: &'a Latencies,
    started: Option<Started>,
}

/// A command that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// Since when.
    pub(crate) at: Instant,
    /// Bytes that were in the output then.
    pub(crate) output: usize,
}

impl<'a> Stopwatch<'a> {
    /// A stopped stopwatch.
    #[inline]
    pub(crate) fn new(latencies: &'a Latencies) -> Self {
        Self { latencies, started: None }
    }

    /// A command may begin, with so many bytes in the output. True if it is timed from now on.
    #[inline]
    pub(crate) fn begin(&mut self, output: usize) -> bool {
        let begins = self.latencies.until_sample.get() == 0 && self.started.is_none();
        if begins {
            self.started = Some(Started { at: Instant::now(), output });
        }
        begins
    }

    /// A command was executed: it is answered, or waits for the store. Tells since when it is timed, if it is; the caller records
    /// it ([`Latencies::record`]) once it is answered.
    #[inline]
    pub(crate) fn end(&mut self) -> Option<Started> {
        let started = self.started.take();
        match started {
            None => self.latencies.until_sample.drop_one(),
            Some(_) => self.latencies.until_sample.add(SAMPLE - 1),
        }
        started
    }
}

/// A histogram summed over workers.
#[derive(Clone, Debug)]
pub struct HistogramTotals {
    /// Commands per bucket; [`Buckets`] has the bounds.
    pub buckets: [u64; BUCKETS],
    /// Sum of all times, in nanoseconds.
    pub sum: u64,
}

impl HistogramTotals {
    /// Commands counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Histograms of all kinds, summed over workers.
#[derive(Clone, Debug)]
pub struct LatencyTotals([HistogramTotals; Kind::ALL.len()]);

impl Default for LatencyTotals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| HistogramTotals { buckets: [0; BUCKETS], sum: 0 }))
    }
}

impl LatencyTotals {
    /// Adds one worker's histograms.
    pub fn add(&mut self, worker: &Latencies) {
        for (total, histogram) in self.0.iter_mut().zip(&worker.histograms) {
            for (sum, bucket) in total.buckets.iter_mut().zip(&histogram.buckets) {
                *sum += bucket.get();
            }
            total.sum = total.sum.wrapping_add(histogram.sum.get());
        }
    }

    /// The histogram of `kind`.
    pub fn of(&self, kind: Kind) -> &HistogramTotals {
        &self.0[kind as usize]
    }
}

impl HistogramTotals {
    /// The buckets that are not empty, as `BOUND:COUNT,…`, where a bound is in nanoseconds and `inf` above all.
    pub fn words(&self) -> String {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let word = |(index, count): (usize, &u64)| match Buckets::bound(index) {
            Some(bound) => format!("{bound}:{count}"),
            None => format!("inf:{count}"),
        };
        filled.map(word).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_in_a_sample_is_timed_and_stands_for_all() {
        let latencies = Latencies::default();
        for _ in 0..10 * SAMPLE {
            let mut stopwatch = Stopwatch::new(&latencies);
            stopwatch.begin(0);
            if let Some(started) = stopwatch.end() {
                latencies.record(Kind::Get, started.at);
            }
        }
        let mut totals = LatencyTotals::default();
        totals.add(&latencies);
        assert_eq!(totals.of(Kind::Get).count(), 10 * SAMPLE);
    }

    #[test]
    fn totals_sum_workers() {
        let (one, two) = (Latencies::default(), Latencies::default());
        one.of(Kind::Get).record(100, 8);
        two.of(Kind::Get).record(100, 1);
        let mut totals = LatencyTotals::default();
        totals.add(&one);
        totals.add(&two);
        assert_eq!((totals.of(Kind::Get).count(), totals.of(Kind::Get).sum), (9, 900));
        assert_eq!(totals.of(Kind::Set).count(), 0);
    }
}
