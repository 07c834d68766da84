//! What says which nodes there are.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::topology::{Topology, TopologyError};

/// What says which nodes there are. It is asked by a thread that may wait.
pub trait TopologySource: Send {
    /// What the source says now; waits for that at most about `timeout`, and a query longer where it has to answer one at a time.
    ///
    /// A source that is read says what it read, also when nothing has changed; one that is told of changes repeats the last one
    /// at least once a minute while it is connected. So a topology that is said again is known to be no accident. The epoch is 0
    /// where the source counts none. `None`: there was nothing to read yet.
    ///
    /// # Errors
    /// When it cannot be read, or says what is no topology. It is asked again later.
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError>;

    /// Another process has a newer topology: the source is to be read again as soon as may be.
    fn hurry(&mut self) {}

    /// What it is and where, for messages: `file /etc/moneta/topology.toml`.
    fn name(&self) -> String;
}

/// Why a source says no topology.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It says what is no topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A property file does not have the property.
    #[error("{} has no property \"{property}\"", path.display())]
    Property {
        /// The file.
        path: PathBuf,
        /// The property's key.
        property: String,
    },
    /// A name server does not say, or there is none.
    #[error("name \"{name}\": {error}")]
    Dns {
        /// The name asked for.
        name: String,
        /// What the resolver says.
        error: String,
    },
    /// The system has no thread or no event loop for it.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
    /// It has said nothing in time, and nothing is kept of before.
    #[error("no topology yet")]
    Silent,
    /// Another cause, of a source that is not of this crate.
    #[error("{0}")]
    Other(String),
}
