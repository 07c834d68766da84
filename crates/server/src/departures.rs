//! Items that leave without a client asking for it: for watchers of evictions, and for counts by prefix.
//!
//! The store has one observer, and only while one of the two wants to know: an SSD tier reads what it empties for it.

use std::sync::Arc;

use moneta_store::Store;
use moneta_store::component::{Observer, Removed};

use crate::node::Node;
use crate::watch::EVICTIONS;

/// Tells a node's watchers and prefixes.
struct Departures(Arc<Node>);

impl Observer for Departures {
    fn removed(&self, item: &Removed<'_>) {
        let node = &self.0;
        node.watchers.removed(item);
        if node.prefixes.is_enabled() {
            node.prefixes.note_departure(item, node.clock.now());
        }
    }
}

/// Has the store tell of departures, or not, as the node's watchers and prefixes are now. A store without that part tells none.
pub(crate) fn observe(node: &Arc<Node>, store: &dyn Store) {
    let Some(part) = store.parts().observe else { return };
    let _one_at_a_time = node.observing.lock();
    let wanted = node.watchers.wants(EVICTIONS) || node.prefixes.is_enabled();
    part.observe(wanted.then(|| Arc::new(Departures(Arc::clone(node))) as Arc<dyn Observer>));
}
