//! Room for as many file descriptors as there may be connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but client connections: standard streams, listeners, event queues, logs, the admin side,
/// and what libraries open.
const OTHER: u64 = 128;

/// Raises the process's soft limit on descriptors so that `connections` fit, as far as the hard limit lets it. Where that
/// is not enough it is logged: accepting then rests whenever descriptors run out.
pub(crate) fn allow(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    // Who may raise the hard limit gets all that is wanted; anybody else gets what the hard limit leaves.
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok() {
        return;
    }
    let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    tracing::warn!(
        wanted,
        allowed = if raised.is_ok() { Some(current) } else { limit.current },
        "the limit on open files is too low for that many connections"
    );
}
