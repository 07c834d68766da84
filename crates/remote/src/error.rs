//! Why a remote store could not be made.

use std::io;

use moneta_net::Address;

/// Why a remote store could not be made. That its server does not answer is no such reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The configuration makes no sense.
    #[error("{0}")]
    Config(String),
    /// The host's name means nothing.
    #[error("{address}: the host is not known: {source}")]
    Unknown {
        /// The address.
        address: Address,
        /// The system's reason.
        source: io::Error,
    },
}
