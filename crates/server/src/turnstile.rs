//! The permit to dump: one dump runs at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The permit for the only dump that may run at a time, since a dump holds memory of the store. Released on drop.
#[derive(Debug)]
pub struct Turnstile(Arc<AtomicBool>);

impl Turnstile {
    /// Takes the permit, if `taken` is false.
    pub(crate) fn pass(taken: &Arc<AtomicBool>) -> Option<Self> {
        let was_taken = taken.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| Self(Arc::clone(taken)))
    }
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
