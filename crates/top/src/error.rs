//! Why there is nothing to show.

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopError {
    /// The terminal, or standard output.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A host that is none.
    #[error("\"{host}\" is no server: {why}")]
    Host {
        /// As it was given.
        host: String,
        /// What is wrong with it.
        why: String,
    },
    /// Not one of the servers answers.
    #[error("no server answers: {0}")]
    Silent(String),
}
