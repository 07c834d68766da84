//! The admin side's view of a server: its statistics, its health, its phase.

use std::sync::Arc;

use moneta_process::phases::{Phase, Phases};
use moneta_store::metric::{Sample, samples};
use moneta_store::{Cx, Health, Report, Store, component};

use super::metrics::{APP_LIMITS, TABLE};
use super::snapshot::Snapshot;
use crate::certificates;
use crate::config::ListenAddress;
use crate::counters;
use crate::limits::Refused;
use crate::listener_state::ListenerState;
use crate::node::{AppLimits, Node};
use crate::session::Worker;
use crate::stats::{self, Statistic};

/// The admin side's view of a running server. Methods that call the store may block as long as the store does.
pub(crate) struct Observed {
    /// What all workers share.
    pub(crate) node: Arc<Node>,
    store: Arc<dyn Store>,
    /// The server's phase.
    pub(crate) phases: Arc<Phases>,
    /// The listening addresses.
    pub(crate) addresses: Vec<ListenAddress>,
    /// The listeners' connections, in the same order.
    listener_states: Vec<Arc<ListenerState>>,
}

impl Observed {
    /// The view of a server that serves `store`.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        node: Arc<Node>,
        phases: Arc<Phases>,
        addresses: Vec<ListenAddress>,
        listener_states: Vec<Arc<ListenerState>>,
    ) -> Self {
        Self { node, store, phases, addresses, listener_states }
    }

    /// What the server serves.
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The store's report; may block.
    fn report(&self) -> Report {
        component::report(&self.store, &Cx::outside())
    }

    /// The store's health; may block.
    pub(super) fn health(&self) -> Health {
        component::health(&self.store)
    }

    /// The output of the `stats` command; may block.
    pub(super) fn statistics(&self) -> Vec<Statistic> {
        // Not registered: its counts are not client traffic.
        let onlooker = Worker {
            store: Arc::clone(&self.store),
            cx: Cx::outside(),
            node: Arc::clone(&self.node),
            counters: Arc::default(),
        };
        stats::general(&onlooker)
    }

    /// All metrics as they are now; may block.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let ready = self.is_ready(&self.health());
        let now = Snapshot::of(&self.node, ready);
        let mut all = samples(TABLE, &now);
        all.extend(samples(counters::METRICS, &now.totals));
        all.extend(self.node.certificates.iter().flat_map(|of| samples(certificates::METRICS, &**of)));
        all.extend(self.listener_samples());
        all.extend(self.app_samples());
        all.extend(self.report().samples());
        all
    }

    /// The listeners' metrics.
    fn listener_samples(&self) -> impl Iterator<Item = Sample> + '_ {
        self.listener_states.iter().flat_map(|listener_state| listener_state.samples())
    }

    /// What the limits of apps refused.
    fn app_samples(&self) -> Vec<Sample> {
        let refused = self.node.app_limits().map_or_else(Vec::new, AppLimits::refused);
        let of_app = |(app, refused): (&str, &Refused)| {
            let [operations, bytes, _] = refused.counts();
            [("operations", operations), ("bytes", bytes)].map(|(what, count)| APP_LIMITS.labelled([app, what], count))
        };
        refused.into_iter().flat_map(of_app).collect()
    }

    /// Whether the node is ready for clients, given the store's `health`.
    pub(super) fn is_ready(&self, health: &Health) -> bool {
        self.phases.phase() == Phase::Running && !health.unready
    }
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observed").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
