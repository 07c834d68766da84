//! What is gone and stays gone: deletes, tombstones that are owed, flushes.

pub(crate) mod debts;
pub(crate) mod floors;
pub(crate) mod flush;
pub(crate) mod owing;
pub(crate) mod remembered;
