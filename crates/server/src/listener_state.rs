//! What a listener keeps while connections that came through it live: its limits, and how many there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use moneta_store::{Figure, FigureKind};

use crate::config::{Commands, ListenerLimits, ServerConfig};

/// A listener as its connections know it.
#[derive(Debug)]
pub(crate) struct ListenerState {
    /// Its address, for lists of connections.
    pub(crate) name: Arc<str>,
    /// Unsent bytes at which a connection's requests are no longer executed.
    output_limit: usize,
    /// Commands of operators that it obeys.
    pub(crate) commands: Commands,
    /// Seconds of silence after which a connection is closed.
    idle_seconds: Option<u32>,
    /// Most connections at once, where it has a limit of its own.
    max_connections: Option<usize>,
    // Counted up by the acceptor alone, so that its comparison with the limit holds; down when a permit is dropped.
    open: AtomicUsize,
    // Written by the acceptor alone.
    opened: AtomicU64,
    rejected: AtomicU64,
}

impl ListenerState {
    /// The state of a listener called `name`, with the server's limits where it has none of its own.
    pub(crate) fn new(name: &str, limits: &ListenerLimits, config: &ServerConfig) -> Arc<Self> {
        let idle_timeout = limits.idle_timeout.or(config.idle_timeout);
        Arc::new(Self {
            name: Arc::from(name),
            output_limit: limits.output_limit.unwrap_or(config.output_limit),
            commands: limits.commands.unwrap_or(config.commands),
            idle_seconds: idle_timeout.filter(|timeout| !timeout.is_zero()).map(whole_seconds),
            max_connections: limits.max_connections,
            open: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        })
    }

    /// A permit for one more connection, unless the listener's own limit is reached.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        if self.max_connections.is_some_and(|most| self.open.load(Ordering::Relaxed) >= most) {
            return None;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPermit(Arc::clone(self)))
    }

    /// Counts a connection that was turned away, by this listener's limit or by the node's.
    pub(crate) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Its connections, for the metrics.
    pub(crate) fn figures(&self) -> [Figure; 3] {
        let figure = |name, help, kind, value: u64| {
            let labels = vec![("listener", self.name.to_string())];
            Figure { name, help, kind, labels, value: value as f64 }
        };
        let open = self.open.load(Ordering::Relaxed) as u64;
        let (opened, rejected) = (self.opened.load(Ordering::Relaxed), self.rejected.load(Ordering::Relaxed));
        [
            figure("listener_connections", "Client connections open, by listener.", FigureKind::Gauge, open),
            figure(
                "listener_connections_opened_total",
                "Client connections accepted, by listener.",
                FigureKind::Counter,
                opened,
            ),
            figure(
                "listener_connections_rejected_total",
                "Connections turned away for being over the node's limit or the listener's, by listener.",
                FigureKind::Counter,
                rejected,
            ),
        ]
    }

    /// Whether its connections can time out.
    pub(crate) fn closes_idle(&self) -> bool {
        self.idle_seconds.is_some()
    }
}

/// Seconds are what idle times are kept in; less than one would close everybody.
pub(crate) fn whole_seconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// A connection's permit of the listener it came through; given back when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit(Arc<ListenerState>);

impl ConnectionPermit {
    /// The listener's address.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Unsent bytes at which the connection's requests are no longer executed.
    #[inline]
    pub(crate) fn output_limit(&self) -> usize {
        self.0.output_limit
    }

    /// Seconds of silence after which the connection is closed.
    pub(crate) fn idle_seconds(&self) -> Option<u32> {
        self.0.idle_seconds
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
