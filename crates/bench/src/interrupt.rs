//! SIGINT and SIGTERM: the first asks the benchmark to stop, so that servers it started are ended; the second kills it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag;

use crate::error::{BenchError, Result};

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Exit status of a process that a second signal ends.
const KILLED: i32 = 130;

/// Starts to listen for signals; further calls do nothing.
///
/// # Errors
/// [`BenchError::System`] when the handlers cannot be installed.
pub fn install() -> Result<()> {
    if REQUESTED.get().is_some() {
        return Ok(());
    }
    let requested = Arc::clone(REQUESTED.get_or_init(Arc::default));
    for signal in TERM_SIGNALS {
        flag::register_conditional_shutdown(*signal, KILLED, Arc::clone(&requested))
            .and_then(|_| flag::register(*signal, Arc::clone(&requested)))
            .map_err(|error| BenchError::system("listen for signals", error))?;
    }
    Ok(())
}

/// Whether a signal has asked to stop.
pub fn requested() -> bool {
    REQUESTED.get().is_some_and(|requested| requested.load(Ordering::Relaxed))
}

/// An error once a signal has asked to stop.
///
/// # Errors
/// [`BenchError::Interrupted`].
pub fn check() -> Result<()> {
    if requested() { Err(BenchError::Interrupted) } else { Ok(()) }
}
