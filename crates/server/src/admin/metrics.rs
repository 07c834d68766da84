//! The metrics of every node. docs/metrics.md documents them. `stats` has its own list (`crate::stats::general`): its
//! counters begin again at `stats reset`, and these do not.

use moneta_store::metric::{self, Metric, Reading, Unit, Values, by};

use super::snapshot::Snapshot;
use crate::client_memory;
use crate::counters::Totals;
use crate::feed::ReaderState;
use crate::latency::{self, HistogramTotals, Kind};

/// Writes that compared CAS values, which also count as sets.
fn compared(totals: &Totals) -> u64 {
    totals.cas_hits + totals.cas_misses + totals.cas_badval
}

/// A sample for each command and result.
fn results(values: &[(&str, &str, u64)]) -> Values {
    values.iter().fold(Values::NONE, |all, &(command, result, value)| all.and([command, result], value))
}

/// A counter of the node.
const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric::counter(name, unit, help).keys(&[])
}

/// A gauge of the node.
const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    Metric::gauge(name, unit, help).keys(&[])
}

/// All of them.
pub(super) const TABLE: &[Reading<Snapshot>] = &[
    gauge("build_info", Unit::Count, "Always 1; the label tells the version.")
        .labels(&["version"])
        .read(|_| Values::NONE.and([env!("CARGO_PKG_VERSION")], 1)),
    gauge("start_time_seconds", Unit::Seconds, "Unix second of the start.").read(|now| now.started.into()),
    gauge(
        "ready",
        Unit::Count,
        "1 while clients may be sent here, 0 while the node drains or its store is not fit to serve.",
    )
    .read(|now| now.ready.into()),
    gauge("worker_threads", Unit::Count, "Worker threads.").read(|now| now.threads.into()),
    counter("commands_total", Unit::Count, "Commands executed; each key of a multi-get counts as one get.")
        .labels(&["command"])
        .read(|now| {
            let totals = &now.totals;
            by(&[
                ("get", totals.cmd_get),
                ("set", totals.cmd_set.saturating_sub(compared(totals))),
                ("touch", totals.cmd_touch),
                ("delete", totals.delete_hits + totals.delete_misses),
                ("incr", totals.incr_hits + totals.incr_misses),
                ("decr", totals.decr_hits + totals.decr_misses),
                ("cas", compared(totals)),
                ("flush_all", totals.cmd_flush),
                ("auth", totals.auth_cmds),
            ])
        }),
    counter("meta_commands_total", Unit::Count, "Commands of the meta protocol, among all commands.")
        .read(|now| now.totals.cmd_meta.into()),
    counter("command_results_total", Unit::Count, "Outcomes of commands that look for an item.")
        .labels(&["command", "result"])
        .read(|now| {
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
    counter("superseded_total", Unit::Count, "Writes and deletes by version that met something newer.")
        .read(|now| now.totals.superseded.into()),
    counter(
        "refused_ahead_total",
        Unit::Count,
        "Writes and deletes by a version that was further ahead of this node's clock than max_clock_skew.",
    )
    .read(|now| now.totals.refused_ahead.into()),
    counter("get_misses_expired_total", Unit::Count, "Misses of get on an item whose time was up.")
        .read(|now| now.totals.get_expired.into()),
    counter("authentication_failures_total", Unit::Count, "Authentication attempts that failed.")
        .read(|now| now.totals.auth_errors.into()),
    counter("watchers_closed_total", Unit::Count, "Watchers closed for taking nothing of what waited for them.")
        .read(|now| now.totals.watcher_kicks.into()),
    counter("logins_closed_total", Unit::Count, "Connections closed over their log-in, by why.")
        .labels(&["reason"])
        .read(|now| {
            let totals = &now.totals;
            by(&[
                ("failures", totals.login_kicks_failures),
                ("timeout", totals.login_kicks_timeout),
                ("removed", totals.login_kicks_removed),
            ])
        }),
    counter("log_lines_left_out_total", Unit::Count, "Lines of the log that were not written, by why.")
        .labels(&["reason"])
        .read(|now| by(&[("queue", now.log.queue), ("repeated", now.log.repeated)])),
    counter("request_errors_total", Unit::Count, "Requests that failed, by why.").labels(&["reason"]).read(|now| {
        let totals = &now.totals;
        by(&[
            ("protocol", totals.protocol_errors),
            ("too_large", totals.store_too_large),
            ("no_memory", totals.store_no_memory),
            ("store", totals.store_errors),
        ])
    }),
    counter("received_bytes_total", Unit::Bytes, "Bytes received from clients.")
        .read(|now| now.totals.bytes_read.into()),
    counter("sent_bytes_total", Unit::Bytes, "Bytes sent to clients.").read(|now| now.totals.bytes_written.into()),
    gauge(
        "feed_lag_seconds",
        Unit::Seconds,
        "How far readers of the feed are behind, by their names, if that is known.",
    )
    .labels(&["reader"])
    .read(|now| {
        let lag = |state: &ReaderState| state.lag.map(|lag| (state.name.clone(), lag as f64 / 1e3));
        now.readers.iter().filter_map(lag).fold(Values::NONE, |all, (name, lag)| all.and([&name], lag))
    }),
    counter("feed_sent_bytes_total", Unit::Bytes, "Bytes of the feed sent to readers, by their names.")
        .labels(&["reader"])
        .read(|now| now.readers.iter().fold(Values::NONE, |all, state| all.and([&state.name], state.bytes))),
    gauge("connections", Unit::Count, "Client connections open.").read(|now| now.totals.curr_connections.into()),
    gauge("connections_limit", Unit::Count, "Most client connections at once.").read(|now| now.max_connections.into()),
    counter("connections_opened_total", Unit::Count, "Client connections accepted.")
        .read(|now| now.totals.total_connections.into()),
    counter("connections_rejected_total", Unit::Count, "Connections turned away for being over the limit.")
        .read(|now| now.totals.rejected_connections.into()),
    counter(
        "connections_failed_total",
        Unit::Count,
        "Connections that ended with an error on the socket or in the protocol.",
    )
    .read(|now| now.totals.failed_connections.into()),
    counter("connections_idle_closed_total", Unit::Count, "Connections closed for being idle too long.")
        .read(|now| now.totals.idle_kicks.into()),
    counter(
        "connections_memory_closed_total",
        Unit::Count,
        "Connections closed because memory for clients was scarce: they held most of it, or some for long.",
    )
    .read(|now| now.totals.memory_kicks.into()),
    counter(
        "requests_memory_refused_total",
        Unit::Count,
        "Large requests refused because memory for clients was scarce.",
    )
    .read(|now| now.totals.memory_refusals.into()),
    gauge("client_memory_bytes", Unit::Bytes, "Memory held for clients, by what for.").labels(&["kind"]).read(|now| {
        let bytes = |kind: client_memory::Kind| (kind.name(), now.held.of(kind) as u64);
        by(&client_memory::Kind::ALL.map(bytes))
    }),
    gauge("client_memory_limit_bytes", Unit::Bytes, "Limit on the memory held for clients.")
        .read(|now| now.client_memory.into()),
    counter("connection_yields_total", Unit::Count, "Times a connection with more to do gave way to others.")
        .read(|now| now.totals.conn_yields.into()),
    counter("accept_pauses_total", Unit::Count, "Times accepting rested for want of descriptors or memory.")
        .read(|now| now.totals.listen_disabled_num.into()),
    Metric::histogram(
        "command_duration_seconds",
        Unit::Seconds,
        "Service time of commands, from decoded to encoded; one in 61 is timed and stands for all.",
    )
    .labels(&["command"])
    .read(|now| {
        let of = |all: Values, kind: Kind| all.and([kind.name()], histogram(now.latencies.of(kind)));
        Kind::ALL.into_iter().fold(Values::NONE, of)
    }),
];

const _: () = assert!(latency::SAMPLE == 61, "the help and docs/metrics.md tell the sample");

/// First bound shown, as a power of two of nanoseconds: 1 µs.
const FIRST_BOUND_BITS: u32 = 10;
/// Last bound shown: 1.07 s.
const LAST_BOUND_BITS: u32 = 30;

/// Bounds in seconds with the commands between each and the one before. The workers' buckets are finer; a scrape gets one
/// per power of two.
fn histogram(totals: &HistogramTotals) -> metric::Histogram {
    let mut shown: Vec<(f64, u64)> = (FIRST_BOUND_BITS..=LAST_BOUND_BITS)
        .map(|bits| ((1u64 << bits) as f64 / 1e9, 0))
        .chain(std::iter::once((f64::INFINITY, 0)))
        .collect();
    for (index, &count) in totals.buckets.iter().enumerate() {
        let bits = latency::bound(index).map_or(u32::MAX, |bound| bound.next_power_of_two().trailing_zeros());
        let place = bits.clamp(FIRST_BOUND_BITS, LAST_BOUND_BITS + 1) - FIRST_BOUND_BITS;
        shown[place as usize].1 += count;
    }
    metric::Histogram { buckets: shown, sum: totals.sum as f64 / 1e9 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::{Latencies, LatencyTotals};

    #[test]
    fn a_time_is_counted_under_the_first_bound_above_it() {
        let worker = Latencies::default();
        for nanoseconds in [1, 1023, 1024, 2047, 1 << 29, (1 << 30) - 1, 1 << 30, 1 << 40] {
            worker.of(Kind::Get).record(nanoseconds, 1);
        }
        let mut totals = LatencyTotals::default();
        totals.add(&worker);
        let shown = histogram(totals.of(Kind::Get)).buckets;
        assert_eq!(shown.first(), Some(&(1.024e-6, 2)));
        assert_eq!(shown[1], (2.048e-6, 2));
        assert_eq!(shown[shown.len() - 2].1, 2);
        assert_eq!(shown.last(), Some(&(f64::INFINITY, 2)));
    }
}
