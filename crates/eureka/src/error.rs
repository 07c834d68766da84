//! What a client sent that is refused.

/// Why the body of a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EurekaError {
    /// It is not JSON, or not XML.
    #[error("the body is no {encoding}: {reason}")]
    Syntax {
        /// What it should be.
        encoding: &'static str,
        /// What the parser says.
        reason: String,
    },
    /// It is nested deeper, or has more parts, than an instance has.
    #[error("the body is too large: {reason}")]
    TooLarge {
        /// What there is too much of.
        reason: &'static str,
    },
    /// A field lacks or has a value that makes no sense.
    #[error("{field}: {reason}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
}
