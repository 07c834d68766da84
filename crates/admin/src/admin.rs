//! The admin side: a listener, its thread, and its routes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use axum::Router;
use axum::routing::get;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::error::AdminError;
use crate::route::Route;
use crate::service::Service;

/// The admin side of a process; it ends when this is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    routes: Arc<RwLock<Router>>,
    accept_errors: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens at `address` and answers from now on: `/healthz`, which succeeds whenever the process can answer, and `routes`.
    /// `helpers`: most threads for questions that may hang, as many as all [`Turn`](crate::Turn)s admit and one to spare.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the system cannot start a thread.
    ///
    /// # Panics
    /// If two routes have the same path.
    pub fn start(
        address: SocketAddr,
        helpers: usize,
        routes: impl IntoIterator<Item = Route>,
    ) -> Result<Self, AdminError> {
        let bind = || -> io::Result<(TcpListener, SocketAddr)> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind().map_err(|source| AdminError::Listen { address, source })?;
        let accept_errors = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = watch::channel(false);
        let alive = Router::new().route("/healthz", get(async || "ok\n"));
        let routes = routes.into_iter().fold(alive, |router, route| route.add_to(router));
        let routes = Arc::new(RwLock::new(routes));
        let service = Service {
            listener,
            routes: Arc::clone(&routes),
            helpers,
            accept_errors: Arc::clone(&accept_errors),
            stop: stopped,
        };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || service.run());
        let thread = thread.map_err(AdminError::Thread)?;
        tracing::info!(%address, "admin HTTP listening");
        Ok(Self { address, routes, accept_errors, stop, thread: Some(thread) })
    }

    /// The address it listens on, with the port that the kernel picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Failed accepts since the start, usually for want of descriptors.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    /// Answers these routes too from now on.
    ///
    /// # Panics
    /// If one of them has a path that is answered already.
    pub fn add(&self, routes: impl IntoIterator<Item = Route>) {
        let mut known = self.routes.write();
        *known = routes.into_iter().fold(known.clone(), |router, route| route.add_to(router));
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
