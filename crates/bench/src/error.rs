//! What can go wrong in a benchmark, and whose fault it is: an option, the server, the operating system, or a trace.

use std::io;
use std::path::PathBuf;

/// Why a benchmark stopped or must not be believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An option's value is outside what it allows.
    #[error("--{option} {value}: {reason}")]
    Option {
        /// The option's long name, without dashes.
        option: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A file was read but holds something else than its format allows.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the place in the file.
        reason: String,
    },
    /// A connection to the server under test failed or was closed.
    #[error("server {address}: {source}")]
    Connection {
        /// The server's address as given.
        address: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The server answered with bytes that are no reply to what was asked.
    #[error("server {address} broke the protocol: {reason}")]
    Protocol {
        /// The server's address as given.
        address: String,
        /// What came, and what was expected.
        reason: String,
    },
    /// A server that was to be started did not become ready.
    #[error("the server `{command}` did not start: {reason}")]
    Start {
        /// Its command line.
        command: String,
        /// What happened instead.
        reason: String,
    },
    /// The operating system refused something the measurement needs.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A bound that was asked for was not kept.
    #[error("{0}")]
    Bound(String),
    /// With verification on, values came back that were never written for their key.
    #[error("{count} values read were not written for their key, for example: {}", examples.join("; "))]
    Mismatch {
        /// How many values were wrong.
        count: u64,
        /// The first few, described.
        examples: Vec<String>,
    },
    /// Not every key could be set before the load: a measurement would not mean what it should.
    #[error("the fill failed: {failed} of {sets} sets were refused, for example: {example}")]
    Fill {
        /// How many sets were refused.
        failed: u64,
        /// How many were made.
        sets: u64,
        /// The server's words for the first.
        example: String,
    },
    /// Stopped by SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

/// The result of anything in this crate.
pub type Result<T, E = BenchError> = std::result::Result<T, E>;

impl BenchError {
    /// An option whose value is refused.
    pub fn option(option: &'static str, value: impl ToString, reason: impl Into<String>) -> Self {
        Self::Option { option, value: value.to_string(), reason: reason.into() }
    }

    /// A failure the operating system reported while doing `what`.
    pub fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}
