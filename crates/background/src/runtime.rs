//! The one runtime of a process, for tasks that wait for many things at once and do little: a thread that all of them share.
//!
//! It has no place for what computes or blocks: that is a task with a thread, or [`tokio::task::spawn_blocking`] for a bounded
//! number of calls.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use crate::signal::Signal;
use crate::task::{Joined, Run, start};

/// Threads for calls that block, at most. Those who make such calls bound them each for themselves.
const BLOCKING_MAX: usize = 64;

/// The runtime of this process, which is made when it is first asked for.
///
/// # Errors
/// If the system has no thread or event queue for it; the next call tries again.
pub fn handle() -> io::Result<Handle> {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    // One at a time, so that there is one.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock();
    if let Some(handle) = HANDLE.get() {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_MAX)
        .thread_name("blocking")
        .build()?;
    let handle = runtime.handle().clone();
    // It is there for as long as the process: others may come to need it.
    start("runtime", move |task| runtime.block_on(task.stopped()))?;
    Ok(HANDLE.get_or_init(|| handle).clone())
}

/// The owner's handle of a task on the runtime. Dropped, it lets the task run on.
#[derive(Debug)]
pub struct AsyncTask {
    signal: Arc<Signal>,
    // Waited on once; a receiver by itself cannot be shared.
    ended: Mutex<Receiver<()>>,
    abort: AbortHandle,
}

/// Starts a task on the runtime.
///
/// # Errors
/// As [`handle`].
pub fn spawn<F>(name: impl Into<String>, task: impl FnOnce(Run) -> F) -> io::Result<AsyncTask>
where
    F: Future<Output = ()> + Send + 'static,
{
    let handle = handle()?;
    let signal = Arc::<Signal>::default();
    let task = task(Run::begin(name.into(), Arc::clone(&signal)));
    let (end, ended) = channel();
    let run = async move {
        // Dropped with the task, whichever way it ends.
        let _end = end;
        task.await;
    };
    Ok(AsyncTask { signal, ended: Mutex::new(ended), abort: handle.spawn(run).abort_handle() })
}

impl AsyncTask {
    /// Asks it to stop, and returns at once.
    pub fn stop(&self) {
        self.signal.stop();
    }

    /// Ends it where it waits next.
    pub fn abort(&self) {
        self.abort.abort();
    }

    /// Waits for its end. Not to be called on the runtime.
    pub fn join_within(self, within: Duration) -> Joined {
        match self.ended.into_inner().recv_timeout(within) {
            Err(RecvTimeoutError::Timeout) => Joined::Late,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Joined::Ended,
        }
    }
}
