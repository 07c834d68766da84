//! The server's own statistics.

use moneta_store::StoreStats;

use crate::remote::Remote;

/// What the server said last.
#[derive(Debug, Default)]
pub(crate) struct Snapshot;

pub(crate) fn stats(_remote: &Remote, _snapshot: &Snapshot) -> StoreStats {
    StoreStats::default()
}
