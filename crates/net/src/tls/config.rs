//! Where a process finds what it needs for TLS.

use super::source::{PemSource, Stamp};

/// Where a process finds who it is and whom it believes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// Its certificate, and those between it and an authority.
    pub certificate: Option<PemSource>,
    /// The key of its certificate.
    pub key: Option<PemSource>,
    /// Authorities that are believed, of clients and of servers.
    pub authorities: Option<PemSource>,
    /// Lists of certificates that are revoked.
    pub revoked: Option<PemSource>,
}

impl TlsConfig {
    /// Whether anything is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn sources(&self) -> [&Option<PemSource>; 4] {
        [&self.certificate, &self.key, &self.authorities, &self.revoked]
    }

    pub(super) fn stamps(&self) -> [Option<Stamp>; 4] {
        self.sources().map(|source| source.as_ref().and_then(PemSource::stamp))
    }
}
