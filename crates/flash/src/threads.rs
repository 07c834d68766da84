//! The engine's own threads.

use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::error::FlashError;

/// Threads that are running.
#[derive(Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    pub(crate) fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), FlashError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        self.0.lock().push(thread.map_err(|source| FlashError::Start { what: "a thread of the SSD tier", source })?);
        Ok(())
    }

    /// Waits for all to end. False if that was done before.
    pub(crate) fn join(&self) -> bool {
        let threads = std::mem::take(&mut *self.0.lock());
        let first = !threads.is_empty();
        for thread in threads {
            // The last handle may go on one of these threads; it cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the SSD tier panicked");
            }
        }
        first
    }
}
