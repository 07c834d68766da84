//! The state that a listener shares with its connections: its limits, and how many connections there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use moneta_store::metric::{Metric, Reading, Sample, Unit, by, samples_of};

use crate::client_addresses::AddressPermit;
use crate::config::{Commands, ListenerLimits, ServerConfig};
use crate::door_places::DoorPlaces;
use crate::limits::{Allowance, LiveLimits, Refused, Whose};
use crate::live::{Live, whole_seconds};

/// The state of a listener.
#[derive(Debug)]
pub(crate) struct ListenerState {
    /// Its address, for lists of connections.
    pub(crate) name: Arc<str>,
    /// Unsent bytes at which a connection's requests are no longer executed.
    /// Its own limit; `None`: the server's.
    own_output_limit: Option<usize>,
    /// Operator commands it accepts.
    pub(crate) commands: Commands,
    /// Its name in the file of users, if its clients have to be users.
    pub(crate) guarded_as: Option<Arc<str>>,
    /// Idle seconds after which a connection is closed, where they are not the server's; 0: never.
    own_idle_seconds: Option<u32>,
    live: Arc<Live>,
    /// Most connections at once, if the listener has a limit.
    max_connections: Option<usize>,
    /// Places set aside for it, which do not count towards the server's limit.
    reserved: usize,
    /// Connections of all listeners of its door.
    door: Arc<DoorPlaces>,
    /// What its connections may do together.
    allowance: Arc<Allowance>,
    refused: Arc<Refused>,
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
    Metric::counter(
        "listener_limits_refused_total",
        Unit::Count,
        "Requests refused because their listener had done as much as it may in a second, by listener and what there was too much of.",
    )
    .labels(&["listener", "what"])
    .keys(&[])
    .read(|listener| {
        let [operations, bytes, _] = listener.refused.counts();
        by(&[("operations", operations), ("bytes", bytes)])
    }),
];

impl ListenerState {
    /// The state of the listener `name`; limits it does not override are the server's.
    pub(crate) fn new(
        name: &str,
        guarded_as: Option<Arc<str>>,
        limits: &ListenerLimits,
        door: Arc<DoorPlaces>,
        config: &ServerConfig,
        live: Arc<Live>,
    ) -> Arc<Self> {
        let refused = Arc::<Refused>::default();
        let rates = LiveLimits::new(limits.rates);
        live.follow(&rates, limits.own_rates);
        let seconds = |timeout: Duration| if timeout.is_zero() { 0 } else { whole_seconds(timeout) };
        Arc::new(Self {
            name: Arc::from(name),
            own_output_limit: limits.output_limit,
            commands: limits.commands.unwrap_or(config.commands),
            guarded_as,
            own_idle_seconds: limits.idle_timeout.map(seconds),
            live,
            max_connections: limits.max_connections,
            reserved: reserved(limits, config),
            door,
            allowance: Arc::new(Allowance::new(Whose::Listener, rates, Arc::clone(&refused))),
            refused,
            open: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        })
    }

    /// A permit for one more connection, whose address has given it `address`, unless the listener's limit or its door's is
    /// reached.
    pub(crate) fn admit(self: &Arc<Self>, address: Option<AddressPermit>) -> Option<ConnectionPermit> {
        let is_full = self.max_connections.is_some_and(|most| self.open.load(Ordering::Relaxed) >= most);
        if is_full || self.door.is_full() {
            return None;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        self.door.take();
        self.opened.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPermit { listener: Arc::clone(self), address })
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

    /// Whether its connections can time out by a time of its own.
    pub(crate) fn closes_idle(&self) -> bool {
        self.own_idle_seconds.is_some_and(|seconds| seconds > 0)
    }
}

/// Places set aside for an operators' listener: one that obeys commands which the server's listeners do not. However many clients
/// there are, an operator can connect.
const OPERATORS: usize = 32;

/// Places set aside for a listener with `limits`.
pub(crate) fn reserved(limits: &ListenerLimits, config: &ServerConfig) -> usize {
    let is_for_operators = limits.commands.is_some_and(|commands| !config.commands.allow(commands));
    if is_for_operators { limits.max_connections.unwrap_or(OPERATORS).min(OPERATORS) } else { 0 }
}

/// A connection's permit from its listener; returned on drop.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    listener: Arc<ListenerState>,
    address: Option<AddressPermit>,
}

impl ConnectionPermit {
    /// The listener's address.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.listener.name
    }

    /// Unsent bytes at which the connection's requests are no longer executed.
    #[inline]
    pub(crate) fn output_limit(&self) -> usize {
        self.listener.own_output_limit.unwrap_or_else(|| self.listener.live.output_limit())
    }

    /// What the connection may do, together with others of its listener and of its address; empty while there are no limits.
    pub(crate) fn allowances(&self) -> Vec<Arc<Allowance>> {
        let of_address = self.address.as_ref().map(AddressPermit::allowance);
        let all = [Some(&self.listener.allowance), of_address].into_iter().flatten();
        all.filter(|allowance| allowance.is_limited()).cloned().collect()
    }

    /// Idle seconds after which the connection is closed.
    pub(crate) fn idle_seconds(&self) -> Option<u32> {
        let seconds = self.listener.own_idle_seconds.unwrap_or_else(|| self.listener.live.idle_seconds());
        (seconds > 0).then_some(seconds)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.listener.open.fetch_sub(1, Ordering::Relaxed);
        self.listener.door.give_back();
    }
}
