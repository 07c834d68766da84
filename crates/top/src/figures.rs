//! What two scrapes of a process tell together: rates, shares, percentiles, and what is held.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::scrape::{Labels, Scrape, label};

/// What a process did between two moments, and has at the second. `None`: it does not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) version: String,
    pub(crate) ready: Option<bool>,
    /// Commands a second.
    pub(crate) operations: f64,
    /// Those of each kind that there was.
    pub(crate) by_command: Vec<(String, f64)>,
    /// Share of gets that found an item.
    pub(crate) hits: Option<f64>,
    /// Reads a second, by the tier that answered.
    pub(crate) by_tier: Vec<(String, f64)>,
    /// Seconds within which half of all commands were answered, and 99 in 100.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    /// Both by kind of command.
    pub(crate) latencies: Vec<(String, f64, f64)>,
    pub(crate) connections: Option<f64>,
    /// Bytes in and out, a second.
    pub(crate) received: Option<f64>,
    pub(crate) sent: Option<f64>,
    pub(crate) items: Option<f64>,
    /// Bytes of memory, and the limit on those of items.
    pub(crate) memory: f64,
    pub(crate) memory_limit: Option<f64>,
    pub(crate) memory_by_part: Vec<(String, f64)>,
    /// Live items evicted a second.
    pub(crate) evictions: Option<f64>,
    /// Regions of the SSD tier, by state.
    pub(crate) regions: Vec<(String, f64)>,
    /// Bytes written to devices for each byte stored, since the start.
    pub(crate) amplification: Option<f64>,
    /// Bytes a second to and from devices.
    pub(crate) device_written: Option<f64>,
    pub(crate) device_read: Option<f64>,
    /// The hottest key's share of all requests.
    pub(crate) hot: Option<f64>,
    /// Turns of workers a second that took long.
    pub(crate) late: Option<f64>,
    /// Requests a second that waited long.
    pub(crate) slow: Option<f64>,
}

/// Where memory lies: metric, its label, and what is shown before the label's value.
const MEMORY: [(&str, &str, &str); 3] = [
    ("memory_bytes", "part", "items "),
    ("flash_memory_bytes", "part", "flash "),
    ("client_memory_bytes", "kind", "clients "),
];

impl Figures {
    pub(crate) fn of(before: &Scrape, now: &Scrape) -> Self {
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let rate = |name: &str, labels: &[(&str, &str)]| {
            let grown = now.sum(name, labels)? - before.sum(name, labels).unwrap_or(0.0);
            // A process that was restarted began again.
            Some(grown.max(0.0) / seconds)
        };
        let by = |name: &str, of: &str| {
            let values = now.all(name).iter().filter_map(|(labels, _)| label(labels, of));
            let mut all: Vec<(String, f64)> =
                values.filter_map(|value| Some((value.to_owned(), rate(name, &[(of, value)])?))).collect();
            all.dedup_by(|one, other| one.0 == other.0);
            all
        };
        let latencies = Latencies::between(before, now);
        let by_command: Vec<(String, f64)> =
            by("commands_total", "command").into_iter().filter(|(_, rate)| *rate > 0.0).collect();
        let results = |result| rate("command_results_total", &[("command", "get"), ("result", result)]);
        let (hit, miss) = (results("hit").unwrap_or(0.0), results("miss").unwrap_or(0.0));
        let mut memory_by_part: Vec<(String, f64)> = MEMORY
            .iter()
            .flat_map(|(name, of, what)| {
                let parts = now.all(name).iter();
                parts.map(move |(labels, bytes)| (format!("{what}{}", label(labels, of).unwrap_or("")), *bytes))
            })
            .filter(|(_, bytes)| *bytes > 0.0)
            .collect();
        if memory_by_part.is_empty() {
            memory_by_part.extend(now.sum("item_bytes", &[]).map(|bytes| ("items".to_owned(), bytes)));
        }
        Self {
            version: now.label("build_info", "version").unwrap_or_default().to_owned(),
            ready: now.sum("ready", &[]).map(|ready| ready > 0.0),
            operations: by_command.iter().map(|(_, rate)| rate).sum(),
            by_command,
            hits: (hit + miss > 0.0).then(|| hit / (hit + miss)),
            by_tier: by("tier_reads_total", "tier"),
            p50: latencies.percentile(None, 0.5),
            p99: latencies.percentile(None, 0.99),
            latencies: latencies.all(),
            connections: now.sum("connections", &[]),
            received: rate("received_bytes_total", &[]),
            sent: rate("sent_bytes_total", &[]),
            items: now.sum("flash_items", &[]).or_else(|| now.sum("items", &[])),
            memory: memory_by_part.iter().map(|(_, bytes)| bytes).sum(),
            memory_limit: now.sum("memory_limit_bytes", &[]),
            memory_by_part,
            evictions: rate("evictions_total", &[]),
            regions: now
                .all("flash_regions")
                .iter()
                .map(|(labels, count)| (label(labels, "state").unwrap_or("").to_owned(), *count))
                .collect(),
            amplification: now.sum("flash_write_amplification", &[]),
            device_written: rate("flash_device_written_bytes_total", &[]),
            device_read: rate("flash_device_read_bytes_total", &[]),
            hot: now.sum("hot_key_ratio", &[("of", "requests")]),
            late: rate("worker_late_turns_total", &[]),
            slow: rate("slow_requests_total", &[]),
        }
    }

    /// For programs: rates a second, shares of 1, seconds, bytes.
    pub(crate) fn as_json(&self) -> Value {
        let map = |list: &[(String, f64)]| -> Map<String, Value> {
            list.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
        };
        let latencies: Map<String, Value> =
            self.latencies.iter().map(|(name, p50, p99)| (name.clone(), json!({ "p50": p50, "p99": p99 }))).collect();
        json!({
            "version": self.version,
            "ready": self.ready,
            "operations": self.operations,
            "by_command": map(&self.by_command),
            "hits": self.hits,
            "reads_by_tier": map(&self.by_tier),
            "p50": self.p50,
            "p99": self.p99,
            "latencies": latencies,
            "connections": self.connections,
            "received_bytes": self.received,
            "sent_bytes": self.sent,
            "items": self.items,
            "memory_bytes": self.memory,
            "memory_limit_bytes": self.memory_limit,
            "memory_by_part": map(&self.memory_by_part),
            "evictions": self.evictions,
            "regions": map(&self.regions),
            "write_amplification": self.amplification,
            "device_written_bytes": self.device_written,
            "device_read_bytes": self.device_read,
            "hottest_key_share": self.hot,
            "late_turns": self.late,
            "slow_requests": self.slow,
        })
    }
}

/// Times of commands between two moments: how many took less than each bound, by kind.
struct Latencies(BTreeMap<String, Vec<(f64, f64)>>);

impl Latencies {
    fn between(before: &Scrape, now: &Scrape) -> Self {
        const NAME: &str = "command_duration_seconds_bucket";
        // Of all policies together.
        let bound =
            |(labels, _): &(Labels, f64)| Some((label(labels, "command")?.to_owned(), label(labels, "le")?.to_owned()));
        let bounds: BTreeSet<(String, String)> = now.all(NAME).iter().filter_map(bound).collect();
        let mut all: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (command, bound) in bounds {
            let Ok(seconds) = bound.replace("+Inf", "inf").parse() else { continue };
            let of = [("command", command.as_str()), ("le", bound.as_str())];
            let grown = now.sum(NAME, &of).unwrap_or(0.0) - before.sum(NAME, &of).unwrap_or(0.0);
            all.entry(command).or_default().push((seconds, grown.max(0.0)));
        }
        all.values_mut().for_each(|bounds| bounds.sort_by(|one, other| one.0.total_cmp(&other.0)));
        Self(all)
    }

    /// Seconds below which this share of the commands of a kind, or of all, was answered: between two bounds in proportion.
    fn percentile(&self, command: Option<&str>, share: f64) -> Option<f64> {
        let of = self.0.iter().filter(|(name, _)| command.is_none_or(|command| command == *name));
        let mut bounds: Vec<(f64, f64)> = Vec::new();
        for (_, counts) in of {
            if bounds.is_empty() {
                bounds.clone_from(counts);
            } else {
                bounds.iter_mut().zip(counts).for_each(|(sum, (_, count))| sum.1 += count);
            }
        }
        let (_, all) = bounds.last().copied().filter(|(_, all)| *all > 0.0)?;
        let wanted = all * share;
        let place = bounds.iter().position(|(_, count)| *count >= wanted)?;
        let (low, below) = if place == 0 { (0.0, 0.0) } else { bounds[place - 1] };
        let (high, count) = bounds[place];
        if high.is_infinite() {
            return Some(low);
        }
        Some(low + (high - low) * ((wanted - below) / (count - below).max(1e-9)).clamp(0.0, 1.0))
    }

    fn all(&self) -> Vec<(String, f64, f64)> {
        let both =
            |name: &String| Some((name.clone(), self.percentile(Some(name), 0.5)?, self.percentile(Some(name), 0.99)?));
        self.0.keys().filter_map(both).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn page(times: f64) -> String {
        let bucket = |le: &str, count: f64| {
            format!("moneta_command_duration_seconds_bucket{{command=\"get\",le=\"{le}\"}} {}\n", count * times)
        };
        format!(
            "moneta_build_info{{version=\"1\"}} 1\nmoneta_ready 1\nmoneta_commands_total{{command=\"get\"}} {0}\n\
             moneta_commands_total{{command=\"set\"}} {1}\nmoneta_commands_total{{command=\"incr\"}} 5\n\
             moneta_command_results_total{{command=\"get\",result=\"hit\"}} {2}\n\
             moneta_command_results_total{{command=\"get\",result=\"miss\"}} {3}\n\
             moneta_memory_bytes{{part=\"logs\"}} 100\nmoneta_flash_memory_bytes{{part=\"index\"}} 11\n{4}{5}{6}",
            100.0 * times,
            20.0 * times,
            75.0 * times,
            25.0 * times,
            bucket("0.001", 50.0),
            bucket("0.002", 100.0),
            bucket("+Inf", 100.0)
        )
    }

    #[test]
    fn rates_and_percentiles_are_of_the_time_between() {
        let began = Instant::now();
        let before = Scrape::parse(began, &page(1.0));
        let now = Scrape::parse(began + Duration::from_secs(2), &page(3.0));
        let figures = Figures::of(&before, &now);
        assert_eq!(figures.by_command, [("get".into(), 100.0), ("set".into(), 20.0)]);
        assert_eq!((figures.operations, figures.hits, figures.memory), (120.0, Some(0.75), 111.0));
        assert_eq!((figures.p50, figures.ready), (Some(0.001), Some(true)));
        assert!(figures.p99.is_some_and(|p99| (p99 - 0.00198).abs() < 1e-9), "{:?}", figures.p99);
        assert_eq!(figures.amplification, None);
    }

    #[test]
    fn a_process_that_began_again_has_no_negative_rates() {
        let began = Instant::now();
        let before = Scrape::parse(began, &page(9.0));
        let figures = Figures::of(&before, &Scrape::parse(began + Duration::from_secs(1), &page(1.0)));
        assert_eq!((figures.operations, figures.hits, figures.p99), (0.0, None, None));
    }
}
