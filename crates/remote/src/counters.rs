//! Numbers on the traffic with a server: each thread counts for itself and adds to the common ones once a turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moneta_store::ErrorKind;
use moneta_store::latency::{LatencyBatch, SharedLatency};
use moneta_store::metric::{Metric, Reading, Sample, Unit, Values, by, samples_of};

/// Numbers of all threads.
#[derive(Debug, Default)]
pub(crate) struct RemoteCounters {
    requests: AtomicU64,
    replies: AtomicU64,
    reads: SharedLatency,
    writes: SharedLatency,
    large: SharedLatency,
    /// Replies of large values, and those that waited behind them.
    large_replies: AtomicU64,
    /// Of the timeouts, those there.
    pub(crate) large_timeouts: AtomicU64,
    /// Connections on which a large value is half through, and the bytes of these that have moved.
    pub(crate) carrying: AtomicU64,
    pub(crate) carried: AtomicU64,
    /// Bytes of values on their way.
    pub(crate) held: AtomicU64,
    pub(crate) retired_connections: AtomicU64,
    timeouts: AtomicU64,
    unreachable: AtomicU64,
    busy: AtomicU64,
    refused: AtomicU64,
    unsupported: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
    /// Of these, those for want of a handshake.
    pub(crate) handshake_failures: AtomicU64,
    pub(crate) refused_log_ins: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) dead_connections: AtomicU64,
    pub(crate) connections: AtomicU64,
    in_flight: AtomicU64,
}

/// What one thread has counted since it last added up.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    requests: u64,
    replies: u64,
    /// Times to the replies of requests that change nothing.
    reads: LatencyBatch,
    /// The same of all others.
    writes: LatencyBatch,
    /// The same of large values, and of what waited behind them.
    large: LatencyBatch,
    large_replies: u64,
    /// Begun less ended.
    in_flight: i64,
}

/// Of which requests a time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Those that change nothing.
    Read,
    /// All others.
    Write,
    /// Those of large values and what waited behind them, which take as long as the link makes them: they do not tell how fast
    /// the server is.
    Large,
}

impl Tally {
    #[inline]
    pub(crate) fn begun(&mut self) {
        self.requests += 1;
        self.in_flight += 1;
    }

    #[inline]
    pub(crate) fn replied(&mut self, kind: Times, after: Duration) {
        self.replies += 1;
        self.in_flight -= 1;
        let times = match kind {
            Times::Read => &mut self.reads,
            Times::Write => &mut self.writes,
            Times::Large => {
                self.large_replies += 1;
                &mut self.large
            }
        };
        times.note(after);
    }

    #[inline]
    pub(crate) fn failed(&mut self) {
        self.in_flight -= 1;
    }

    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> i64 {
        self.in_flight
    }
}

impl RemoteCounters {
    /// Adds what a thread has counted.
    #[inline]
    pub(crate) fn add(&self, tally: &mut Tally) {
        if tally.requests | tally.replies == 0 && tally.in_flight == 0 {
            return;
        }
        self.reads.add(&mut tally.reads);
        self.writes.add(&mut tally.writes);
        if tally.large_replies > 0 {
            self.large.add(&mut tally.large);
            self.large_replies.fetch_add(std::mem::take(&mut tally.large_replies), Ordering::Relaxed);
        }
        let requests = std::mem::take(&mut tally.requests);
        let replies = std::mem::take(&mut tally.replies);
        let in_flight = std::mem::take(&mut tally.in_flight);
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.replies.fetch_add(replies, Ordering::Relaxed);
        // Wraps round as a signed number would.
        self.in_flight.fetch_add(in_flight as u64, Ordering::Relaxed);
    }

    /// Requests that were answered or were given up after `timeout`, and the time that these took together; not those of large
    /// values, nor what waited behind them.
    pub(crate) fn answered(&self, timeout: Duration) -> (u64, Duration) {
        let timeouts = load(&self.timeouts).saturating_sub(load(&self.large_timeouts));
        let waited = timeout.saturating_mul(u32::try_from(timeouts).unwrap_or(u32::MAX));
        let times = [&self.reads, &self.writes].map(SharedLatency::sum_microseconds);
        let replied = Duration::from_micros(times.iter().sum());
        let replies = load(&self.replies).saturating_sub(load(&self.large_replies));
        (replies + timeouts, replied.saturating_add(waited))
    }

    /// Counts a request that ended in a failure.
    pub(crate) fn failure(&self, kind: ErrorKind) {
        let counter = match kind {
            ErrorKind::Timeout => &self.timeouts,
            ErrorKind::Unreachable | ErrorKind::Lost => &self.unreachable,
            ErrorKind::Busy => &self.busy,
            ErrorKind::Unsupported | ErrorKind::NoVersions => &self.unsupported,
            _ => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The label of all metrics: the server's address.
const SERVER: &[&str] = &["server"];

/// Whether it is alive is known elsewhere.
const UP: Metric =
    Metric::gauge("remote_up", Unit::Count, "Whether the server is taken to be alive: 1 or 0.").labels(SERVER);

/// The other metrics.
const METRICS: &[Reading<RemoteCounters>] = &[
    Metric::counter("remote_requests_total", Unit::Count, "Requests begun.")
        .labels(SERVER)
        .read(|counters| load(&counters.requests).into()),
    Metric::counter("remote_replies_total", Unit::Count, "Replies received.")
        .labels(SERVER)
        .read(|counters| load(&counters.replies).into()),
    Metric::histogram("remote_reply_duration_seconds", Unit::Seconds, "Time from request to reply.")
        .labels(&["server", "kind"])
        .read(|counters| {
            Values::NONE
                .and(["read"], counters.reads.latency().histogram())
                .and(["write"], counters.writes.latency().histogram())
                .and(["large"], counters.large.latency().histogram())
        }),
    Metric::counter("remote_timeouts_total", Unit::Count, "Requests without a reply in time.")
        .labels(SERVER)
        .read(|counters| load(&counters.timeouts).into()),
    Metric::counter("remote_errors_total", Unit::Count, "Requests that failed, by why.")
        .labels(&["server", "kind"])
        .read(|counters| {
            by(&[
                ("timeout", load(&counters.timeouts)),
                ("unreachable", load(&counters.unreachable)),
                ("busy", load(&counters.busy)),
                ("refused", load(&counters.refused)),
                ("unsupported", load(&counters.unsupported)),
            ])
        }),
    Metric::counter("remote_retries_total", Unit::Count, "Requests sent again on a fresh connection.")
        .labels(SERVER)
        .read(|counters| load(&counters.retries).into()),
    Metric::counter("remote_reconnects_total", Unit::Count, "Connections made in place of lost ones.")
        .labels(SERVER)
        .read(|counters| load(&counters.reconnects).into()),
    Metric::counter(
        "remote_dead_connections_total",
        Unit::Count,
        "Idle connections that did not answer the question whether the server is still there.",
    )
    .labels(SERVER)
    .read(|counters| load(&counters.dead_connections).into()),
    Metric::counter("remote_connect_failures_total", Unit::Count, "Attempts to connect that failed.")
        .labels(SERVER)
        .read(|counters| load(&counters.connect_failures).into()),
    Metric::counter(
        "remote_handshake_failures_total",
        Unit::Count,
        "Attempts to connect that failed at TLS, as where a certificate has expired or is for another name.",
    )
    .labels(SERVER)
    .read(|counters| load(&counters.handshake_failures).into()),
    Metric::counter("remote_refused_log_ins_total", Unit::Count, "Log-ins that the server has refused.")
        .labels(SERVER)
        .read(|counters| load(&counters.refused_log_ins).into()),
    Metric::counter(
        "remote_retired_connections_total",
        Unit::Count,
        "Connections on which so much came that new requests got another one.",
    )
    .labels(SERVER)
    .read(|counters| load(&counters.retired_connections).into()),
    Metric::gauge(
        "remote_held_bytes",
        Unit::Bytes,
        "Values on their way: requests that are not sent yet, and replies that are not taken yet.",
    )
    .labels(SERVER)
    .read(|counters| load(&counters.held).cast_signed().max(0).cast_unsigned().into()),
    Metric::gauge("remote_connections", Unit::Count, "Connections that are open.")
        .labels(SERVER)
        .read(|counters| load(&counters.connections).into()),
    Metric::gauge("remote_in_flight", Unit::Count, "Requests that wait for a reply.")
        .labels(SERVER)
        // Threads add up in any order: it may be below zero for a moment.
        .read(|counters| load(&counters.in_flight).cast_signed().max(0).cast_unsigned().into()),
];

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The declarations of a remote store's metrics.
pub fn metrics() -> impl Iterator<Item = Metric> {
    METRICS.iter().map(Reading::metric).chain([UP])
}

impl RemoteCounters {
    /// All metrics of the server at `address`.
    pub(crate) fn samples(&self, address: &str, up: bool) -> Vec<Sample> {
        let mut all = samples_of([address], METRICS, self);
        all.push(UP.labelled([address], up));
        all
    }
}
