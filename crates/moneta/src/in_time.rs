//! One of several copies waits at its start until its clock has passed the versions that it may have given out before: what is
//! ahead of their clocks other copies refuse.

use std::thread;
use std::time::Duration;

use moneta_store::{Calls as _, Clock, Key, Store, Version};

/// What a store keeps free after a kill is less: 3 seconds on a library, a few of the flush intervals on flash.
const AHEAD_MAX: Duration = Duration::from_secs(5);

/// Waits until the clock is where the store's versions begin. If they are too far ahead for that, the clock was set back: then it
/// says so, and other copies refuse what is written here until the clock is there.
pub fn wait(store: &dyn Store, clock: &Clock) {
    let begins = Version(store.next_cas(&Key::new(b"", store.seed()))).millis();
    clock.refresh();
    let ahead = Duration::from_millis(begins.saturating_sub(clock.millis()));
    if ahead > AHEAD_MAX {
        tracing::warn!(
            seconds = ahead.as_secs(),
            "the clock was set back: versions go on where they were, and other copies refuse writes of this node until it is there"
        );
    } else if !ahead.is_zero() {
        tracing::info!(milliseconds = ahead.as_millis(), "waits until versions are not ahead of the clock");
        thread::sleep(ahead);
    }
}
