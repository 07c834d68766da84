//! Takes note of large values that are half through on a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::carrying::Carrying;
use super::link::Link;
use crate::large::LARGE;

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
