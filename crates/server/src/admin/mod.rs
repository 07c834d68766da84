//! The admin side: HTTP on a port of its own, for metrics, health and statistics, off the data port.
//!
//! It runs on one thread of its own with a single-threaded runtime that never waits for the store: what asks the store does
//! so on threads beside it, for a bounded time. It is there before the tiers are opened and after the last client has gone:
//! while the node starts, drains and closes its store, `/healthz` answers and `/readyz` says what is going on.

mod collector;
mod desk;
mod figures;
mod format;
mod listener;
mod metrics;
mod observed;
mod pages;
mod process;
mod tiers;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use axum::Router;
use axum::routing::get;
use moneta_store::Progress;
use tokio::sync::watch;

use crate::error::ServerError;
use crate::server::RunningServer;
use desk::Desk;
use listener::Service;
pub(crate) use observed::Observed;

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
    /// Listens at `address` and answers from now on, for a node whose tiers tell `recovery` how far they are.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the system has no room for a thread.
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

    /// Where it listens, with the port that the kernel picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts that failed since the start, for want of descriptors as a rule.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    /// Shows `server` from now on.
    pub fn show(&self, server: &RunningServer) {
        self.desk.serve(Arc::clone(server.observed()));
    }

    /// The store is about to be closed: nothing is asked of it from now on.
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
