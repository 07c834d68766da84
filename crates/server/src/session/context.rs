//! What sessions need from their worker thread.

use std::sync::Arc;

use moneta_store::{Cx, Report, Store, component};

use crate::counters::Counters;
use crate::node::Node;

/// What a session needs from its worker thread: one for each thread and policy.
pub struct Worker {
    /// The store that all workers share.
    pub store: Arc<dyn Store>,
    /// The context of its operations: a policy, and this worker's reactors.
    pub cx: Cx,
    /// State shared by all workers.
    pub node: Arc<Node>,
    /// This worker's counters.
    pub counters: Arc<Counters>,
}

impl Worker {
    /// The store's report.
    pub(crate) fn report(&self) -> Report {
        component::report(&self.store, &self.cx)
    }
}
