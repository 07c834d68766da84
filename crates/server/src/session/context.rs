//! What sessions need from their worker thread.

use std::sync::Arc;

use moneta_store::{Cx, Key, Op, Report, Store, Unseen, component};

use crate::counters::WorkerCounters;
use crate::departures;
use crate::latency::Latencies;
use crate::node::Node;
use crate::prefixes::Use;

/// What a session needs from its worker thread: one for each thread and policy.
pub struct Worker {
    /// The store that all workers share.
    pub store: Arc<dyn Store>,
    /// The context of its operations: a policy, and this worker's reactors.
    pub cx: Cx,
    /// State shared by all workers.
    pub node: Arc<Node>,
    /// This worker's counters.
    pub counters: Arc<WorkerCounters>,
}

impl Worker {
    /// Its histograms for the policy of these operations.
    #[inline]
    pub(crate) fn latencies(&self) -> &Latencies {
        self.counters.latencies.of(self.cx.policy())
    }

    /// The store's report.
    pub(crate) fn report(&self) -> Report {
        component::report(&self.store, &self.cx)
    }

    /// Has the store tell of items that leave, or not, as watchers and prefixes are now.
    pub(crate) fn observe(&self) {
        departures::observe(&self.node, &*self.store);
    }

    /// Counts a use of a key while `stats detail` is on.
    #[cold]
    pub(crate) fn count_by_prefix(&self, key: &[u8], what: Use) {
        if !self.node.prefixes.count(key, what, self.node.clock.now()) {
            return self.observe();
        }
        if what == (Use::Get { hit: true }) && self.store.parts().observe.is_some() {
            // An upper tier tells a lower one of few of its hits. What it does not tell would be counted as unread.
            let key = Key::new(key, self.store.seed());
            let _ = self.store.call(&self.cx, &key, Op::NoteHit, &mut Unseen);
        }
    }
}
