//! The admin side: a listener, its task, and its routes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use moneta_background::Joined;
use moneta_background::runtime::{self, AsyncTask};
use moneta_net::TlsAcceptor;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::answer::Missing;
use crate::error::AdminError;
use crate::handshakes::Handshakes;
use crate::hosts::Hosts;
use crate::limits::{Limits, Places};
use crate::places::Hall;
use crate::right::{Guard, Right};
use crate::route::{ALIVE, Pages, Route};
use crate::service::{Common, Service};
use crate::tally::Tally;

/// How long the end of an admin side is waited for: its task ends within a turn of the runtime.
const ENDING: Duration = Duration::from_secs(10);

/// The admin side of a process; it ends when this is dropped: answers that go on end well, if their readers take that within a
/// second, and all others are cut off.
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
    /// What protects connections; `None`: nothing.
    pub tls: Option<TlsAcceptor>,
    /// What is answered where there is no page.
    pub missing: Missing,
    /// What is counted.
    pub tally: Arc<Tally>,
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
        let (listener, address) = bind(address).map_err(|source| AdminError::Listen { address, source })?;
        let alive = Route::get(ALIVE, async || "ok\n", ()).in_places(Places::Arriving).needs(Right::None);
        let pages = RwLock::new(Pages::new([alive].into_iter().chain(routes).collect()));
        let AdminConfig { names, limits, guard, tls, missing, tally } = config;
        let tls = tls.map(Handshakes::start).transpose().map_err(AdminError::Thread)?;
        let hall = Hall::new(limits.clone(), Arc::clone(&tally));
        let (hosts, are_ended) = (Hosts::new(&names), watch::Sender::new(false));
        let common = Arc::new(Common { pages, hosts, guard, tls, missing, limits, tally, are_ended });
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
        let mut pages = self.common.pages.write();
        *pages = pages.and(routes);
    }

    /// Answers only those of its pages whose path is as wanted from now on.
    pub fn retain(&self, is_wanted: impl Fn(&str) -> bool) {
        let mut pages = self.common.pages.write();
        *pages = pages.only(is_wanted);
    }

    /// Ends all answers that go on, now and those to come: what they read from is about to close.
    pub fn end_streams(&self) {
        self.common.are_ended.send_replace(true);
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

/// Connections that the system completes before they are accepted: when many processes come at once, those beyond it wait for a
/// second or more. The standard library's is 128.
const BACKLOG: i32 = 4096;

/// Listens, and says where.
fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    // A second time, for its backlog.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_of_connections_waits_for_no_accept() {
        let (_listener, address) = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
        let clients: Vec<TcpStream> = std::iter::repeat_with(connect).take(300).collect();
        assert_eq!(clients.len(), 300);
    }
}
