//! Why a query is refused.

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The expression is no CEL.
    #[error("the expression cannot be read: {reason}")]
    Syntax {
        /// What the parser says.
        reason: String,
    },
    /// The expression is longer, or deeper, than is taken.
    #[error("the expression is too large: {reason}")]
    TooLarge {
        /// What there is too much of.
        reason: String,
    },
    /// It names a field that no object of this kind has.
    #[error("there is no field {name}{}", nearest.as_ref().map(|near| format!("; did you mean {near}?")).unwrap_or_default())]
    NoField {
        /// The name.
        name: String,
        /// A field of a similar name.
        nearest: Option<String>,
    },
    /// Its value is neither true nor false, or an operator does not fit its sides.
    #[error("the expression makes no sense: {reason}")]
    Meaning {
        /// What went wrong.
        reason: String,
    },
}
