//! The signal by which an owner stops a task.

use std::sync::OnceLock;
use std::thread::Thread;

use parking_lot::{Condvar, Mutex};

/// Whether a task is to stop, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    pub(crate) is_stopped: Mutex<bool>,
    pub(crate) changed: Condvar,
    /// The thread of a task that has one: it may be parked.
    pub(crate) thread: OnceLock<Thread>,
    #[cfg(feature = "runtime")]
    pub(crate) notify: tokio::sync::Notify,
}

impl Signal {
    pub(crate) fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.changed.notify_all();
        self.thread.get().map(Thread::unpark);
        #[cfg(feature = "runtime")]
        self.notify.notify_waiters();
    }
}
