//! Numbers on the traffic with a server: each thread counts for itself and adds to the common ones once a turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moneta_store::{ErrorKind, Figure, FigureKind};

/// Numbers of all threads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    replies: AtomicU64,
    reply_nanoseconds: AtomicU64,
    timeouts: AtomicU64,
    unreachable: AtomicU64,
    refused: AtomicU64,
    unsupported: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) connections: AtomicU64,
    in_flight: AtomicU64,
}

/// What one thread has counted since it last added up.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    requests: u64,
    replies: u64,
    reply_nanoseconds: u64,
    /// Begun less ended.
    in_flight: i64,
}

impl Tally {
    #[inline]
    pub(crate) fn begun(&mut self) {
        self.requests += 1;
        self.in_flight += 1;
    }

    #[inline]
    pub(crate) fn replied(&mut self, after: Duration) {
        self.replies += 1;
        self.reply_nanoseconds += after.as_nanos() as u64;
        self.in_flight -= 1;
    }

    #[inline]
    pub(crate) fn failed(&mut self) {
        self.in_flight -= 1;
    }
}

impl Counters {
    /// Adds what a thread has counted.
    #[inline]
    pub(crate) fn add(&self, tally: &mut Tally) {
        if tally.requests | tally.replies == 0 && tally.in_flight == 0 {
            return;
        }
        let Tally { requests, replies, reply_nanoseconds, in_flight } = std::mem::take(tally);
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.replies.fetch_add(replies, Ordering::Relaxed);
        self.reply_nanoseconds.fetch_add(reply_nanoseconds, Ordering::Relaxed);
        // Wraps round as a signed number would.
        self.in_flight.fetch_add(in_flight as u64, Ordering::Relaxed);
    }

    /// Counts a request that ended in a failure.
    pub(crate) fn failure(&self, kind: ErrorKind) {
        let counter = match kind {
            ErrorKind::Timeout => &self.timeouts,
            ErrorKind::Unreachable => &self.unreachable,
            ErrorKind::Unsupported => &self.unsupported,
            _ => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// All of them, for the server at `address`.
    pub(crate) fn figures(&self, address: &str, open: bool) -> Vec<Figure> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let figure = |name, help, kind, labels: &[(&'static str, &str)], value| {
            let server = [("server", address)];
            let labels = server.iter().chain(labels).map(|(name, value)| (*name, (*value).to_owned())).collect();
            Figure { name, help, kind, labels, value }
        };
        let counter = |name, help, value: &AtomicU64| figure(name, help, FigureKind::Counter, &[], load(value));
        let gauge = |name, help, value| figure(name, help, FigureKind::Gauge, &[], value);
        let errors = |kind, value: &AtomicU64| {
            let help = "Requests that failed, by why.";
            figure("remote_errors_total", help, FigureKind::Counter, &[("kind", kind)], load(value))
        };
        let seconds = load(&self.reply_nanoseconds) / 1e9;
        vec![
            counter("remote_requests_total", "Requests begun.", &self.requests),
            counter("remote_replies_total", "Replies received.", &self.replies),
            figure(
                "remote_reply_seconds_total",
                "Sum of the times from request to reply.",
                FigureKind::Counter,
                &[],
                seconds,
            ),
            counter("remote_timeouts_total", "Requests without a reply in time.", &self.timeouts),
            errors("timeout", &self.timeouts),
            errors("unreachable", &self.unreachable),
            errors("refused", &self.refused),
            errors("unsupported", &self.unsupported),
            counter("remote_retries_total", "Requests sent again on a fresh connection.", &self.retries),
            counter("remote_reconnects_total", "Connections made in place of lost ones.", &self.reconnects),
            counter("remote_connect_failures_total", "Attempts to connect that failed.", &self.connect_failures),
            gauge("remote_connections", "Connections that are open.", load(&self.connections)),
            gauge(
                "remote_in_flight",
                "Requests that wait for a reply.",
                (self.in_flight.load(Ordering::Relaxed) as i64).max(0) as f64,
            ),
            gauge("remote_up", "Whether the server is taken to be alive: 1 or 0.", f64::from(u8::from(!open))),
        ]
    }
}
