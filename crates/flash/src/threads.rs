//! The engine's own threads.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use moneta_device::TierError;

/// How often to check whether a thread has ended.
const LOOK: Duration = Duration::from_millis(2);

/// Threads that are running.
#[derive(Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

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
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
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
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(LOOK);
            }
            if !thread.is_finished() {
                joined = Joined::Late;
            } else if thread.join().is_err() {
                tracing::error!("a thread of the SSD tier panicked");
            }
        }
        joined
    }
}
