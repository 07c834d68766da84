//! Why a comparison could not be done.

use std::path::PathBuf;
use std::{fmt, io};

use moneta_client::wire::blocking::DialogueError;
use serde::Serialize;

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if *self == Self::A { "A" } else { "B" })
    }
}

/// Why a comparison could not be done, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The configuration makes no sense.
    #[error("{0}")]
    Config(String),
    /// A server cannot be reached, went away, or says what makes no sense, and did so again on a new connection.
    #[error("{side} ({address}): {source}")]
    Server {
        /// Which.
        side: Side,
        /// Where it should be.
        address: String,
        /// What happened.
        source: DialogueError,
    },
    /// A server gives no list of its keys.
    #[error("{side} ({address}) lists no keys: {reason}")]
    Unlisted {
        /// Which.
        side: Side,
        /// Where it is.
        address: String,
        /// In its words.
        reason: String,
    },
    /// The side that is to be copied has no items, and what only the other has was to be deleted.
    #[error(
        "{side} ({address}) has no items, so all of the other side would be deleted; \
         --allow-empty-source does that, if it is meant"
    )]
    EmptySource {
        /// Which.
        side: Side,
        /// Where it is.
        address: String,
    },
    /// The file of keys cannot be read.
    #[error("{}: {source}", path.display())]
    Keys {
        /// The file; `-` for standard input.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The temporary file that keys of a walk wait in cannot be written or read.
    #[error("a temporary file for keys: {0}")]
    Spool(#[source] io::Error),
    /// The run was asked to stop.
    #[error("interrupted")]
    Interrupted,
}
