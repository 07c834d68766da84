//! Whether a store may still be written to.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Passed by those that write to a store; closed for good before the store is.
#[derive(Debug, Default)]
pub struct Gate(RwLock<bool>);

impl Gate {
    /// Enters, if it is open: it is not closed as long as the guard lives.
    pub fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let closed = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (!*closed).then_some(closed)
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.enter().is_none()
    }

    /// Closes it, once all that entered have left.
    pub fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}
