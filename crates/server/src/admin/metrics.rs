//! The table of metrics: name, help, and source of each value. docs/metrics.md documents the same metrics.

use super::collector::Snapshot;
use crate::client_memory::Kind;
use crate::counters::Totals;
use crate::latency::{self, HistogramTotals};

/// Whether a metric only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Never decreases while the process lives; gets the suffix `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// A sample's labels.
pub(super) type Labels = Vec<(&'static str, &'static str)>;

/// One metric.
pub(super) struct Metric {
    /// Name, without `_total`.
    pub(super) name: &'static str,
    /// Help text.
    pub(super) help: &'static str,
    /// Counter or gauge.
    pub(super) sort: Sort,
    /// Its samples.
    pub(super) read: fn(&Snapshot) -> Vec<(Labels, u64)>,
}

/// A counter.
pub(super) const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&Snapshot) -> Vec<(Labels, u64)>,
) -> Metric {
    Metric { name, help, sort: Sort::Counter, read }
}

/// A gauge.
pub(super) const fn gauge(name: &'static str, help: &'static str, read: fn(&Snapshot) -> Vec<(Labels, u64)>) -> Metric {
    Metric { name, help, sort: Sort::Gauge, read }
}

/// One sample without labels.
pub(super) fn one(value: u64) -> Vec<(Labels, u64)> {
    vec![(Vec::new(), value)]
}

/// A sample for each value of one label.
pub(super) fn by(label: &'static str, samples: &[(&'static str, u64)]) -> Vec<(Labels, u64)> {
    samples.iter().map(|&(name, value)| (vec![(label, name)], value)).collect()
}

/// Writes that compared CAS values, which also count as sets.
fn compared(totals: &Totals) -> u64 {
    totals.cas_hits + totals.cas_misses + totals.cas_badval
}

fn results(samples: &[(&'static str, &'static str, u64)]) -> Vec<(Labels, u64)> {
    let labelled = |&(command, result, value)| (vec![("command", command), ("result", result)], value);
    samples.iter().map(labelled).collect()
}

/// All metrics of every node but the histogram.
pub(super) const TABLE: &[Metric] = &[
    gauge("moneta_build_info", "Always 1; the label tells the version.", |_| {
        vec![(vec![("version", env!("CARGO_PKG_VERSION"))], 1)]
    }),
    gauge("moneta_start_time_seconds", "Unix second of the start.", |now| one(now.started)),
    gauge(
        "moneta_ready",
        "1 while clients may be sent here, 0 while the node drains or its store is not fit to serve.",
        |now| one(now.ready.into()),
    ),
    gauge("moneta_worker_threads", "Worker threads.", |now| one(now.threads)),
    counter("moneta_commands", "Commands executed; each key of a multi-get counts as one get.", |now| {
        let totals = &now.totals;
        by(
            "command",
            &[
                ("get", totals.cmd_get),
                ("set", totals.cmd_set.saturating_sub(compared(totals))),
                ("touch", totals.cmd_touch),
                ("delete", totals.delete_hits + totals.delete_misses),
                ("incr", totals.incr_hits + totals.incr_misses),
                ("decr", totals.decr_hits + totals.decr_misses),
                ("cas", compared(totals)),
                ("flush_all", totals.cmd_flush),
                ("auth", totals.auth_cmds),
            ],
        )
    }),
    counter("moneta_meta_commands", "Commands of the meta protocol, among all commands.", |now| {
        one(now.totals.cmd_meta)
    }),
    counter("moneta_command_results", "Outcomes of commands that look for an item.", |now| {
        let totals = &now.totals;
        results(&[
            ("get", "hit", totals.get_hits),
            ("get", "miss", totals.get_misses),
            ("touch", "hit", totals.touch_hits),
            ("touch", "miss", totals.touch_misses),
            ("delete", "hit", totals.delete_hits),
            ("delete", "miss", totals.delete_misses),
            ("incr", "hit", totals.incr_hits),
            ("incr", "miss", totals.incr_misses),
            ("decr", "hit", totals.decr_hits),
            ("decr", "miss", totals.decr_misses),
            ("cas", "hit", totals.cas_hits),
            ("cas", "miss", totals.cas_misses),
            ("cas", "mismatch", totals.cas_badval),
        ])
    }),
    counter("moneta_get_misses_expired", "Misses of get on an item whose time was up.", |now| {
        one(now.totals.get_expired)
    }),
    counter("moneta_authentication_failures", "Authentication attempts that failed.", |now| {
        one(now.totals.auth_errors)
    }),
    counter("moneta_watchers_closed", "Watchers closed for taking nothing of what waited for them.", |now| {
        one(now.totals.watcher_kicks)
    }),
    counter("moneta_logins_closed", "Connections closed over their log-in, by why.", |now| {
        let totals = &now.totals;
        by(
            "reason",
            &[
                ("failures", totals.login_kicks_failures),
                ("timeout", totals.login_kicks_timeout),
                ("removed", totals.login_kicks_removed),
            ],
        )
    }),
    counter("moneta_log_lines_left_out", "Lines of the log that were not written, by why.", |now| {
        by("reason", &[("queue", now.log.queue), ("repeated", now.log.repeated)])
    }),
    counter("moneta_request_errors", "Requests that failed, by why.", |now| {
        let totals = &now.totals;
        by(
            "reason",
            &[
                ("protocol", totals.protocol_errors),
                ("too_large", totals.store_too_large),
                ("no_memory", totals.store_no_memory),
                ("store", totals.store_errors),
            ],
        )
    }),
    counter("moneta_received_bytes", "Bytes received from clients.", |now| one(now.totals.bytes_read)),
    counter("moneta_sent_bytes", "Bytes sent to clients.", |now| one(now.totals.bytes_written)),
    gauge("moneta_connections", "Client connections open.", |now| one(now.totals.curr_connections)),
    gauge("moneta_connections_limit", "Most client connections at once.", |now| one(now.max_connections)),
    counter("moneta_connections_opened", "Client connections accepted.", |now| one(now.totals.total_connections)),
    counter("moneta_connections_rejected", "Connections turned away for being over the limit.", |now| {
        one(now.totals.rejected_connections)
    }),
    counter(
        "moneta_connections_failed",
        "Connections that ended with an error on the socket or in the protocol.",
        |now| one(now.totals.failed_connections),
    ),
    counter("moneta_connections_idle_closed", "Connections closed for being idle too long.", |now| {
        one(now.totals.idle_kicks)
    }),
    counter(
        "moneta_connections_memory_closed",
        "Connections closed because memory for clients was scarce: they held most of it, or some for long.",
        |now| one(now.totals.memory_kicks),
    ),
    counter("moneta_requests_memory_refused", "Large requests refused because memory for clients was scarce.", |now| {
        one(now.totals.memory_refusals)
    }),
    gauge("moneta_client_memory_bytes", "Memory held for clients, by what for.", |now| {
        let bytes = |kind: Kind| (kind.name(), now.held.of(kind) as u64);
        by("kind", &Kind::ALL.map(bytes))
    }),
    gauge("moneta_client_memory_limit_bytes", "Limit on the memory held for clients.", |now| one(now.client_memory)),
    counter("moneta_connection_yields", "Times a connection with more to do gave way to others.", |now| {
        one(now.totals.conn_yields)
    }),
    counter("moneta_accept_pauses", "Times accepting rested for want of descriptors or memory.", |now| {
        one(now.totals.listen_disabled_num)
    }),
    gauge("moneta_items", "Items held in RAM, or whatever the upper tier is.", |now| one(now.store.items)),
    counter("moneta_items_stored", "Items stored in RAM, promotions included.", |now| one(now.store.total_items)),
    gauge("moneta_item_bytes", "Memory that items take: headers, keys and values.", |now| one(now.store.bytes)),
    gauge("moneta_memory_limit_bytes", "Limit on the memory of the items in RAM.", |now| one(now.store.limit)),
    gauge("moneta_memory_bytes", "The store's memory by part.", |now| {
        let store = &now.store;
        by("part", &[("index", store.index_bytes), ("logs", store.log_bytes), ("ghosts", store.ghost_bytes)])
    }),
    gauge("moneta_dead_bytes", "Of the logs, bytes of items overwritten, deleted or expired.", |now| {
        one(now.store.dead_bytes)
    }),
    counter("moneta_evictions", "Live items evicted for want of room, by log.", |now| {
        let store = &now.store;
        let main = store.evictions.saturating_sub(store.evicted_small);
        by("log", &[("small", store.evicted_small), ("main", main)])
    }),
    counter("moneta_evictions_unread", "Of these, items that had never been read.", |now| {
        one(now.store.evicted_unfetched)
    }),
    counter("moneta_expirations", "Expired items whose room was taken back.", |now| one(now.store.reclaimed)),
    counter("moneta_expirations_unread", "Of these, items that had never been read.", |now| {
        one(now.store.expired_unfetched)
    }),
    counter("moneta_promotions", "Items moved to the front of the main log because they were hit.", |now| {
        one(now.store.promotions)
    }),
    counter("moneta_ghost_hits", "Writes of keys that had been evicted lately.", |now| one(now.store.ghost_hits)),
    counter("moneta_out_of_memory", "Writes the store refused for want of room.", |now| one(now.store.out_of_memory)),
];

/// Name of the histogram.
pub(super) const HISTOGRAM_NAME: &str = "moneta_command_duration_seconds";
/// Help text of the histogram.
pub(super) const HISTOGRAM_HELP: &str =
    "Service time of commands, from decoded to encoded; one in 61 is timed and stands for all.";
const _: () = assert!(latency::SAMPLE == 61, "the help and docs/metrics.md tell the sample");

/// First bound shown, as a power of two of nanoseconds: 1 µs.
const FIRST_BOUND_BITS: u32 = 10;
/// Last bound shown: 1.07 s.
const LAST_BOUND_BITS: u32 = 30;

/// Pairs of an upper bound in seconds and the commands between it and the bound before. The workers' buckets are finer; a scrape
/// gets one for each power of two.
pub(super) fn histogram(totals: &HistogramTotals) -> Vec<(f64, u64)> {
    let mut shown: Vec<(f64, u64)> = (FIRST_BOUND_BITS..=LAST_BOUND_BITS)
        .map(|bits| ((1u64 << bits) as f64 / 1e9, 0))
        .chain(std::iter::once((f64::INFINITY, 0)))
        .collect();
    for (index, &count) in totals.buckets.iter().enumerate() {
        let bits = latency::bound(index).map_or(u32::MAX, |bound| bound.next_power_of_two().trailing_zeros());
        let place = bits.clamp(FIRST_BOUND_BITS, LAST_BOUND_BITS + 1) - FIRST_BOUND_BITS;
        shown[place as usize].1 += count;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::{Kind, Latencies, LatencyTotals};

    #[test]
    fn a_time_is_counted_under_the_first_bound_above_it() {
        let worker = Latencies::default();
        for nanoseconds in [1, 1023, 1024, 2047, 1 << 29, (1 << 30) - 1, 1 << 30, 1 << 40] {
            worker.of(Kind::Get).record(nanoseconds, 1);
        }
        let mut totals = LatencyTotals::default();
        totals.add(&worker);
        let shown = histogram(totals.of(Kind::Get));
        assert_eq!(shown.first(), Some(&(1.024e-6, 2)));
        assert_eq!(shown[1], (2.048e-6, 2));
        assert_eq!(shown[shown.len() - 2].1, 2);
        assert_eq!(shown.last(), Some(&(f64::INFINITY, 2)));
    }
}
