//! The metrics of every server that are not one counter each: those are declared with their counters (`crate::counters`).
//! docs/metrics.md documents all of them. They never begin again, unlike what `stats` shows, which does at `stats reset`.

use moneta_store::metric::{self, Metric, Reading, Unit, Values, by};

use super::snapshot::Snapshot;
use crate::client_memory;
use crate::counters::Totals;
use crate::feed::ReaderState;
use crate::latency::{self, Buckets, HistogramTotals, Kind};
use crate::node::Policy;

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

/// Metrics of several counters, and of what is not counted.
pub(super) const TABLE: &[Reading<Snapshot>] = &[
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
    counter("tls_handshakes_total", Unit::Count, "Handshakes of TLS with clients, by how they ended.")
        .labels(&["result"])
        .read(|now| {
            let totals = &now.totals;
            by(&[
                ("done", totals.tls_handshakes_done),
                ("resumed", totals.tls_handshakes_resumed),
                ("certificate", totals.tls_handshakes_certificate),
                ("plain_text", totals.tls_handshakes_plain_text),
                ("refused", totals.tls_handshakes_refused),
                ("protocol", totals.tls_handshakes_protocol),
                ("lost", totals.tls_handshakes_lost),
                ("timeout", totals.tls_handshakes_timeout),
                ("displaced", totals.tls_handshakes_displaced),
            ])
        }),
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
    counter(
        "logins_refused_total",
        Unit::Count,
        "Log-ins refused unchecked because their address had failed too often within a minute.",
    )
    .read(|now| now.logins_refused.into()),
    gauge("users", Unit::Count, "Users in force.").read(|now| of_users(now, |counts| counts.users)),
    counter("users_reloads_total", Unit::Count, "Times the users were replaced.")
        .read(|now| of_users(now, |counts| counts.reloads)),
    counter("users_failures_total", Unit::Count, "Times the file of users could not be read, or was refused.")
        .read(|now| of_users(now, |counts| counts.failures)),
    gauge("users_stale", Unit::Count, "1 while the file of users is not in force: it cannot be read, or is refused.")
        .read(|now| of_users(now, |counts| u64::from(counts.is_stale))),
    counter(
        "user_refusals_total",
        Unit::Count,
        "Commands refused because their user lacks a right, or may not touch a key, by user and right; of more than 64 users the rest is `others`.",
    )
    .labels(&["user", "right"])
    .read(|now| now.refusals.iter().fold(Values::NONE, |all, (user, right, count)| all.and([user, right.name()], *count))),
    counter("audit_lines_total", Unit::Count, "Lines of the audit log, by what became of them.").labels(&["result"]).read(
        |now| now.audit.map_or(Values::NONE, |counts| by(&[("written", counts.written), ("lost", counts.lost)])),
    ),
    counter(
        "address_limits_refused_total",
        Unit::Count,
        "Requests refused, and connections turned away, because their client address had as much as it may, by what there was too much of.",
    )
    .labels(&["what"])
    .read(|now| {
        let [operations, bytes, connections] = now.address_refusals;
        by(&[("operations", operations), ("bytes", bytes), ("connections", connections)])
    }),
    counter("request_errors_total", Unit::Count, "Requests that failed, by why.").labels(&["reason"]).read(|now| {
        let totals = &now.totals;
        by(&[
            ("protocol", totals.protocol_errors),
            ("too_large", totals.store_too_large),
            ("no_memory", totals.store_no_memory),
            ("store", totals.store_errors),
        ])
    }),
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
    counter("feed_gaps_total", Unit::Count, "Times that a reader of the feed was told that changes are missing, by why.")
        .labels(&["why"])
        .read(|now| by(&now.gaps)),
    counter("worker_late_turns_total", Unit::Count, "Turns of workers that took longer than 25 ms: their clients wait meanwhile.")
        .read(|now| now.late.0.into()),
    counter("worker_late_seconds_total", Unit::Seconds, "How long such turns took together.")
        .read(|now| (now.late.1 as f64 / 1e3).into()),
    counter("slow_requests_total", Unit::Count, "Requests that waited for the store for as long as the slow log takes.")
        .read(|now| now.slow[0].into()),
    counter("large_values_total", Unit::Count, "Values read or written that were as large as the slow log takes.")
        .read(|now| now.slow[1].into()),
    counter("slow_log_left_out_total", Unit::Count, "Of both, those that the slow log did not keep, as there were too many at once.")
        .read(|now| now.slow[2].into()),
    gauge(
        "hot_key_ratio",
        Unit::Ratio,
        "The share of the hottest key in the last ten seconds that are over, from a sample: of all requests, and of all bytes.",
    )
    .labels(&["of"])
    .read(|now| {
        let of = |[requests, bytes]: [f64; 2]| Values::NONE.and(["requests"], requests).and(["bytes"], bytes);
        now.hot.map_or(Values::NONE, of)
    }),
    gauge(
        "working_set_bytes",
        Unit::Bytes,
        "RAM with which the share of gets that miss is above the least there can be by no more than the label says, by the curve of misses.",
    )
    .labels(&["above"])
    .read(|now| by(&now.working_set)),
    gauge("connections_limit", Unit::Count, "Most client connections at once.").read(|now| now.max_connections.into()),
    gauge("client_memory_bytes", Unit::Bytes, "Memory held for clients, by what for.").labels(&["kind"]).read(|now| {
        let bytes = |kind: client_memory::Kind| (kind.name(), now.held.of(kind) as u64);
        by(&client_memory::Kind::ALL.map(bytes))
    }),
    gauge("client_memory_limit_bytes", Unit::Bytes, "Limit on the memory held for clients.")
        .read(|now| now.client_memory.into()),
    Metric::histogram(
        "command_duration_seconds",
        Unit::Seconds,
        "Time of commands from decoded to encoded, waits for tiers and nodes included; one in 61 is timed and stands for all.",
    )
    .labels(&["command", "policy"])
    .read(|now| {
        now.latencies.iter().fold(Values::NONE, |all, (policy, latencies)| {
            let name = match policy {
                Policy::Online => "online",
                Policy::Batch => "batch",
            };
            let of = |all: Values, kind: Kind| all.and([kind.name(), name], histogram(latencies.of(kind)));
            Kind::ALL.into_iter().fold(all, of)
        })
    }),
];

/// A number of users, where there are any.
fn of_users(now: &Snapshot, number: fn(&moneta_users::Counts) -> u64) -> Values {
    now.users.as_ref().map_or(Values::NONE, |counts| number(counts).into())
}

const _: () = assert!(latency::SAMPLE == 61, "the help and docs/metrics.md tell the sample");

/// First bound shown, as a power of two of nanoseconds: 1 µs.
const FIRST_BOUND_BITS: u32 = 10;
/// Last bound shown: 1.07 s.
const LAST_BOUND_BITS: u32 = 30;

/// Bounds in seconds with the commands between each and the one before. The workers' buckets are finer; a scrape gets the powers of
/// two, and what lies halfway between.
fn histogram(totals: &HistogramTotals) -> metric::Histogram {
    let halfway = |bits: u32| [1u64 << bits, 3 << (bits - 1)];
    let bounds: Vec<u64> =
        (FIRST_BOUND_BITS..LAST_BOUND_BITS).flat_map(halfway).chain([1 << LAST_BOUND_BITS]).collect();
    let seconds = bounds.iter().map(|bound| *bound as f64 / 1e9).chain([f64::INFINITY]);
    let mut shown: Vec<(f64, u64)> = seconds.map(|bound| (bound, 0)).collect();
    for (index, &count) in totals.buckets.iter().enumerate() {
        let place = Buckets::bound(index).map_or(bounds.len(), |own| bounds.partition_point(|bound| *bound < own));
        shown[place].1 += count;
    }
    metric::Histogram { buckets: shown, sum: totals.sum as f64 / 1e9 }
}

/// What the limits of apps refused; only proxies have apps.
pub(super) const APP_LIMITS: Metric = Metric::counter(
    "app_limits_refused_total",
    Unit::Count,
    "Requests refused because their app had done as much as it may in a second, by app and what there was too much of.",
)
.labels(&["app", "what"])
.keys(&[]);

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
        assert_eq!((shown[1].1, shown[2]), (1, (2.048e-6, 1)));
        let last = shown.len() - 1;
        assert_eq!((shown[last - 2].1, shown[last - 1].1), (1, 1));
        assert_eq!(shown.last(), Some(&(f64::INFINITY, 2)));
    }
}
