//! Why requests failed, in a form that all requests of a connection can have a copy of.

use std::sync::Arc;

use moneta_store::{ErrorKind, StoreError};

/// A failure.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) reason: Arc<str>,
    /// No byte of the request was sent.
    pub(crate) unsent: bool,
    /// Another request has failed with it already.
    pub(crate) is_repeated: bool,
    /// The request is to be made anew, on another connection: so much came on its own that it should not wait for that.
    pub(crate) is_displaced: bool,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, reason: impl Into<Arc<str>>) -> Self {
        Self { kind, reason: reason.into(), unsent: false, is_repeated: false, is_displaced: false }
    }

    /// Of a read that is to be asked anew.
    pub(crate) fn displaced() -> Self {
        Self { is_displaced: true, ..Self::new(ErrorKind::Busy, "large values came before it") }
    }

    pub(crate) fn unreachable(reason: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Unreachable, reason)
    }

    pub(crate) fn timeout(reason: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Timeout, reason)
    }

    /// The same of a request of which no byte was sent.
    pub(crate) fn not_sent(self) -> Self {
        Self { unsent: true, ..self }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        let error = Self::new(failure.kind, failure.reason.as_ref());
        let error = if failure.unsent { error.not_sent() } else { error };
        if failure.is_repeated { error.repeated() } else { error }
    }
}
