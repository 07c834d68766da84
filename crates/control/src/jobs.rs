//! Jobs: long work in tasks that workers claim. A job outlives the process that began it.
//!
//! A job is a document with tasks, one value of the ledger. A worker claims a task under a term, which grows by one with each claim;
//! it renews the claim with its progress, in RAM alone, and commits checkpoints, which take effect only under the term in force. A
//! task whose worker falls silent is given to the next one that asks. docs/jobs.md has the protocol.
//!
//! | module | what it holds |
//! |---|---|
//! | [`document`] | the document: states of a job and of a task, bounds |
//! | [`board`] | the jobs of an environment as they are now, with the leases of their tasks |
//! | [`fill`] | jobs that nodes begin for themselves |
//! | [`steer`] | beginning jobs, and telling them to pause, go on or end |
//! | [`work`] | what workers ask: claims, renewals, checkpoints |
//! | `prune` | the end of what ended long ago |

pub mod board;
pub mod document;
pub mod fill;
pub(crate) mod prune;
pub mod steer;
pub mod work;
