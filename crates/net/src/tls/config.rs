//! Where a process finds what it needs for TLS.

use std::fmt;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use super::source::{PemSource, Stamp};

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// 1.2 beside 1.3.
    #[default]
    Tls12,
    /// 1.3 alone.
    Tls13,
}

impl fmt::Display for MinVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        })
    }
}

impl MinVersion {
    /// Those that are spoken, the preferred one first.
    pub(super) fn spoken(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            Self::Tls12 => &BOTH,
            Self::Tls13 => &BOTH[..1],
        }
    }
}

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
    /// The oldest version that is spoken, to clients and to servers.
    pub min_version: MinVersion,
}

impl TlsConfig {
    /// Whether no source is given.
    pub fn is_empty(&self) -> bool {
        self.sources().iter().all(|source| source.is_none())
    }

    fn sources(&self) -> [&Option<PemSource>; 4] {
        [&self.certificate, &self.key, &self.authorities, &self.revoked]
    }

    pub(super) fn stamps(&self) -> [Option<Stamp>; 4] {
        self.sources().map(|source| source.as_ref().and_then(PemSource::stamp))
    }
}
