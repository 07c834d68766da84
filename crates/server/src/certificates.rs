//! This process's certificates and whom it believes, read again while it serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use moneta_net::{ClientCertificates, PreparedTls, Tls, TlsConfig, TlsError};
use moneta_store::metric::{Metric, Reading, Unit, Values, by};

/// What the listeners' TLS stands on, and what became of reading it again.
#[derive(Debug)]
pub struct Certificates {
    tls: Arc<Tls>,
    /// Where it is read, for `stats settings`.
    pub(crate) config: TlsConfig,
    /// What clients show, where their listener says nothing else.
    pub(crate) clients: ClientCertificates,
    /// Unix second of the last time that something was put in force.
    refreshed: AtomicU64,
    applied: AtomicU64,
    failed: AtomicU64,
}

/// The metrics of TLS.
pub(crate) const METRICS: &[Reading<Certificates>] = &[
    Metric::gauge(
        "tls_certificate_expires_seconds",
        Unit::Seconds,
        "Unix second up to which this process's certificate holds.",
    )
    .keys(&[])
    .read(|certificates| certificates.expires().map_or(Values::NONE, |second| second.into())),
    Metric::counter(
        "tls_reloads_total",
        Unit::Count,
        "Times that certificates and authorities were read again, by what came of it.",
    )
    .labels(&["result"])
    .keys(&[])
    .read(|certificates| {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        by(&[("applied", count(&certificates.applied)), ("failed", count(&certificates.failed))])
    }),
];

impl Certificates {
    /// What was loaded just now from where `config` says.
    pub fn new(tls: Arc<Tls>, config: TlsConfig, clients: ClientCertificates) -> Self {
        let refreshed = AtomicU64::new(unix_second());
        Self { tls, config, clients, refreshed, applied: AtomicU64::new(0), failed: AtomicU64::new(0) }
    }

    /// Reads all again, without effect yet. May wait for files and commands.
    ///
    /// # Errors
    /// When something cannot be read or used; what is in force stays.
    pub fn prepare(&self) -> Result<PreparedTls, TlsError> {
        self.tls.prepare().inspect_err(|_| self.count_failure())
    }

    /// Puts in force what was prepared.
    pub fn apply(&self, prepared: PreparedTls) {
        self.tls.apply(prepared);
        self.applied.fetch_add(1, Ordering::Relaxed);
        self.refreshed.store(unix_second(), Ordering::Relaxed);
    }

    /// Reads all again and puts it in force. May wait for files and commands.
    ///
    /// # Errors
    /// As [`Certificates::prepare`].
    pub fn refresh(&self) -> Result<(), TlsError> {
        self.prepare().map(|prepared| self.apply(prepared))
    }

    /// The same if a file looks different; whether it did.
    ///
    /// # Errors
    /// As [`Certificates::prepare`].
    pub fn refresh_if_changed(&self) -> Result<bool, TlsError> {
        let prepared = self.tls.prepare_if_changed().inspect_err(|_| self.count_failure())?;
        let is_changed = prepared.is_some();
        prepared.into_iter().for_each(|prepared| self.apply(prepared));
        Ok(is_changed)
    }

    /// The Unix second up to which this process's certificate holds.
    pub fn expires(&self) -> Option<u64> {
        self.tls.expires()
    }

    /// Whether there is one to show to clients.
    pub(crate) fn serve(&self) -> bool {
        self.config.certificate.is_some()
    }

    /// Seconds since something was put in force.
    pub(crate) fn age(&self) -> u64 {
        unix_second().saturating_sub(self.refreshed.load(Ordering::Relaxed))
    }

    fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}

fn unix_second() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
