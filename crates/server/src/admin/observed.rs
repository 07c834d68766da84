//! The admin side's view of a server: its statistics, its metrics, its health.

use std::sync::Arc;

use moneta_process::desk;
use moneta_store::metric::{Sample, samples};
use moneta_store::{Cx, Health, Report, Store, component};
use serde_json::{Map, Value, json};

use super::metrics::{APP_LIMITS, TABLE};
use super::snapshot::Snapshot;
use crate::certificates;
use crate::config::ListenAddress;
use crate::counters;
use crate::limits::Refused;
use crate::listener_state::ListenerState;
use crate::node::Node;
use crate::session::Worker;
use crate::stats::{self, Statistic};

/// The admin side's view of a running server. Methods that call the store may block as long as the store does.
pub(crate) struct Observed {
    /// What all workers share.
    pub(crate) node: Arc<Node>,
    store: Arc<dyn Store>,
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
        addresses: Vec<ListenAddress>,
        listener_states: Vec<Arc<ListenerState>>,
    ) -> Self {
        Self { node, store, addresses, listener_states }
    }

    /// What the server serves.
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whether pages tell keys to processes that copy them. Where users are asked for, only those come so far who may replicate
    /// all keys.
    pub(super) fn may_be_copied(&self) -> bool {
        self.node.live.answers_dump() || self.node.users.is_some()
    }

    /// The store's report; may block.
    fn report(&self) -> Report {
        component::report(&self.store, &Cx::outside())
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

    /// The listeners' metrics.
    fn listener_samples(&self) -> impl Iterator<Item = Sample> + '_ {
        self.listener_states.iter().flat_map(|listener_state| listener_state.samples())
    }

    /// What the limits of apps refused.
    fn app_samples(&self) -> Vec<Sample> {
        let of_app = |(app, refused): (&str, &Refused)| {
            let [operations, bytes, _] = refused.counts();
            [("operations", operations), ("bytes", bytes)].map(|(what, count)| APP_LIMITS.labelled([app, what], count))
        };
        self.node.app_refusals().into_iter().flat_map(of_app).collect()
    }
}

impl desk::Observed for Observed {
    fn samples(&self) -> Vec<Sample> {
        let now = Snapshot::of(&self.node);
        let mut all = samples(TABLE, &now);
        all.extend(samples(counters::METRICS, &now.totals));
        all.extend(self.node.certificates.iter().flat_map(|of| samples(certificates::METRICS, &**of)));
        all.extend(self.listener_samples());
        all.extend(self.app_samples());
        all.extend(self.report().samples());
        all
    }

    fn health(&self) -> Health {
        component::health(&self.store)
    }

    fn facts(&self) -> Map<String, Value> {
        let facts = [
            ("listeners", self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().into()),
            ("connections", json!(self.node.registry.totals().curr_connections)),
            ("max_connections", json!(self.node.live.max_connections())),
        ];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observed").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
