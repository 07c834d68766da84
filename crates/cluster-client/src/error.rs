//! Why a client cannot be had, or a request has no answer.

use moneta_store::{ErrorKind, StoreError};

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is empty or longer than 250 bytes.
    #[error("a key has 1 to 250 bytes")]
    Key,
    /// The value is longer than the client or a node takes. What the key had is gone.
    #[error("the value is too large")]
    TooLarge,
    /// The nodes have no room and evict nothing.
    #[error("the nodes have no room")]
    OutOfMemory,
    /// The value is no decimal number below 2^64.
    #[error("the value is not a number")]
    NotANumber,
    /// The nodes did not answer as the rules want it. [`Error::is_unknown`] says whether a write may have taken effect.
    #[error(transparent)]
    Store(StoreError),
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
}

impl Error {
    /// Whether a write that ended so may have taken effect on some copies, or take effect later.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Store(error) => !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::ClockAhead),
            Self::Closed => true,
            _ => false,
        }
    }
}

/// Why a client cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Neither a topology nor a source of one was given.
    #[error("a client needs a topology")]
    NoTopology,
    /// The source says no topology.
    #[error("there is no topology: {0}")]
    Source(#[from] moneta_cluster::sources::SourceError),
    /// The topology makes no sense, or there can be no store for a node.
    #[error(transparent)]
    Cluster(#[from] moneta_cluster::ClusterError),
    /// The system has no thread, no descriptor or no randomness.
    #[error("{what}: {source}")]
    System {
        /// What there is none of.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}
