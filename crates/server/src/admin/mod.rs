//! The admin side: HTTP on a separate port, for metrics, health and statistics.
//!
//! It has one thread with a single-threaded runtime that never blocks on the store: calls to the store run on helper threads for
//! a bounded time. It answers before the tiers are opened and after the last client has gone: while the node starts, drains
//! and closes its store, `/healthz` succeeds and `/readyz` names the phase.

mod changes;
mod collector;
mod desk;
mod format;
mod listener;
mod metrics;
mod observed;
mod pages;
mod process;
mod snapshot;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use axum::Router;
use axum::routing::get;
use moneta_store::Progress;
use moneta_store::metric::{Metric, Reading};
use tokio::sync::watch;

use crate::error::ServerError;
use crate::listener_state;
use crate::server::RunningServer;
use desk::Desk;
use listener::Service;
pub(crate) use observed::Observed;

/// The declarations of the metrics of every node, those of its store aside.
pub fn metrics() -> impl Iterator<Item = Metric> {
    metrics::TABLE.iter().map(Reading::metric).chain(listener_state::METRICS.iter().map(Reading::metric))
}

/// The admin side of a node; it ends when this is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    desk: Arc<Desk>,
    accept_errors: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens at `address` and answers from now on, for a node whose tiers report their progress to `recovery`.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the system cannot start a thread.
    pub fn start(address: SocketAddr, recovery: Arc<Progress>) -> Result<Self, ServerError> {
        let bind = || -> io::Result<(TcpListener, SocketAddr)> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind().map_err(|source| ServerError::Admin { address, source })?;
        let desk = Arc::new(Desk::new(recovery));
        let accept_errors = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = watch::channel(false);
        let routes = routes(Arc::clone(&desk));
        let service = Service { listener, routes, accept_errors: Arc::clone(&accept_errors), stop: stopped };
        let failed = |source| ServerError::Start { what: "the admin side", source };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || service.run()).map_err(failed)?;
        tracing::info!(%address, "admin HTTP listening");
        Ok(Self { address, desk, accept_errors, stop, thread: Some(thread) })
    }

    /// The address it listens on, with the port that the kernel picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Failed accepts since the start, usually for want of descriptors.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    /// Shows `server` from now on.
    pub fn show(&self, server: &RunningServer) {
        self.desk.serve(Arc::clone(server.observed()));
    }

    /// The store is about to be closed: the admin side does not call it any more.
    pub fn close_store(&self) {
        self.desk.close();
    }
}

fn routes(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/metrics", get(pages::metrics))
        .route("/healthz", get(pages::healthz))
        .route("/readyz", get(pages::readyz))
        .route("/stats", get(pages::stats))
        .route("/changes", get(changes::changes))
        .route("/feed/readers", get(changes::readers))
        .with_state(desk)
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
