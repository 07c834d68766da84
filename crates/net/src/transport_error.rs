//! Why a connection ends that should not.

use std::io;

use rustix::io::Errno;

use crate::tls::error::TlsFailure;

/// Why a transport cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The system says so of its socket.
    #[error("{0}")]
    System(#[from] Errno),
    /// The handshake fails, or what came is not what the other side protected.
    #[error("{0}")]
    Tls(#[from] TlsFailure),
    /// The address asks for TLS, and the process has no authority to believe.
    #[error("the address begins with tls:, and this process has no authority to believe (tls_ca)")]
    NoTls,
    /// The connection ended without the other side's word that this is all.
    #[error("the connection was cut off")]
    Truncated,
}

impl From<rustls::Error> for TransportError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error.into())
    }
}

impl From<TransportError> for io::Error {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::System(error) => error.into(),
            TransportError::NoTls => Self::new(io::ErrorKind::InvalidInput, error),
            TransportError::Truncated => Self::from(io::ErrorKind::UnexpectedEof),
            TransportError::Tls(failure) => Self::other(failure.to_string()),
        }
    }
}
