//! The engine's own threads.

use std::time::Instant;

use moneta_background::Task;
use parking_lot::Mutex;

use moneta_device::TierError;

/// Threads that are running.
#[derive(Default)]
pub(crate) struct Threads(Mutex<Vec<Task>>);

/// How waiting for threads ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// All have ended.
    Ended,
    /// They were joined before, or none was started.
    Before,
    /// Some have not ended in time and keep running detached.
    Late,
}

impl Threads {
    pub(crate) fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), TierError> {
        let thread = moneta_background::start(name, move |_| run());
        self.0.lock().push(thread.map_err(|source| TierError::Start { what: "a thread of the SSD tier", source })?);
        Ok(())
    }

    /// Waits until all have ended, or until `deadline`: a thread blocked in a device call cannot be stopped.
    pub(crate) fn join(&self, deadline: Instant) -> Joined {
        let threads = std::mem::take(&mut *self.0.lock());
        let mut joined = if threads.is_empty() { Joined::Before } else { Joined::Ended };
        for thread in threads {
            // The last handle may be dropped on one of these threads, which cannot join itself.
            if thread.thread().id() == std::thread::current().id() {
                continue;
            }
            match thread.join_by(deadline) {
                moneta_background::Joined::Ended => {}
                moneta_background::Joined::Late => joined = Joined::Late,
                moneta_background::Joined::Panicked => tracing::error!("a thread of the SSD tier panicked"),
            }
        }
        joined
    }
}
