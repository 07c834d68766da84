//! Why a load ends before all rows were read.

use std::io;

use moneta_bulk::BulkError;
use moneta_store::StoreError;

/// Why a load ends before all rows were read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file cannot be read, or not further: it is cut short, or is no file of its format.
    #[error("{file}: {reason}")]
    File {
        /// The file, and where in it.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// What was asked for does not fit the files.
    #[error("{0}")]
    Refused(String),
    /// The checkpoint or the file of bad rows cannot be read or written.
    #[error("{file}: {source}")]
    Own {
        /// The file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A server does not answer, or cannot be written.
    #[error("{0}")]
    Server(#[from] BulkError),
    /// A server does not take a row, however often it is tried.
    #[error("{server}: {source}")]
    Store {
        /// Its address.
        server: String,
        /// What it says.
        source: StoreError,
    },
    /// More rows are bad than the load may have.
    #[error("{bad} rows are bad, and --max-bad is {most}; the first: {first}")]
    TooManyBad {
        /// How many there were by then.
        bad: u64,
        /// How many there may be.
        most: u64,
        /// Why the first one is.
        first: String,
    },
}

impl LoadError {
    pub(crate) fn file(file: &str, reason: impl ToString) -> Self {
        Self::File { file: file.to_owned(), reason: reason.to_string() }
    }
}
