//! What the reclaimer is to do, as writers and flushes tell it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How often to look for expired regions, and how long to wait after a device failed.
const PAUSE: Duration = Duration::from_millis(500);

/// Wakes the reclaimer when there is work.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    state: Mutex<ReclaimState>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct ReclaimState {
    needed: bool,
    stop: bool,
    /// Flushed regions, as recorded in the superblocks. They are freed when no index entry points to them.
    flushed: Vec<usize>,
}

impl Reclaim {
    /// A free region was taken, or there was none.
    pub(crate) fn need(&self) {
        let mut state = self.state.lock();
        if !state.needed {
            state.needed = true;
            self.work.notify_one();
        }
    }

    /// Takes regions that are flushed, once the superblocks say so.
    pub(crate) fn leave_flushed(&self, regions: Vec<usize>) {
        let mut state = self.state.lock();
        state.flushed.extend(regions);
        state.needed = true;
        self.work.notify_one();
    }

    /// Returns the flushed regions and clears the list.
    pub(crate) fn take_flushed(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.lock().flushed)
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stop
    }

    /// Waits a while after a device failed, unless the engine ends.
    pub(crate) fn pause(&self) {
        let mut state = self.state.lock();
        self.work.wait_while_for(&mut state, |state| !state.stop, PAUSE);
    }

    /// Sleeps until there may be work; false when the engine ends.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        if !state.needed && !state.stop {
            self.work.wait_for(&mut state, PAUSE);
        }
        state.needed = false;
        !state.stop
    }
}
