//! Which worker gets a new connection: the one with the fewest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::mailbox::{Accepted, Mailbox};

/// The workers, for those who hand connections to them.
#[derive(Debug)]
pub(crate) struct Spread {
    workers: Vec<Arc<Mailbox>>,
    /// Where the search begins, so that ties are broken in turn.
    next: AtomicUsize,
}

impl Spread {
    /// Over `workers`, at least one.
    pub(crate) fn over(workers: Vec<Arc<Mailbox>>) -> Self {
        Self { workers, next: AtomicUsize::new(0) }
    }

    /// Connections open.
    pub(crate) fn open(&self) -> usize {
        self.workers.iter().map(|worker| worker.open()).sum()
    }

    /// Hands a connection to the worker with the fewest.
    pub(crate) fn deliver(&self, accepted: Accepted) {
        let (count, first) = (self.workers.len(), self.next.load(Ordering::Relaxed));
        let chosen = (0..count)
            .map(|step| (first + step) % count)
            .min_by_key(|&worker| self.workers[worker].open())
            .unwrap_or(0);
        self.next.store((chosen + 1) % count, Ordering::Relaxed);
        self.workers[chosen].deliver(accepted);
    }
}
