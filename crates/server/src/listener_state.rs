//! The state that a listener shares with its connections: its limits, and how many connections there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use moneta_store::metric::{Metric, Reading, Sample, Unit, samples_of};

use crate::config::{Commands, ListenerLimits, ServerConfig};

/// The state of a listener.
#[derive(Debug)]
pub(crate) struct ListenerState {
    /// Its address, for lists of connections.
    pub(crate) name: Arc<str>,
    /// Unsent bytes at which a connection's requests are no longer executed.
    output_limit: usize,
    /// Operator commands it accepts.
    pub(crate) commands: Commands,
    /// Idle seconds after which a connection is closed.
    idle_seconds: Option<u32>,
    /// Most connections at once, if the listener has a limit.
    max_connections: Option<usize>,
    /// Places set aside for it, which do not count towards the server's limit.
    reserved: usize,
    // Only the acceptor increments it, so its comparison with the limit holds; dropping a permit decrements it.
    open: AtomicUsize,
    // Written by the acceptor alone.
    opened: AtomicU64,
    rejected: AtomicU64,
}

/// The metrics of a listener.
pub(crate) const METRICS: &[Reading<ListenerState>] = &[
    Metric::gauge("listener_connections", Unit::Count, "Client connections open, by listener.")
        .labels(&["listener"])
        .keys(&[])
        .read(|listener| (listener.open.load(Ordering::Relaxed) as u64).into()),
    Metric::counter("listener_connections_opened_total", Unit::Count, "Client connections accepted, by listener.")
        .labels(&["listener"])
        .keys(&[])
        .read(|listener| listener.opened.load(Ordering::Relaxed).into()),
    Metric::counter(
        "listener_connections_rejected_total",
        Unit::Count,
        "Connections turned away for being over the node's limit or the listener's, by listener.",
    )
    .labels(&["listener"])
    .keys(&[])
    .read(|listener| listener.rejected.load(Ordering::Relaxed).into()),
];

impl ListenerState {
    /// The state of the listener `name`; limits it does not override are the server's.
    pub(crate) fn new(name: &str, limits: &ListenerLimits, config: &ServerConfig) -> Arc<Self> {
        let idle_timeout = limits.idle_timeout.or(config.idle_timeout);
        Arc::new(Self {
            name: Arc::from(name),
            output_limit: limits.output_limit.unwrap_or(config.output_limit),
            commands: limits.commands.unwrap_or(config.commands),
            idle_seconds: idle_timeout.filter(|timeout| !timeout.is_zero()).map(whole_seconds),
            max_connections: limits.max_connections,
            reserved: reserved(limits, config),
            open: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        })
    }

    /// A permit for one more connection, unless the listener's limit is reached.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<ConnectionPermit> {
        if self.max_connections.is_some_and(|most| self.open.load(Ordering::Relaxed) >= most) {
            return None;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPermit(Arc::clone(self)))
    }

    /// Whether one of the places set aside for it is free.
    pub(crate) fn has_reserved_place(&self) -> bool {
        self.open.load(Ordering::Relaxed) < self.reserved
    }

    /// How many of the places set aside for it are taken.
    pub(crate) fn reserved_places_taken(&self) -> usize {
        self.open.load(Ordering::Relaxed).min(self.reserved)
    }

    /// Counts a connection refused by this listener's limit or the node's.
    pub(crate) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Metrics of its connections.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        samples_of([&*self.name], METRICS, self)
    }

    /// Whether its connections can time out.
    pub(crate) fn closes_idle(&self) -> bool {
        self.idle_seconds.is_some()
    }
}

/// Places set aside for an operators' listener: one that obeys commands which the server's listeners do not. However many clients there
/// are, an operator can connect.
const OPERATORS: usize = 32;

/// Places set aside for a listener with `limits`.
pub(crate) fn reserved(limits: &ListenerLimits, config: &ServerConfig) -> usize {
    let is_for_operators = limits.commands.is_some_and(|commands| !config.commands.allow(commands));
    if is_for_operators { limits.max_connections.unwrap_or(OPERATORS).min(OPERATORS) } else { 0 }
}

/// Idle times are kept in seconds; a timeout below one second would close every connection.
pub(crate) fn whole_seconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// A connection's permit from its listener; returned on drop.
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

    /// Idle seconds after which the connection is closed.
    pub(crate) fn idle_seconds(&self) -> Option<u32> {
        self.0.idle_seconds
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
