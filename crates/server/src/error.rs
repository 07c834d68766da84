//! Why a server could not start or had to stop.

use std::io;

use crate::config::ListenAddress;

/// A failure of the server as a whole; an error on one connection ends only that connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An invalid value in the configuration.
    #[error("{0}")]
    Config(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: ListenAddress,
        /// What the system said.
        source: io::Error,
    },
    /// Another process answers on that Unix socket.
    #[error("cannot listen on unix:{0}: another process is listening there")]
    SocketInUse(String),
    /// A thread, an event queue or a signal handler could not be set up.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What could not be set up.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A thread ended by a panic, which is a defect of the program.
    #[error("thread {0} panicked")]
    Panicked(String),
}
