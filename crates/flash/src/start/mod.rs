//! Starts: the index comes from the snapshot of a clean stop, or from the regions.

pub(crate) mod batches;
pub(crate) mod buried;
pub(crate) mod enter;
pub(crate) mod parallel;
pub(crate) mod recovery;
pub(crate) mod snapshot;
pub(crate) mod unreadable;
