//! What says which nodes there are.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::advice::Advised;
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

    /// What it says of the nodes' states, if it has said so again since it was asked last: all of it, so that a node that is not
    /// in the list is as it should be.
    fn advice(&mut self) -> Option<Vec<Advised>> {
        None
    }

    /// Whether its epochs only grow: then a topology of an earlier epoch is old news, or of a source that has lost its memory, and
    /// is not taken.
    fn epochs_grow(&self) -> bool {
        false
    }

    /// It has said a topology that was refused, since one of a later epoch is in force: what is to be in force next has an epoch
    /// above `epoch`. For sources that can tell this to what they read.
    fn is_behind(&mut self, _epoch: u64) {}

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
    /// The file that keeps the last topology is not as it was written.
    #[error("{}: its checksum does not hold", .0.display())]
    Checksum(PathBuf),
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
    /// It says a topology that is older than the one in force.
    #[error("it says epoch {said}, which is not after epoch {current}")]
    EpochBack {
        /// What it says.
        said: u64,
        /// What is in force.
        current: u64,
    },
    /// It has said nothing in time, and nothing is kept of before.
    #[error("no topology yet")]
    Silent,
    /// Another cause, of a source that is not of this crate.
    #[error("{0}")]
    Other(String),
}
