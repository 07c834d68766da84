//! What the admin side counts of its own requests.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::metric::{Metric, Reading, Unit, by};

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Tally {
    accept_errors: AtomicU64,
    foreign_hosts: AtomicU64,
    turned_away: AtomicU64,
    unauthorized: AtomicU64,
}

/// Its metrics.
pub const METRICS: &[Reading<Tally>] = &[
    Metric::counter("admin_accept_errors_total", Unit::Count, "Failed accepts of the admin listener.")
        .keys(&[])
        .read(|tally| tally.accept_errors().into()),
    Metric::counter(
        "admin_refused_total",
        Unit::Count,
        "Requests of the admin listener that were refused for their Host or for want of a right, and connections that lost their place to another or found none.",
    )
    .labels(&["reason"])
    .keys(&[])
    .read(|tally| by(&[("host", tally.foreign_hosts()), ("places", tally.turned_away()), ("right", tally.unauthorized())])),
];

impl Tally {
    /// Failed accepts, usually for want of descriptors.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    /// Requests that were refused for the host they named.
    pub fn foreign_hosts(&self) -> u64 {
        self.foreign_hosts.load(Ordering::Relaxed)
    }

    /// Connections that lost their place to another, or found none.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Requests that their sender may not make.
    pub fn unauthorized(&self) -> u64 {
        self.unauthorized.load(Ordering::Relaxed)
    }

    pub(crate) fn count_unauthorized(&self) {
        self.unauthorized.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_accept_error(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_foreign_host(&self) {
        self.foreign_hosts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_turned_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }
}
