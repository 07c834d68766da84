//! `stats` without arguments, which `/stats` shows as JSON.

use std::borrow::Cow;
use std::fmt;

use moneta_admin::usage::ProcessorTime;
use moneta_store::StoreStats;
use moneta_store::metric::{Sample, Value};

use crate::counters::Totals;
use crate::latency::Kind;
use crate::node::Policy;
use crate::session::Worker;
use crate::version::{MONETA_VERSION, VERSION};

/// A key and its value.
pub type Statistic = (Cow<'static, str>, StatisticValue);

/// The value of a key of `stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatisticValue {
    /// A whole number.
    Number(u64),
    /// Anything else, fractions among it.
    Text(String),
}

impl fmt::Display for StatisticValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Text(text) => formatter.write_str(text),
        }
    }
}

impl From<u64> for StatisticValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for StatisticValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&str> for StatisticValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&Value> for StatisticValue {
    /// A number without a fraction is whole, whatever its type.
    fn from(value: &Value) -> Self {
        let shown = value.to_string();
        shown.parse().map_or_else(|_| Self::Text(shown), Self::Number)
    }
}

/// All keys with their values: memcached's, and those of the store.
pub fn general(worker: &Worker) -> Vec<Statistic> {
    let report = worker.report();
    let mut told = of_server(worker, &report.stats);
    // What `moneta copy` and its kin go slower for.
    let online = worker.node.registry.latencies(Policy::Online);
    told.push(("online_get_durations".into(), StatisticValue::Text(online.of(Kind::Get).words())));
    told.extend(report.samples().iter().filter_map(statistic));
    told
}

/// Those that memcached knows. Of a proxy the others are many, and clients have a few KiB for an answer (nginx:
/// `memc_buffer_size`).
pub(super) fn of_memcached(worker: &Worker) -> Vec<Statistic> {
    let report = worker.report();
    let mut told = of_server(worker, &report.stats);
    told.extend(report.samples().iter().filter(|sample| !sample.has_own_key()).filter_map(statistic));
    told
}

/// Those that it does not.
pub(super) fn own(worker: &Worker) -> Vec<Statistic> {
    worker.report().samples().iter().filter(|sample| sample.has_own_key()).filter_map(statistic).collect()
}

fn statistic(sample: &Sample) -> Option<Statistic> {
    Some((sample.key()?.into(), StatisticValue::from(&sample.value)))
}

/// Those of the server, the limit on memory among them.
fn of_server(worker: &Worker, store: &StoreStats) -> Vec<Statistic> {
    let node = &worker.node;
    let (settings, max_connections) = (&node.settings, node.live.max_connections() as u64);
    let now = node.clock.now();
    let counters = node.registry.since_reset();
    let times = ProcessorTime::now();
    let mut told: Vec<Statistic> = Vec::with_capacity(128);
    let mut put = |name: &'static str, value: StatisticValue| told.push((name.into(), value));
    put("pid", std::process::id().into());
    put("uptime", now.saturating_sub(node.started).into());
    put("time", now.into());
    put("version", VERSION.into());
    put("moneta_version", MONETA_VERSION.into());
    put("pointer_size", usize::BITS.into());
    for (name, time) in [("rusage_user", times.user), ("rusage_system", times.system)] {
        put(name, StatisticValue::Text(format!("{}.{:06}", time.as_secs(), time.subsec_micros())));
    }
    put("max_connections", max_connections.into());
    put("curr_connections", counters.curr_connections.into());
    put("total_connections", counters.total_connections.into());
    put("rejected_connections", counters.rejected_connections.into());
    put("connection_structures", counters.curr_connections.into());
    counters.each_listed(|name, value| put(name, value.into()));
    if let Some(certificates) = node.certificates.as_ref().filter(|of| of.serve()) {
        put("ssl_handshake_errors", handshake_errors(&counters).into());
        put("time_since_server_cert_refresh", certificates.age().into());
    }
    let watchers = node.watchers.stats();
    put("log_watcher_skipped", watchers.skipped.into());
    put("log_watcher_sent", watchers.sent.into());
    put("log_watchers", watchers.watchers.into());
    let limit = if store.limit > 0 { store.limit } else { settings.memory };
    put("limit_maxbytes", limit.into());
    put("accepting_conns", u64::from(counters.curr_connections < max_connections).into());
    put("threads", (settings.threads as u64).into());
    told
}

/// Handshakes of TLS that failed, for whatever reason.
fn handshake_errors(counters: &Totals) -> u64 {
    [
        counters.tls_handshakes_certificate,
        counters.tls_handshakes_plain_text,
        counters.tls_handshakes_refused,
        counters.tls_handshakes_protocol,
        counters.tls_handshakes_lost,
        counters.tls_handshakes_timeout,
        counters.tls_handshakes_displaced,
    ]
    .into_iter()
    .fold(0, u64::wrapping_add)
}
