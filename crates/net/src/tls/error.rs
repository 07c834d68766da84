//! What fails about TLS.

use std::fmt;

/// Why certificates, keys or authorities cannot be used: which of them, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct TlsError {
    /// The source, as it was given.
    pub what: String,
    /// The reason.
    pub reason: String,
}

impl TlsError {
    pub(crate) fn new(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self { what: what.to_string(), reason: reason.to_string() }
    }
}

/// Why a connection cannot be protected, or is not any more.
#[derive(Clone, PartialEq)]
pub struct TlsFailure(Box<rustls::Error>);

impl From<rustls::Error> for TlsFailure {
    fn from(error: rustls::Error) -> Self {
        Self(Box::new(error))
    }
}

impl TlsFailure {
    /// Whether what came is no TLS at all.
    pub fn is_of_plain_text(&self) -> bool {
        matches!(*self.0, rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))
    }

    /// Whether the other side ended TLS and said why, as one that does not believe this side's certificate.
    pub fn is_of_other_side(&self) -> bool {
        matches!(*self.0, rustls::Error::AlertReceived(_))
    }

    /// Whether the other side's certificate, or the lack of one, is the reason.
    pub fn is_of_certificate(&self) -> bool {
        matches!(*self.0, rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    }
}

impl Eq for TlsFailure {}

impl std::error::Error for TlsFailure {}

impl fmt::Debug for TlsFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            rustls::Error::AlertReceived(alert) => write!(formatter, "the other side ended TLS: {alert:?}"),
            other => write!(formatter, "TLS: {other}"),
        }
    }
}
