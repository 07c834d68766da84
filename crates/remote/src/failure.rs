//! Why requests failed, in a form that all requests of a connection can have a copy of.

use std::sync::Arc;

use moneta_store::{ErrorKind, StoreError};

/// A failure.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) reason: Arc<str>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, reason: impl Into<Arc<str>>) -> Self {
        Self { kind, reason: reason.into() }
    }

    pub(crate) fn unreachable(reason: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Unreachable, reason)
    }

    pub(crate) fn timeout(reason: impl Into<Arc<str>>) -> Self {
        Self::new(ErrorKind::Timeout, reason)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        Self::new(failure.kind, failure.reason.as_ref())
    }
}
