//! Numbers of a node or a proxy in one page, for consoles: `GET /vitals` has items, memory by part, connections, rates, hit rates by
//! tier and how long gets take; `GET /regions` has the SSD tier's regions by state.
//!
//! Both are made of the metrics that `/metrics` has. Rates are those since an earlier look, [`RATES_OVER`] to [`RATES_KEPT`] ago; the
//! first look in a while has none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use moneta_admin::answer::{self, unavailable};
use moneta_admin::ask::ask;
use moneta_process::desk::Observed as _;
use moneta_store::metric::{Histogram, Sample, Value as MetricValue};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::Shown;

/// Time limit of a look.
const WITHIN: Duration = Duration::from_secs(3);
/// Rates are over so long at the least, so that one request more or less says little.
const RATES_OVER: Duration = Duration::from_secs(1);
/// And at the most: what is longer ago says nothing of now.
const RATES_KEPT: Duration = Duration::from_secs(60);
/// Earlier looks that are kept.
const LOOKS: usize = 8;
/// Commands whose rates are told.
const COMMANDS: [&str; 4] = ["get", "set", "delete", "touch"];

/// Earlier looks, the latest last.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<VecDeque<(Instant, Counted)>>);

/// What only grows.
#[derive(Clone, Debug, Default)]
struct Counted {
    commands: [f64; COMMANDS.len()],
    hits: f64,
    misses: f64,
    received: f64,
    sent: f64,
    evictions: f64,
    /// Reads by the tier that answered.
    tiers: Vec<(String, f64)>,
    get_times: Histogram,
}

/// The numbers.
pub(super) async fn vitals(State(shown): State<Arc<Shown>>) -> Response {
    let observed = Arc::clone(&shown.observed);
    match ask(&shown.vitals, WITHIN, move || observed.samples()).await {
        Ok(samples) => answer::json(StatusCode::OK, &page(&samples, &shown.looks, Instant::now())),
        Err(_) => unavailable("the store does not answer"),
    }
}

/// The regions of the SSD tier; not there on other servers.
pub(super) async fn regions(State(shown): State<Arc<Shown>>) -> Response {
    let observed = Arc::clone(&shown.observed);
    let Ok(samples) = ask(&shown.vitals, WITHIN, move || observed.samples()).await else {
        return unavailable("the store does not answer");
    };
    match of_regions(&samples) {
        Some(page) => answer::json(StatusCode::OK, &page),
        None => (StatusCode::NOT_FOUND, "this server has no SSD tier\n").into_response(),
    }
}

fn named<'a>(samples: &'a [Sample], name: &'static str) -> impl Iterator<Item = &'a Sample> {
    samples.iter().filter(move |sample| sample.metric.name == name)
}

/// The sum of a metric's samples that have all these labels.
fn sum(samples: &[Sample], name: &'static str, labels: &[&str]) -> f64 {
    let has = |sample: &&Sample| labels.iter().all(|label| sample.labels.iter().any(|known| known == label));
    named(samples, name).filter(has).map(|sample| sample.value.number()).sum()
}

fn whole(number: f64) -> Value {
    (number.max(0.0) as u64).into()
}

/// Values by the only label.
fn by_label(samples: &[Sample], name: &'static str) -> Map<String, Value> {
    let one = |sample: &Sample| Some((sample.labels.first()?.clone(), whole(sample.value.number())));
    named(samples, name).filter_map(one).collect()
}

fn page(samples: &[Sample], looks: &Looks, now: Instant) -> Value {
    let counted = Counted::of(samples);
    let has_ssd = named(samples, "flash_items").next().is_some();
    let items = if has_ssd { sum(samples, "flash_items", &[]) } else { sum(samples, "items", &[]) };
    let mut memory = by_label(samples, "memory_bytes");
    memory.extend(
        by_label(samples, "flash_memory_bytes").into_iter().map(|(part, bytes)| (format!("ssd {part}"), bytes)),
    );
    memory.insert("clients".into(), whole(sum(samples, "client_memory_bytes", &[])));
    let since_start = looks.rates(&counted, now);
    let (rates, times) = match &since_start {
        Some((rates, times)) => (rates.clone(), times),
        None => (Value::Null, &counted.get_times),
    };
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "at": time.as_millis() as u64,
        "items": whole(items),
        "item_bytes": whole(sum(samples, "item_bytes", &[])),
        "memory_limit_bytes": whole(sum(samples, "memory_limit_bytes", &[])),
        "memory": memory,
        "connections": whole(sum(samples, "connections", &[])),
        "connections_limit": whole(sum(samples, "connections_limit", &[])),
        "hit_rate": share(counted.hits, counted.misses),
        "tiers": tiers(samples, &counted),
        "rates": rates,
        "get_us": { "p50": percentile(times, 50), "p99": percentile(times, 99) },
        "evictions": whole(counted.evictions),
    })
}

/// Items and reads by tier, since the start.
fn tiers(samples: &[Sample], counted: &Counted) -> Vec<Value> {
    let reads: f64 = counted.tiers.iter().map(|(_, reads)| reads).sum();
    let items = by_label(samples, "tier_items");
    let one = |(tier, answered): &(String, f64)| {
        let share = if reads > 0.0 { json!(answered / reads) } else { Value::Null };
        json!({ "tier": tier, "items": items.get(tier), "reads": whole(*answered), "share": share })
    };
    counted.tiers.iter().map(one).collect()
}

fn of_regions(samples: &[Sample]) -> Option<Value> {
    named(samples, "flash_regions").next()?;
    let number = |name| whole(sum(samples, name, &[]));
    Some(json!({
        "states": by_label(samples, "flash_regions"),
        "region_bytes": number("flash_region_bytes"),
        "device_bytes": number("flash_device_bytes"),
        "items": number("flash_items"),
        "filled": number("flash_regions_filled_total"),
        "oldest_age_s": number("flash_oldest_age_seconds"),
        "written_bytes": number("flash_device_written_bytes_total"),
        "write_amplification": sum(samples, "flash_write_amplification", &[]),
        "checksum_failures": number("flash_checksum_failures_total"),
        "io_errors": number("flash_io_errors_total"),
        "devices_gone": number("flash_devices_gone"),
        "off": sum(samples, "flash_off", &[]) > 0.0,
    }))
}

impl Counted {
    fn of(samples: &[Sample]) -> Self {
        let is_get = |sample: &&Sample| sample.labels.iter().any(|label| label == "get");
        let times = named(samples, "command_duration_seconds").find(is_get).and_then(|sample| match &sample.value {
            MetricValue::Histogram(times) => Some(times.clone()),
            _ => None,
        });
        let tier = |sample: &Sample| Some((sample.labels.first()?.clone(), sample.value.number()));
        Self {
            commands: COMMANDS.map(|command| sum(samples, "commands_total", &[command])),
            hits: sum(samples, "command_results_total", &["get", "hit"]),
            misses: sum(samples, "command_results_total", &["get", "miss"]),
            received: sum(samples, "received_bytes_total", &[]),
            sent: sum(samples, "sent_bytes_total", &[]),
            evictions: sum(samples, "evictions_total", &[]),
            tiers: named(samples, "tier_reads_total").filter_map(tier).collect(),
            get_times: times.unwrap_or_default(),
        }
    }
}

impl Looks {
    /// Rates since an earlier look, and the times of gets since; this look is kept for later ones.
    fn rates(&self, now: &Counted, at: Instant) -> Option<(Value, Histogram)> {
        let mut looks = self.0.lock();
        looks.retain(|(when, _)| at.duration_since(*when) <= RATES_KEPT);
        let before = looks.iter().rev().find(|(when, _)| at.duration_since(*when) >= RATES_OVER);
        let rates = before.map(|(when, before)| {
            let seconds = at.duration_since(*when).as_secs_f64();
            let a_second = |now: f64, before: f64| json!(((now - before).max(0.0) / seconds * 10.0).round() / 10.0);
            let mut rates = Map::new();
            for (place, command) in COMMANDS.into_iter().enumerate() {
                rates.insert(format!("{command}_s"), a_second(now.commands[place], before.commands[place]));
            }
            rates.insert("over_s".into(), json!((seconds * 10.0).round() / 10.0));
            rates.insert("hits_s".into(), a_second(now.hits, before.hits));
            rates.insert("misses_s".into(), a_second(now.misses, before.misses));
            rates.insert("hit_rate".into(), share(now.hits - before.hits, now.misses - before.misses));
            rates.insert("received_bytes_s".into(), a_second(now.received, before.received));
            rates.insert("sent_bytes_s".into(), a_second(now.sent, before.sent));
            rates.insert("evictions_s".into(), a_second(now.evictions, before.evictions));
            let was = |place: usize| before.get_times.buckets.get(place).map_or(0, |(_, count)| *count);
            let mut times = now.get_times.clone();
            for (place, (_, count)) in times.buckets.iter_mut().enumerate() {
                *count = count.saturating_sub(was(place));
            }
            (rates.into(), times)
        });
        // Many who look at once leave each other something that is old enough.
        if looks.back().is_none_or(|(when, _)| at.duration_since(*when) >= RATES_OVER) {
            if looks.len() == LOOKS {
                looks.pop_front();
            }
            looks.push_back((at, now.clone()));
        }
        rates
    }
}

fn share(hits: f64, misses: f64) -> Value {
    if hits + misses > 0.0 { json!(hits / (hits + misses)) } else { Value::Null }
}

/// The bound in microseconds below which so many of a hundred values are; `null`: there are none, or it is above all bounds.
fn percentile(times: &Histogram, of_hundred: u64) -> Value {
    let all: u64 = times.buckets.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    let reached = times.buckets.iter().find(|(_, count)| {
        below += count;
        all > 0 && below * 100 >= all * of_hundred
    });
    let bound = reached.map(|(bound, _)| *bound).filter(|bound| bound.is_finite());
    bound.map_or(Value::Null, |bound| json!((bound * 1e7).round() / 10.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(gets: f64, hits: f64) -> Counted {
        Counted { commands: [gets, 0.0, 0.0, 0.0], hits, misses: gets - hits, ..Counted::default() }
    }

    #[test]
    fn rates_are_those_since_an_earlier_look_and_no_older_one() {
        let (looks, begin) = (Looks::default(), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        assert!(looks.rates(&counted(100.0, 50.0), at(0)).is_none());
        assert!(looks.rates(&counted(110.0, 60.0), at(500)).is_none(), "too short a time says nothing");
        let (rates, _) = looks.rates(&counted(300.0, 200.0), at(2_000)).unwrap();
        assert_eq!((&rates["get_s"], &rates["hit_rate"], &rates["over_s"]), (&json!(100.0), &json!(0.75), &json!(2.0)));
        // A reader that comes at once sees the same stretch, not one of no length.
        let (rates, _) = looks.rates(&counted(300.0, 200.0), at(2_100)).unwrap();
        assert_eq!(rates["over_s"], 2.1);
        assert!(looks.rates(&counted(900.0, 500.0), at(70_000)).is_none(), "a minute ago is not now");
    }

    #[test]
    fn a_percentile_is_the_bound_that_so_many_are_below() {
        let times = Histogram { buckets: vec![(1e-6, 90), (1e-3, 9), (f64::INFINITY, 1)], ..Histogram::default() };
        assert_eq!(
            [50, 90, 99, 100].map(|of| percentile(&times, of)),
            [json!(1.0), json!(1.0), json!(1000.0), Value::Null]
        );
        assert_eq!(percentile(&Histogram::default(), 99), Value::Null);
    }
}
