//! What a server shows on the admin side of its process ([`moneta_admin`]): metrics, readiness, statistics, the feed.
//!
//! Calls to the store run on helper threads for a bounded time. The admin side answers before the tiers are opened and after the
//! last client has gone: while the node starts, drains and closes its store, `/healthz` succeeds and `/readyz` names the phase.

mod changes;
mod desk;
mod metrics;
pub(crate) mod observed;
mod pages;
mod snapshot;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use moneta_admin::{AdminConfig, AdminError, Places, Right, Route, Tally, tally, tasks};
use moneta_store::Progress;
use moneta_store::metric::{Metric, Reading};

use crate::certificates;
use crate::counters;
use crate::error::ServerError;
use crate::listener_state;
use crate::server::RunningServer;
use desk::Desk;

/// The declarations of the metrics of every node, those of its store aside.
pub fn metrics() -> impl Iterator<Item = Metric> {
    let of_counters = counters::METRICS.iter().map(Reading::metric);
    let of_listeners = listener_state::METRICS.iter().map(Reading::metric);
    let of_admin = tally::METRICS.iter().map(Reading::metric).chain(tasks::METRICS.iter().map(Reading::metric));
    metrics::TABLE
        .iter()
        .map(Reading::metric)
        .chain(of_counters)
        .chain(certificates::METRICS.iter().map(Reading::metric))
        .chain(of_listeners)
        .chain(of_admin)
        .chain([metrics::APP_LIMITS])
}

/// The admin side of a node; it ends when this is dropped.
#[derive(Debug)]
pub struct Admin {
    http: moneta_admin::Admin,
    desk: Arc<Desk>,
}

impl Admin {
    /// Listens at `address` and answers from now on, for a node whose tiers report their progress to `recovery`. `names`: hosts
    /// that requests may be for beside addresses, `localhost` and this machine's name.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the system cannot start a thread.
    pub fn start(address: SocketAddr, names: &[String], recovery: Arc<Progress>) -> Result<Self, ServerError> {
        let desk = Arc::new(Desk::new(recovery));
        let config = AdminConfig { names: names.to_vec(), ..AdminConfig::default() };
        let http = moneta_admin::Admin::start(address, config, routes(&desk)).map_err(|error| match error {
            AdminError::Listen { address, source } => ServerError::Admin { address, source },
            AdminError::Thread(source) => ServerError::Start { what: "the admin side", source },
            other => ServerError::Start { what: "the admin side", source: io::Error::other(other) },
        })?;
        desk.count_in(Arc::clone(http.tally()));
        Ok(Self { http, desk })
    }

    /// The address it listens on, with the port that the kernel picked.
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// What it counts of its own requests.
    pub fn tally(&self) -> &Tally {
        self.http.tally()
    }

    /// Answers these routes too from now on.
    ///
    /// # Panics
    /// If one of them has a path that is answered already.
    pub fn add(&self, routes: impl IntoIterator<Item = Route>) {
        self.http.add(routes);
    }

    /// Shows this text at `path`, which begins with a slash, from now on. It is made anew for each request, and must not wait.
    ///
    /// # Panics
    /// If that path is answered already.
    pub fn show_text(&self, path: &'static str, text: impl Fn() -> String + Send + Sync + 'static) {
        self.http.add([Route::get(path, pages::text, Arc::new(text) as pages::Text)]);
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

/// What a server shows.
fn routes(desk: &Arc<Desk>) -> Vec<Route> {
    let desk = || Arc::clone(desk);
    vec![
        Route::get("/metrics", pages::metrics, desk()).in_places(Places::Metrics),
        Route::get("/readyz", pages::readyz, desk()).in_places(Places::Readiness).needs(Right::None),
        Route::get("/stats", pages::stats, desk()),
        Route::get("/proxy", pages::proxy, desk()),
        Route::get("/changes", changes::changes, desk()).in_places(Places::Feed).needs(Right::Replicate),
        Route::get("/feed/readers", changes::readers, desk()),
    ]
}
