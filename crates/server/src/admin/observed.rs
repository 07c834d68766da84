//! What the admin side reads of a server: its numbers, its health, its phase.

use std::sync::Arc;

use moneta_protocol::command::{Style, TextStyle};
use moneta_store::{Figure, Health, Store, StoreStats};

use crate::config::ListenAddress;
use crate::entrance::Entrance;
use crate::lifecycle::{Phase, Stopper};
use crate::node::Node;
use crate::session::Worker;
use crate::stats;

/// Everything the admin side reads of a server that runs. What asks the store may take as long as the store does.
pub(crate) struct Observed {
    /// What all workers share.
    pub(crate) node: Arc<Node>,
    /// Reads the store's numbers.
    pub(crate) store: Box<dyn Fn() -> StoreStats + Send + Sync>,
    /// Reads what the store counts under names of its own.
    pub(crate) figures: Box<dyn Fn() -> Vec<Figure> + Send + Sync>,
    /// Asks the store whether it is fit to serve.
    pub(crate) health: Box<dyn Fn() -> Health + Send + Sync>,
    /// What the `stats` command says, in classic text.
    pub(crate) stats: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    /// The server's phase.
    pub(crate) stopper: Arc<Stopper>,
    /// Where clients connect.
    pub(crate) addresses: Vec<ListenAddress>,
    /// The listeners' connections, in the same order.
    entrances: Vec<Arc<Entrance>>,
}

impl Observed {
    /// Everything of a server that answers `worker`'s commands.
    pub(crate) fn new<S>(
        worker: Worker<S>,
        stopper: Arc<Stopper>,
        addresses: Vec<ListenAddress>,
        entrances: Vec<Arc<Entrance>>,
    ) -> Self
    where
        S: Store + Clone + Send + Sync + 'static,
    {
        let node = Arc::clone(&worker.node);
        let (store, counting, asked) = (worker.store.clone(), worker.store.clone(), worker.store.clone());
        let stats = move || {
            let mut text = Vec::new();
            stats::write(&worker, b"", &Style::Text(TextStyle::default()), &mut text);
            text
        };
        Self {
            node,
            store: Box::new(move || store.stats()),
            figures: Box::new(move || counting.figures()),
            health: Box::new(move || asked.health()),
            stats: Box::new(stats),
            stopper,
            addresses,
            entrances,
        }
    }

    /// What the store counts under names of its own, and what listeners do.
    pub(super) fn all_figures(&self) -> Vec<Figure> {
        let mut figures = (self.figures)();
        figures.extend(self.entrances.iter().flat_map(|entrance| entrance.figures()));
        figures
    }

    /// Whether clients may be sent here, if the store is in `health`.
    pub(super) fn is_ready(&self, health: &Health) -> bool {
        self.stopper.phase() == Phase::Running && !health.unready
    }
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observed").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
