//! The admin side's state: a node that starts, serves, or is about to stop.

use std::sync::{Arc, OnceLock};

use moneta_admin::{Tally, Turn, tally, tasks};
use moneta_store::Progress;
use moneta_store::metric::{Sample, samples};
use parking_lot::RwLock;

use super::observed::Observed;

/// Answers from the feed that are made at once.
pub(super) const FEEDS: usize = 4;

/// The phase of the node.
#[derive(Clone, Debug)]
enum Life {
    Starting,
    Serving(Arc<Observed>),
    Closing,
}

/// State shared by all requests of the admin side.
#[derive(Debug)]
pub(super) struct Desk {
    // Read once for each request, written twice in the node's life.
    life: RwLock<Life>,
    recovery: Arc<Progress>,
    /// What the listener counts, once there is one.
    tally: OnceLock<Arc<Tally>>,
    /// Admits one request at a time that asks the store.
    pub(super) metrics: Turn,
    /// As above.
    pub(super) readiness: Turn,
    /// As above.
    pub(super) statistics: Turn,
    /// Admits a few requests at a time that read the feed.
    pub(super) feed: Turn,
}

impl Desk {
    /// The state of a node that starts; its tiers report their progress to `recovery`.
    pub(super) fn new(recovery: Arc<Progress>) -> Self {
        Self {
            life: RwLock::new(Life::Starting),
            recovery,
            tally: OnceLock::new(),
            metrics: Turn::of(1),
            readiness: Turn::of(1),
            statistics: Turn::of(1),
            feed: Turn::of(FEEDS),
        }
    }

    /// The listener counts in `tally`.
    pub(super) fn count_in(&self, tally: Arc<Tally>) {
        let _ = self.tally.set(tally);
    }

    /// What the listener has counted, and the background tasks.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let mut all = self.tally.get().map_or_else(Vec::new, |tally| samples(tally::METRICS, tally));
        all.extend(tasks::samples());
        all
    }

    /// The server runs.
    pub(super) fn serve(&self, observed: Arc<Observed>) {
        self.enter(Life::Serving(observed));
    }

    /// The store is about to be closed: no further calls to it.
    pub(super) fn close(&self) {
        self.enter(Life::Closing);
    }

    fn enter(&self, life: Life) {
        *self.life.write() = life;
    }

    /// The running server; else a sentence about what the node is doing.
    pub(super) fn observed(&self) -> Result<Arc<Observed>, String> {
        match &*self.life.read() {
            Life::Serving(observed) => Ok(Arc::clone(observed)),
            Life::Starting => Err(match self.recovery.percent() {
                Some(percent) => format!("starting: recovering, {percent} %"),
                None => "starting".to_owned(),
            }),
            Life::Closing => Err("stopping: the store is being closed".to_owned()),
        }
    }
}
