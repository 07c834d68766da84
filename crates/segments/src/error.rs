//! Why segments cannot be read or written.

use std::io;

/// Why segments cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The archive does not answer, is full, or lacks what it should have.
    #[error("{name}: {source}")]
    Archive {
        /// The file.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// What was read is no segment, or not all of one, or was changed.
    #[error("{name} is damaged: {reason}")]
    Damaged {
        /// The file.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// It was written by a later build, in a form that this one does not know.
    #[error("{name} has form {form}, and this build reads form 1")]
    Unknown {
        /// The file.
        name: String,
        /// Its form.
        form: u8,
    },
    /// A segment does not begin where the one before it ended, or one is missing between them.
    #[error("the chain {chain} has a hole: {reason}")]
    Hole {
        /// The chain.
        chain: String,
        /// Where.
        reason: String,
    },
    /// Another process writes the same chain.
    #[error("the chain {chain} is written by another process, too: it has a segment {number} already")]
    Taken {
        /// The chain.
        chain: String,
        /// The segment.
        number: u64,
    },
    /// The chain is done: nothing can be added.
    #[error("the chain {chain} is done")]
    Done {
        /// The chain.
        chain: String,
    },
}

impl SegmentError {
    pub(crate) fn damaged(name: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { name: name.to_owned(), reason: reason.into() }
    }

    pub(crate) fn archive(name: &str, source: io::Error) -> Self {
        Self::Archive { name: name.to_owned(), source }
    }
}

/// As sinks tell it; [`io::Error::downcast`] has it back.
impl From<SegmentError> for io::Error {
    fn from(error: SegmentError) -> Self {
        Self::other(error)
    }
}
