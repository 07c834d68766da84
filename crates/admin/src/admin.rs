//! The admin side: a listener, its thread, and its routes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::error::AdminError;
use crate::hosts::Hosts;
use crate::places::{Hall, Places};
use crate::route::{ALIVE, Pages, Route};
use crate::service::Service;
use crate::tally::Tally;

/// The admin side of a process; it ends when this is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    pages: Arc<RwLock<Pages>>,
    tally: Arc<Tally>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens at `address` and answers from now on: `/healthz`, which succeeds whenever the process can answer, and `routes`.
    /// Requests must be for an address, `localhost`, this machine's name or one of `names`; `/healthz` answers all.
    /// `helpers`: most threads for questions that may hang, as many as all [`Turn`](crate::Turn)s admit and one to spare.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the system cannot start a thread.
    ///
    /// # Panics
    /// If two routes have the same path.
    pub fn start(
        address: SocketAddr,
        names: &[String],
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
        let (stop, stopped) = watch::channel(false);
        let alive = Route::get(ALIVE, async || "ok\n", ()).in_places(Places::Arriving);
        let pages = [alive].into_iter().chain(routes).fold(Pages::default(), Pages::with);
        let pages = Arc::new(RwLock::new(pages));
        let tally = Arc::<Tally>::default();
        let service = Service {
            listener,
            pages: Arc::clone(&pages),
            hosts: Arc::new(Hosts::new(names)),
            hall: Hall::new(Arc::clone(&tally)),
            tally: Arc::clone(&tally),
            helpers,
            stop: stopped,
        };
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || service.run());
        let thread = thread.map_err(AdminError::Thread)?;
        tracing::info!(%address, "admin HTTP listening");
        Ok(Self { address, pages, tally, stop, thread: Some(thread) })
    }

    /// The address it listens on, with the port that the kernel picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counts.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Answers these routes too from now on.
    ///
    /// # Panics
    /// If one of them has a path that is answered already.
    pub fn add(&self, routes: impl IntoIterator<Item = Route>) {
        let mut known = self.pages.write();
        *known = routes.into_iter().fold(known.clone(), Pages::with);
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
