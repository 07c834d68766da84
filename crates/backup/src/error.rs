//! Why a backup or a restore does not go on.

use std::io;

use moneta_bulk::BulkError;
use moneta_feed::{Gap, SinkError};
use moneta_segments::SegmentError;
use moneta_store::StoreError;

/// Why a backup or a restore does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The archive does not answer, or has a record that is none.
    #[error("{name}: {source}")]
    Archive {
        /// The file.
        name: String,
        /// What is wrong.
        source: io::Error,
    },
    /// Segments cannot be read or written.
    #[error("{0}")]
    Segments(#[from] SegmentError),
    /// A part of the changes is missing, or does not begin where the one before it ended.
    #[error("the backup of {slot} has a hole: {reason}")]
    Hole {
        /// Whose.
        slot: String,
        /// Where.
        reason: String,
    },
    /// What was asked for is not there, or does not fit.
    #[error("{0}")]
    Refused(String),
    /// A server does not answer, or cannot do what is asked of it; or the pump stopped.
    #[error("{0}")]
    Server(#[from] BulkError),
    /// A target does not take what it is sent.
    #[error("{target}: {source}")]
    Target {
        /// Which.
        target: String,
        /// Why.
        source: SinkError,
    },
    /// A target does not answer.
    #[error("{target}: {source}")]
    Store {
        /// Which.
        target: String,
        /// Why.
        source: StoreError,
    },
    /// Changes are missing from a feed, again and again.
    #[error("{server} tells that changes before {} ms are missing, and again after a new base", gap.since)]
    Gap {
        /// The node.
        server: String,
        /// What it told.
        gap: Gap,
    },
    /// What was restored is not what the archive has.
    #[error("{0}")]
    Differs(String),
    /// The system has no thread, no file or no room.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl BackupError {
    pub(crate) fn archive(name: &str, source: io::Error) -> Self {
        Self::Archive { name: name.to_owned(), source }
    }
}
