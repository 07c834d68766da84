//! Raises the limit on file descriptors to fit the connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but client connections: standard streams, listeners, event queues, logs, the admin side,
/// and what libraries open.
const OTHER: u64 = 256;

/// Raises the process's soft limit on descriptors so that `connections` fit, as far as the hard limit allows. If that is not
/// enough, logs it: accepting then pauses whenever descriptors run out.
pub(crate) fn allow(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    // A privileged process can raise the hard limit too; any other is bounded by it.
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
