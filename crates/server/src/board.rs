//! The board of a node: what proxies tell each other by way of it, of writes that nodes lack (docs/cluster.md).

use std::sync::{Arc, OnceLock};

use moneta_feed::horizon;
use moneta_store::Store;
use moneta_store::board::Board;

/// The board of a node.
#[derive(Debug, Default)]
pub(crate) struct NodeBoard {
    pub(crate) posts: Board,
    /// Since when the node has what was written to it, in milliseconds since the Unix epoch; 0: it cannot tell.
    since: OnceLock<u64>,
}

impl NodeBoard {
    /// Since when the node has what was written to it: since it started at this Unix second, or, where it kept its items and
    /// their deletes, as far back as it remembered those then.
    pub(crate) fn since(&self, store: &Arc<dyn Store>, started: u32) -> u64 {
        *self.since.get_or_init(|| match horizon(store) {
            0 => 0,
            horizon => horizon.min(u64::from(started) * 1000),
        })
    }
}
