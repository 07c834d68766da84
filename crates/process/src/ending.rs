//! The end of a process: its parts are closed in order by whoever made them; what runs by itself is asked to stop last.

use std::time::Duration;

/// How long background tasks are waited for when all is closed: as long as their longest turn takes.
const TASKS_END: Duration = Duration::from_millis(500);

/// Asks all background tasks to stop, waits a moment for them, and logs those that run on; the process ends all the same.
pub fn stop_tasks() {
    let left = moneta_background::stop_all(TASKS_END);
    if !left.is_empty() {
        tracing::debug!(tasks = left.join(", "), "still running at the end of the process");
    }
}
