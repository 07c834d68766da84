//! Why items are not moved.

use std::io;

use moneta_client::wire::blocking::DialogueError;
use moneta_feed::{CursorError, DURABLE_WITHIN, Gap, PumpError, SinkError, SourceError};
use moneta_segments::SegmentError;

/// Why items are not moved, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// A server does not answer, or refuses.
    #[error("{server}: {source}")]
    Server {
        /// Its address.
        server: String,
        /// What it says, or does not.
        source: DialogueError,
    },
    /// A server cannot do what is asked of it.
    #[error("{server} {reason}")]
    Unfit {
        /// Its address.
        server: String,
        /// What it lacks.
        reason: String,
    },
    /// A server has lost what it held.
    #[error("{server} has begun anew, empty, in the middle of this: what it held before is gone")]
    BegunAnew {
        /// Its address.
        server: String,
    },
    /// Nodes have not brought to their devices what they were given.
    #[error(
        "a node has not brought what it was given to its device within {} seconds: a crash would take that from it",
        DURABLE_WITHIN.as_secs()
    )]
    NotDurable,
    /// Segments cannot be read or written.
    #[error("{0}")]
    Segments(#[from] SegmentError),
    /// What is there is of something else, or not complete.
    #[error("{0}")]
    Archive(String),
    /// The pump stopped.
    #[error("{what}: {source}")]
    Pump {
        /// Between what.
        what: String,
        /// Why.
        source: PumpError,
    },
    /// Changes are missing from a feed: what follows would not fit what is there.
    #[error(
        "{server} tells that changes before {} ms are missing{}: begin with a new base",
        gap.since,
        gap.cause.map(|cause| format!(" ({cause})")).unwrap_or_default()
    )]
    Gap {
        /// The node.
        server: String,
        /// What it told.
        gap: Gap,
    },
    /// The file that says how far it has come does not do.
    #[error("{0}")]
    Cursor(#[from] CursorError),
    /// The system has no thread, no file or no randomness.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// What an archive does not take is its own fault, wherever the pump hears of it.
impl BulkError {
    /// Of a pump from `what`.
    pub fn of_pump(what: &str, source: PumpError) -> Self {
        let pump = |source| Self::Pump { what: what.to_owned(), source };
        match source {
            PumpError::Sink(SinkError::Io(error)) => match error.downcast() {
                Ok(error) => Self::Segments(error),
                Err(error) => pump(SinkError::Io(error).into()),
            },
            source => pump(source),
        }
    }

    /// Whether files were changed since they were written, or are missing: to read them again does not help.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Segments(SegmentError::Damaged { .. } | SegmentError::Hole { .. })
                | Self::Pump { source: PumpError::Source(SourceError::Damaged(_)), .. }
        )
    }
}
