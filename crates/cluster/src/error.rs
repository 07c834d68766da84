//! Why a cluster store cannot be had.

use std::path::PathBuf;

use crate::topology::TopologyError;

/// Why a cluster store cannot be had, or cannot take a topology.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The topology makes no sense.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// There can be no store for a node.
    #[error("node {node} cannot be had: {source}")]
    Node {
        /// Replica and slot.
        node: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The hints of before cannot be read.
    #[error("the hints in {} cannot be read: {source}", path.display())]
    Hints {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process keeps its hints in the same files.
    #[error("{} is locked by another process: each proxy of an app needs a hint_dir that no other one has", path.display())]
    HintsInUse {
        /// The file that is locked.
        path: PathBuf,
    },
    /// The topology's source cannot be followed.
    #[error(transparent)]
    Source(#[from] crate::sources::SourceError),
    /// The system has no thread for it.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
