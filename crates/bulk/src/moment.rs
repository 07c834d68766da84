//! Now, by the clock of this machine.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
pub(crate) fn millis() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}

/// Seconds since the Unix epoch.
pub(crate) fn seconds() -> u32 {
    u32::try_from(millis() / 1000).unwrap_or(u32::MAX)
}
