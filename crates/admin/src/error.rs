//! Why the admin side cannot start.

use std::io;
use std::net::SocketAddr;

/// Why the admin side cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for admin HTTP: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system has no thread for it.
    #[error("cannot start the admin side: {0}")]
    Thread(#[source] io::Error),
}
