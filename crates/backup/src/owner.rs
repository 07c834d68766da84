//! The keys that are a slot's.

use std::fmt;
use std::sync::Arc;

use moneta_cluster::Ring;

/// Whose a key is.
#[derive(Clone)]
pub(crate) struct Owner {
    ring: Arc<Ring>,
    place: usize,
}

impl Owner {
    /// The slot at a place of a ring.
    pub(crate) fn new(ring: Arc<Ring>, place: usize) -> Self {
        Self { ring, place }
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.ring.node(key) == self.place
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Owner").field("place", &self.place).finish_non_exhaustive()
    }
}
