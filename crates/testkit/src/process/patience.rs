//! Waits: for something that happens, with one deadline.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take; far more than it takes on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often a wait looks.
pub(super) const POLL: Duration = Duration::from_millis(5);

/// Waits until `holds` does.
///
/// # Panics
/// With `what` after [`PATIENCE`].
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(POLL);
    }
}
