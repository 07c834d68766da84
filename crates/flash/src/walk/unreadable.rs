//! The error of a walk whose read failed.

use moneta_store::{ErrorKind, StoreError};

/// The error of a walk whose read failed.
pub(super) fn unreadable(error: std::io::Error) -> StoreError {
    StoreError::new(ErrorKind::Device, "the device cannot be read").with_source(error)
}
