//! One task: its owner's handle, and what it sees of it.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, Thread, current};
use std::time::{Duration, Instant};

use crate::registry;
use crate::signal::Signal;

/// How often a wait with a deadline looks whether a thread has ended.
const LOOK: Duration = Duration::from_millis(2);

/// What a task sees of its owner: whether it is to stop.
#[derive(Debug)]
pub struct Run {
    name: String,
    signal: Arc<Signal>,
}

impl Run {
    pub(crate) fn begin(name: String, signal: Arc<Signal>) -> Self {
        registry::begin(&name, &signal);
        Self { name, signal }
    }

    /// Whether it is to stop.
    pub fn is_stopped(&self) -> bool {
        *self.signal.is_stopped.lock()
    }

    /// Sleeps for so long, or until it is to stop: then false.
    pub fn sleep(&self, duration: Duration) -> bool {
        let until = Instant::now() + duration;
        let mut is_stopped = self.signal.is_stopped.lock();
        while !*is_stopped && !self.signal.changed.wait_until(&mut is_stopped, until).timed_out() {}
        !*is_stopped
    }

    /// Counts a failure after which the task goes on.
    pub fn failed(&self, why: &impl Display) {
        registry::failed(&self.name, why.to_string());
    }

    /// Returns when it is to stop.
    #[cfg(feature = "runtime")]
    pub async fn stopped(&self) {
        loop {
            let notified = self.signal.notify.notified();
            if self.is_stopped() {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        registry::end(&self.name, &self.signal, std::thread::panicking());
    }
}

/// The owner's handle of a task. Dropped, it lets the task run on.
#[derive(Debug)]
pub struct Task {
    signal: Arc<Signal>,
    thread: JoinHandle<()>,
}

/// How waiting for a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It has ended.
    Ended,
    /// It has ended by a panic, which the log has.
    Panicked,
    /// It runs on, as the time was up, or the caller is this task.
    Late,
}

/// Starts a task on a thread of this name, of which the system shows the first 15 bytes.
///
/// # Errors
/// If the system has no room for a thread.
pub fn start(name: impl Into<String>, run: impl FnOnce(&Run) + Send + 'static) -> io::Result<Task> {
    let (name, signal) = (name.into(), Arc::<Signal>::default());
    // Listed before its thread begins, so that who starts it sees it in the list.
    let handed = Run::begin(name.clone(), Arc::clone(&signal));
    let spawned = Builder::new().name(name.clone()).spawn(move || run(&handed));
    match spawned {
        Ok(thread) => {
            let _ = signal.thread.set(thread.thread().clone());
            Ok(Task { signal, thread })
        }
        Err(error) => {
            registry::forget_end(&name);
            Err(error)
        }
    }
}

impl Task {
    /// Asks it to stop, and returns at once.
    pub fn stop(&self) {
        self.signal.stop();
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Its thread.
    pub fn thread(&self) -> &Thread {
        self.thread.thread()
    }

    /// Waits for its end, however long that takes.
    pub fn join(self) -> Joined {
        if self.thread.thread().id() == current().id() {
            return Joined::Late;
        }
        self.thread.join().map_or(Joined::Panicked, |()| Joined::Ended)
    }

    /// Waits for its end until `deadline`.
    pub fn join_by(self, deadline: Instant) -> Joined {
        if self.thread.thread().id() == current().id() {
            return Joined::Late;
        }
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        if self.thread.is_finished() { self.join() } else { Joined::Late }
    }
}
