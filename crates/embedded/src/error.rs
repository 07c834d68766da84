//! Why an engine could not be opened, and why a library could not do something later. Sentences say what to do about it.

use std::io;
use std::path::PathBuf;

use moneta_store::{ErrorKind, StoreError};

/// Why an engine could not be started. Nothing in its folder was changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// The configuration makes no sense.
    #[error("{0}")]
    Config(String),
    /// The folder cannot be used as it is.
    #[error("{path}: {reason}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong and what to do, in a sentence.
        reason: String,
    },
    /// The system refused something.
    #[error("{path}: cannot {what}: {source}")]
    Io {
        /// What it was tried on.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The system has no room for a thread.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What was started.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

/// Why a library did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No room. Making some and trying again may help.
    Full(String),
    /// It failed, for the reason it gave.
    Broken(String),
}

impl Failure {
    /// As a request's end.
    pub fn to_store_error(&self) -> StoreError {
        match self {
            Self::Full(reason) => StoreError::new(ErrorKind::OutOfMemory, reason.clone()),
            Self::Broken(reason) => StoreError::new(ErrorKind::Device, reason.clone()),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(reason) | Self::Broken(reason) => formatter.write_str(reason),
        }
    }
}
