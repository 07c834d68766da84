//! Why a request is refused.

use moneta_ledger::LedgerError;

/// Why a request is refused, with the status that says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// The status of HTTP.
    pub status: u16,
    /// A sentence for people.
    pub why: String,
}

impl Refusal {
    /// What was asked for makes no sense.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self { status: 400, why: why.into() }
    }

    /// The client may not ask for it.
    pub fn forbidden(why: impl Into<String>) -> Self {
        Self { status: 403, why: why.into() }
    }

    /// There is no such thing.
    pub fn missing(why: impl Into<String>) -> Self {
        Self { status: 404, why: why.into() }
    }

    /// It does not fit what there is.
    pub fn conflict(why: impl Into<String>) -> Self {
        Self { status: 409, why: why.into() }
    }

    /// It is too much.
    pub fn too_large(why: impl Into<String>) -> Self {
        Self { status: 413, why: why.into() }
    }

    /// Nothing can be told for sure now.
    pub(crate) fn not_in_step() -> Self {
        Self::unavailable("this process is not in step with its ledger")
    }

    /// It cannot be answered now.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self { status: 503, why: why.into() }
    }
}

impl From<LedgerError> for Refusal {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Refused { reason } => Self::too_large(reason),
            other => Self::unavailable(other.to_string()),
        }
    }
}
