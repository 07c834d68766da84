//! Signals: SIGTERM, SIGINT and SIGUSR1 drain and stop the process, a second SIGTERM or SIGINT while it drains stops it at once,
//! SIGHUP reloads.

use std::io;
use std::sync::Arc;

use moneta_background::Task;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals as Incoming};

use crate::phases::{Phase, Phases};

/// Answers the signals of the process; until this is dropped.
#[derive(Debug)]
pub struct Signals {
    handle: Handle,
    task: Option<Task>,
}

impl Signals {
    /// Answers the signals of the whole process from now on: before clients or supervisors can see it and send one. `reload` is
    /// called for each SIGHUP, one at a time.
    ///
    /// # Errors
    /// If the system has no room for a handler or a thread.
    pub fn start(phases: Arc<Phases>, reload: impl Fn() + Send + 'static) -> io::Result<Self> {
        let mut signals = Incoming::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?;
        let handle = signals.handle();
        let task = moneta_background::start("signals", move |_| {
            for signal in signals.forever() {
                answer(signal, &phases, &reload);
            }
        })?;
        Ok(Self { handle, task: Some(task) })
    }
}

fn answer(signal: i32, phases: &Phases, reload: &impl Fn()) {
    let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
    tracing::info!(signal = name, "received");
    match signal {
        SIGHUP => reload(),
        SIGTERM | SIGINT if phases.phase() >= Phase::Draining => phases.enter(Phase::Stopping),
        // Skip the rest of the lame-duck time.
        SIGTERM | SIGINT if phases.phase() == Phase::LameDuck => phases.enter(Phase::Draining),
        _ => phases.leave(),
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(task) = self.task.take() {
            task.join();
        }
    }
}
