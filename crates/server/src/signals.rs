//! Signals: SIGTERM, SIGINT and SIGUSR1 drain and stop the node, a second SIGTERM or SIGINT while it drains stops it at once, SIGHUP
//! reloads.

use std::sync::Arc;
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};

use crate::error::ServerError;
use crate::lifecycle::{Phase, Stopper};

/// The thread that waits for signals; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SignalThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl SignalThread {
    /// Handles the signals of the whole process from now on.
    pub(crate) fn start(stopper: Arc<Stopper>, reload: Arc<dyn Fn() + Send + Sync>) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Start { what: "the signal handler", source };
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP]).map_err(failed)?;
        let handle = signals.handle();
        let wait = move || {
            for signal in signals.forever() {
                answer(signal, &stopper, &*reload);
            }
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(wait).map_err(failed)?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

fn answer(signal: i32, stopper: &Stopper, reload: &dyn Fn()) {
    let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
    tracing::info!(signal = name, "received");
    match signal {
        SIGHUP => reload(),
        SIGTERM | SIGINT if stopper.phase() >= Phase::Draining => stopper.enter(Phase::Stopping),
        // Skip the rest of the lame-duck time.
        SIGTERM | SIGINT if stopper.phase() == Phase::LameDuck => stopper.enter(Phase::Draining),
        _ => stopper.leave(),
    }
}

impl Drop for SignalThread {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
