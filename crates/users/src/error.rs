//! A file of users that is refused.

use std::path::PathBuf;

/// Why a file of users cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// It cannot be read.
    #[error("{path} cannot be read: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is not for its owner alone to write, too large, or has changed while it was read.
    #[error("{path} is refused: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why, in plain words.
        reason: String,
    },
    /// What it says makes no sense.
    #[error("{path}:{line} is refused: {reason}", path = path.display(), line = wrong.line, reason = wrong.reason)]
    Content {
        /// The file.
        path: PathBuf,
        /// Where, and why.
        wrong: Wrong,
    },
}

/// What is wrong in a text that should name users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Wrong {
    /// The line, from 1.
    pub line: usize,
    /// Why, in plain words that tell no secret.
    pub reason: String,
}
