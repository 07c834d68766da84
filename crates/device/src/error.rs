//! Why a tier could not be opened. Sentences say what to do about it.

use std::io;
use std::path::PathBuf;

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TierError {
    /// The configuration makes no sense.
    #[error("{0}")]
    Config(String),
    /// A device cannot be used as it is; its data was not touched.
    #[error("{path}: {reason}")]
    Device {
        /// The device.
        path: PathBuf,
        /// What is wrong and what to do, in a sentence.
        reason: String,
    },
    /// The system refused something.
    #[error("{path}: cannot {what}: {source}")]
    Io {
        /// The device.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The system has no room for a thread, a ring or memory.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What was started.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}
