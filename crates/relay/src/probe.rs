//! A probe: a key a second is written in the other region and looked for here, as a client there and one here would.
//!
//! Each of a few keys in turn is given the next number. What is measured is the time from the answer of the write there until this
//! region's near copy shows that number or a later one. Whatever shows a number below one that it has shown before has gone back in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_background::Task;
use moneta_store::metric::{Histogram, Metric, Reading, Unit, Values};
use moneta_store::request::{Exptime, Write};
use moneta_store::steps::finish;
use moneta_store::{Cx, Key, Lookup, Op, Policy, Store, StoreError, Unseen};
use parking_lot::Mutex;
use serde::Serialize;

/// How often a key is written.
const EVERY: Duration = Duration::from_secs(1);
/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long it is looked for, until it counts as late; the next one is written then.
const WITHIN: Duration = Duration::from_secs(10);
/// Keys that are written in turn.
const KEYS: u64 = 8;
/// How long they live, in seconds.
const LIFE: i64 = 3600;
/// Times of which the page tells: those of an hour.
const TIMES: usize = 3600;
/// Bounds of the histogram, in seconds.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.4, 1.0, 2.0, 5.0, f64::INFINITY];

/// What a probe has seen.
#[derive(Default)]
pub struct Probe {
    seen: Mutex<Seen>,
    task: Mutex<Option<Task>>,
    next: AtomicU64,
}

/// Its counts.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    buckets: [u64; BOUNDS.len()],
    sum: f64,
    /// The last times, in milliseconds; the oldest is replaced.
    times: Vec<f64>,
    at: usize,
    written: u64,
    unwritten: u64,
    late: u64,
    older: u64,
}

/// What the page tells.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// Keys that were written there.
    pub written: u64,
    /// Writes that failed there.
    pub unwritten: u64,
    /// Keys that were not seen here in time.
    pub late: u64,
    /// Reads here of a value that is older than one read before.
    pub older: u64,
    /// Half of the last hour's were seen within so many milliseconds.
    pub p50_ms: Option<f64>,
    /// And 99 of 100 of them.
    pub p99_ms: Option<f64>,
}

pub(crate) const TABLE: &[Reading<Seen>] = &[
    Metric::histogram(
        "relay_probe_seconds",
        Unit::Seconds,
        "Time until what the probe wrote in the other region was read here.",
    )
    .read(|seen| Values::from(seen.histogram())),
    Metric::counter("relay_probe_writes_total", Unit::Count, "Keys that the probe wrote in the other region.")
        .read(|seen| seen.written.into()),
    Metric::counter("relay_probe_failures_total", Unit::Count, "Writes of the probe that failed there.")
        .read(|seen| seen.unwritten.into()),
    Metric::counter(
        "relay_probe_late_total",
        Unit::Count,
        "Keys of the probe that were not read here within 10 seconds.",
    )
    .read(|seen| seen.late.into()),
    Metric::counter(
        "relay_probe_older_total",
        Unit::Count,
        "Reads of the probe that showed a value older than one it had read before.",
    )
    .read(|seen| seen.older.into()),
];

impl Seen {
    fn note(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let place = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len() - 1);
        self.buckets[place] += 1;
        self.sum += seconds;
        let milliseconds = seconds * 1000.0;
        if self.times.len() < TIMES {
            self.times.push(milliseconds);
        } else {
            self.times[self.at] = milliseconds;
        }
        self.at = (self.at + 1) % TIMES;
    }

    fn histogram(&self) -> Histogram {
        Histogram { buckets: BOUNDS.into_iter().zip(self.buckets).collect(), sum: self.sum }
    }

    /// The time within which this share of the last hour's were seen.
    fn within(&self, share: f64) -> Option<f64> {
        let mut times = self.times.clone();
        times.sort_unstable_by(f64::total_cmp);
        let place = ((times.len() as f64 * share).ceil() as usize).checked_sub(1)?;
        times.get(place).map(|time| (time * 1000.0).round() / 1000.0)
    }
}

impl Probe {
    /// Writes to `there` and looks `here`, once a second, until [`Probe::close`]. `name` keeps its keys apart from those of others.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn start(there: Arc<dyn Store>, here: Arc<dyn Store>, name: &str) -> std::io::Result<Arc<Self>> {
        let probe = Arc::<Self>::default();
        let keys: Vec<String> = (0..KEYS).map(|number| format!("moneta.probe.{name}.{number}")).collect();
        let running = Arc::clone(&probe);
        let task = moneta_background::start("relay-probe", move |run| {
            let cx = Cx::outside().under(Policy::Online);
            let mut last = vec![0; keys.len()];
            while !run.is_stopped() {
                let began = Instant::now();
                let number = running.next.fetch_add(1, Ordering::Relaxed);
                let place = (number % KEYS) as usize;
                let (key, value) = (keys[place].as_bytes(), number + 1);
                let is_over = || run.is_stopped();
                running.once((&*there, &*here), &cx, key, (value, &mut last[place]), &is_over);
                run.sleep(EVERY.saturating_sub(began.elapsed()));
            }
        })?;
        *probe.task.lock() = Some(task);
        Ok(probe)
    }

    /// Ends it.
    pub fn close(&self) {
        if let Some(task) = self.task.lock().take() {
            task.stop();
            task.join();
        }
    }

    fn once(
        &self,
        (there, here): (&dyn Store, &dyn Store),
        cx: &Cx,
        key: &[u8],
        (value, last): (u64, &mut u64),
        is_over: &dyn Fn() -> bool,
    ) {
        let text = value.to_string();
        let request = Write { exptime: Exptime(LIFE), ..Write::default() };
        let step = there.call(cx, &Key::new(key, there.seed()), Op::Write(text.as_bytes(), &request), &mut Unseen);
        if pollster::block_on(finish(step)).is_err() {
            self.seen.lock().unwritten += 1;
            return;
        }
        self.seen.lock().written += 1;
        let from = Instant::now();
        while from.elapsed() < WITHIN && !is_over() {
            if let Ok(Some(seen)) = look(here, cx, key) {
                if seen < *last {
                    self.seen.lock().older += 1;
                    tracing::error!(
                        seen,
                        before = *last,
                        "the probe has read a value older than one that it had read before"
                    );
                }
                *last = seen.max(*last);
                if seen >= value {
                    self.seen.lock().note(from.elapsed());
                    return;
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if !is_over() {
            self.seen.lock().late += 1;
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// What the page tells of it.
    pub fn report(&self) -> ProbeReport {
        let seen = self.seen();
        ProbeReport {
            written: seen.written,
            unwritten: seen.unwritten,
            late: seen.late,
            older: seen.older,
            p50_ms: seen.within(0.5),
            p99_ms: seen.within(0.99),
        }
    }
}

/// The number that a key shows here.
fn look(here: &dyn Store, cx: &Cx, key: &[u8]) -> Result<Option<u64>, StoreError> {
    let step = here.call(cx, &Key::new(key, here.seed()), Op::Peek, &mut Unseen);
    Ok(match pollster::block_on(finish(step))?.lookup() {
        Lookup::Found(item) => std::str::from_utf8(&item.value).ok().and_then(|text| text.parse().ok()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_times_are_of_the_last_hour() {
        let mut seen = Seen::default();
        assert_eq!(seen.within(0.5), None);
        (1..=100).for_each(|time| seen.note(Duration::from_millis(time)));
        assert_eq!((seen.within(0.5), seen.within(0.99)), (Some(50.0), Some(99.0)));
        (0..TIMES).for_each(|_| seen.note(Duration::from_secs(20)));
        assert_eq!(seen.within(0.5), Some(20_000.0));
        let histogram = seen.histogram();
        assert_eq!((histogram.count(), histogram.buckets.last()), (3700, Some(&(f64::INFINITY, TIMES as u64))));
        assert_eq!(histogram.buckets[4], (0.1, 50), "those above the bound before it");
    }
}
