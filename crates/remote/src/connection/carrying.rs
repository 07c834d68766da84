//! Whether a large value is half through on a connection: while one is, small ones that come from the same server wait behind it
//! on the way, and how long that takes says nothing of the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::link::Link;
use crate::large::LARGE;
use crate::shared::Shared;

/// Holds one of the server's [`crate::counters::Counters::carrying`] while a large value is half through on its connection.
#[derive(Default)]
pub(super) struct Carrying(Option<Arc<Shared>>);

impl Link {
    /// Takes note of `bytes` that have moved: of a large reply that is not all there, or of requests for which the kernel had no
    /// room at once.
    #[inline]
    pub(super) fn note_carrying(&mut self, bytes: usize) {
        let carries = self.needed >= LARGE || self.skip > 0 || self.blocked;
        if carries || self.carrying.0.is_some() {
            self.carry(carries, bytes);
        }
    }

    #[cold]
    fn carry(&mut self, carries: bool, bytes: usize) {
        self.shared.counters.carried.fetch_add(bytes as u64, Ordering::Relaxed);
        match (carries, self.carrying.0.is_some()) {
            (true, false) => {
                self.shared.counters.carrying.fetch_add(1, Ordering::Relaxed);
                self.carrying.0 = Some(Arc::clone(&self.shared));
            }
            (false, true) => self.carrying = Carrying::default(),
            (true, true) | (false, false) => {}
        }
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.counters.carrying.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
