//! How many connections there are through a door, and may be.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The connections of all listeners of a door.
#[derive(Debug, Default)]
pub(crate) struct DoorPlaces {
    // 0: any number.
    most: AtomicUsize,
    // As that of a listener.
    open: AtomicUsize,
}

impl DoorPlaces {
    /// Sets how many there may be; 0: any number. Those that are open stay.
    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    pub(crate) fn is_full(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        most > 0 && self.open.load(Ordering::Relaxed) >= most
    }

    pub(crate) fn take(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
