//! The admin side: a listener, its task, and its routes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use moneta_background::Joined;
use moneta_background::runtime::{self, AsyncTask};
use parking_lot::RwLock;

use crate::error::AdminError;
use crate::guard::{Access, Guard};
use crate::hosts::Hosts;
use crate::limits::{Limits, Places};
use crate::places::Hall;
use crate::route::{ALIVE, Pages, Route};
use crate::service::{Common, Service};
use crate::tally::Tally;

/// How long the end of an admin side is waited for: its task ends within a turn of the runtime.
const ENDING: Duration = Duration::from_secs(10);

/// The admin side of a process; it ends when this is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    common: Arc<Common>,
    task: Option<AsyncTask>,
}

/// Who may ask an admin side, and for how much.
#[derive(Clone, Debug, Default)]
pub struct AdminConfig {
    /// Hosts that requests may be for, beside addresses, `localhost` and this machine's name.
    pub names: Vec<String>,
    /// What clients may hold.
    pub limits: Limits,
    /// Who may ask for what.
    pub guard: Guard,
}

impl Admin {
    /// Listens at `address` and answers from now on: `/healthz`, which succeeds whenever the process can answer, whatever host the
    /// request names, and `routes`.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the system has no thread for the runtime.
    ///
    /// # Panics
    /// If two routes have the same path and method.
    pub fn start(
        address: SocketAddr,
        config: AdminConfig,
        routes: impl IntoIterator<Item = Route>,
    ) -> Result<Self, AdminError> {
        let bind = || -> io::Result<(TcpListener, SocketAddr)> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind().map_err(|source| AdminError::Listen { address, source })?;
        let alive = Route::get(ALIVE, async || "ok\n", ()).in_places(Places::Arriving).with_access(Access::Open);
        let pages = [alive].into_iter().chain(routes).fold(Pages::default(), Pages::with);
        let tally = Arc::<Tally>::default();
        let AdminConfig { names, limits, guard } = config;
        let hall = Hall::new(limits.clone(), Arc::clone(&tally));
        let common = Arc::new(Common { pages: RwLock::new(pages), hosts: Hosts::new(&names), guard, limits, tally });
        let service = Service { listener, common: Arc::clone(&common), hall };
        let task = runtime::spawn("admin", |task| service.run(task)).map_err(AdminError::Thread)?;
        tracing::info!(%address, "admin HTTP listening");
        Ok(Self { address, common, task: Some(task) })
    }

    /// The address it listens on, with the port that the kernel picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counts.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.common.tally
    }

    /// Answers these routes too from now on.
    ///
    /// # Panics
    /// If one of them has a path and method that is answered already.
    pub fn add(&self, routes: impl IntoIterator<Item = Route>) {
        let mut known = self.common.pages.write();
        *known = routes.into_iter().fold(known.clone(), Pages::with);
    }

    /// The paths of all pages, in order.
    pub fn paths(&self) -> Vec<&'static str> {
        self.common.pages.read().paths()
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.stop();
            if task.join_within(ENDING) == Joined::Late {
                tracing::warn!("the admin side does not end");
            }
        }
    }
}
