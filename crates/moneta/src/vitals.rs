//! Numbers that go with renewals at a control plane.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use moneta_process::desk::Watched;
use moneta_store::metric::{Histogram, Sample, Value as MetricValue};
use serde_json::{Map, Value};

/// Rates are of so long at least.
const OVER: Duration = Duration::from_secs(1);
/// Reasons of failed requests that are no fault of what asked.
const FAULTS: [&str; 3] = ["too_large", "no_memory", "store"];

/// What tells this run of the process from others.
static BOOT: LazyLock<(u32, Instant)> = LazyLock::new(|| {
    let drawn = getrandom::u32().unwrap_or_else(|_| std::process::id());
    (drawn, Instant::now())
});

/// Numbers of a process.
pub struct Vitals {
    watched: Watched,
    before: Option<(Instant, u64, Histogram)>,
}

impl Vitals {
    /// Those of the process that is watched.
    pub fn of(watched: Watched) -> Self {
        LazyLock::force(&BOOT);
        Self { watched, before: None }
    }

    /// As they are now.
    pub fn now(&mut self) -> Map<String, Value> {
        let samples = self.watched.samples();
        let is_get = |sample: &&Sample| sample.labels.iter().any(|label| label == "get");
        let named = |name: &'static str| samples.iter().filter(move |sample| sample.metric.name == name);
        let mut vitals = Map::new();
        // With an SSD tier that has all of them.
        if let Some(items) = named("flash_items").next().or_else(|| named("items").next()) {
            vitals.insert("items".into(), (items.value.number() as u64).into());
        }
        let (drawn, began) = *BOOT;
        vitals.insert("boot".into(), drawn.into());
        vitals.insert("uptime_s".into(), began.elapsed().as_secs().into());
        let sum = |of: &mut dyn Iterator<Item = &Sample>| of.map(|sample| sample.value.number() as u64).sum::<u64>();
        vitals.insert("requests".into(), sum(&mut named("commands_total")).into());
        vitals.insert("errors".into(), sum(&mut samples.iter().filter(|sample| is_fault(sample))).into());
        let gets = named("commands_total").find(is_get).map_or(0, |sample| sample.value.number() as u64);
        let times = named("command_duration_seconds").find(is_get).and_then(|sample| match &sample.value {
            MetricValue::Histogram(times) => Some(times.clone()),
            _ => None,
        });
        let (now, times) = (Instant::now(), times.unwrap_or_default());
        if let Some((at, before, times_before)) = &self.before {
            let seconds = now.duration_since(*at).as_secs_f64();
            vitals.insert("gets_s".into(), (gets.saturating_sub(*before) as f64 / seconds).round().into());
            if let Some(p99) = p99_since(&times, times_before) {
                vitals.insert("p99_us".into(), (p99 * 1e6).round().into());
            }
        }
        if self.before.as_ref().is_none_or(|(at, ..)| now.duration_since(*at) >= OVER) {
            self.before = Some((now, gets, times));
        }
        vitals
    }
}

/// Whether it counts requests that were understood and failed, or were refused by a limit on what clients do in a second.
fn is_fault(sample: &Sample) -> bool {
    let has = |words: &[&str]| sample.labels.iter().any(|label| words.contains(&label.as_str()));
    match sample.metric.name {
        "request_errors_total" => has(&FAULTS),
        name => name.ends_with("_limits_refused_total") && has(&["operations", "bytes"]),
    }
}

/// The bound in seconds below which 99 of 100 values are that were added since; `None`: none were, or it is above all bounds.
fn p99_since(now: &Histogram, before: &Histogram) -> Option<f64> {
    let was = |place: usize| before.buckets.get(place).map_or(0, |(_, count)| *count);
    let added: Vec<(f64, u64)> = now
        .buckets
        .iter()
        .enumerate()
        .map(|(place, (bound, count))| (*bound, count.saturating_sub(was(place))))
        .collect();
    let all: u64 = added.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    let reached = added.iter().find(|(_, count)| {
        below += count;
        all > 0 && below * 100 >= all * 99
    });
    reached.map(|(bound, _)| *bound).filter(|bound| bound.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_hundredth_is_of_what_came_since() {
        let of = |counts: [u64; 3]| Histogram {
            buckets: [0.1, 0.2, f64::INFINITY].into_iter().zip(counts).collect(),
            sum: 0.0,
        };
        assert_eq!(p99_since(&of([1000, 0, 0]), &of([1000, 0, 0])), None);
        assert_eq!(p99_since(&of([1099, 1, 0]), &of([1000, 0, 0])), Some(0.1));
        assert_eq!(p99_since(&of([1090, 10, 0]), &of([1000, 0, 0])), Some(0.2));
        assert_eq!(p99_since(&of([1000, 0, 9]), &of([1000, 0, 0])), None);
    }
}
