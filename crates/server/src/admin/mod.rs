//! The admin side: HTTP on a port of its own, for metrics, health and statistics, off the data port.
//!
//! It runs on one thread of its own with a single-threaded runtime, so that a slow scrape never holds up a worker. It
//! starts before the first connection is accepted and ends after the last is closed: while the node drains, `/readyz`
//! says so.

mod collector;
mod figures;
mod metrics;
mod pages;
mod tiers;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::routing::get;
use moneta_protocol::command::{Style, TextStyle};
use moneta_store::{Figure, Health, Store, StoreStats};
use tokio::sync::oneshot;

use crate::config::ListenAddress;
use crate::error::ServerError;
use crate::lifecycle::{Phase, Stopper};
use crate::node::Node;
use crate::session::Worker;
use crate::stats;

/// Everything the admin side reads.
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
}

impl Observed {
    /// Everything of a server that answers `worker`'s commands.
    pub(crate) fn new<S>(worker: Worker<S>, stopper: Arc<Stopper>, addresses: Vec<ListenAddress>) -> Self
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
        }
    }

    /// Whether clients may be sent here, if the store is in `health`.
    fn is_ready(&self, health: &Health) -> bool {
        self.stopper.phase() == Phase::Running && !health.unready
    }
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observed").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// A socket for the admin side that is listened on and not yet served.
#[derive(Debug)]
pub(crate) struct AdminListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdminListener {
    /// Listens at `address`.
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let bind = || -> io::Result<Self> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bind().map_err(|source| ServerError::Admin { address, source })
    }

    /// Serves on a thread of its own.
    pub(crate) fn serve(self, observed: Observed) -> Result<AdminThread, ServerError> {
        let failed = |source| ServerError::Start { what: "the admin side", source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener).map_err(failed)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let routes = routes(Arc::new(observed));
        // A request that is still being written is cut off at the end: the node is gone, there is nothing left to say.
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    ended = axum::serve(listener, routes).into_future() => {
                        if let Err(error) = ended {
                            tracing::error!(%error, "the admin side has ended");
                        }
                    }
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(serve).map_err(failed)?;
        tracing::info!(address = %self.address, "admin HTTP listening");
        Ok(AdminThread { address: self.address, stop: Some(stop), thread: Some(thread) })
    }
}

fn routes(observed: Arc<Observed>) -> Router {
    Router::new()
        .route("/metrics", get(pages::metrics))
        .route("/healthz", get(pages::healthz))
        .route("/readyz", get(pages::readyz))
        .route("/stats", get(pages::stats))
        .with_state(observed)
}

/// The running admin side; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AdminThread {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
