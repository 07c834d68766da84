//! The ledger: all state of a fleet (apps, topologies, instances, properties, jobs, audit) as keys with revisions.
//!
//! A [`Ledger`] has five verbs. Everything above it stands on what they promise, and the same tests hold each backend to it:
//!
//! | verb | promise |
//! |---|---|
//! | [`snapshot`](Ledger::snapshot) | all entries of a prefix as they were at one revision, no older than any commit that was answered before |
//! | [`backup`] | all of a ledger as a file, and back into either backend |
//! | [`commit`](Ledger::commit) | compares, puts and deletes as one revision, or a conflict and nothing |
//! | [`follow`](Ledger::follow) | every change after a revision, each once, in the order of revisions, whole revisions |
//! | [`compact`](Ledger::compact) | forgets what was overwritten before a revision; what is there stays |
//! | [`hold`](Ledger::hold) | keys that vanish when their holder stops renewing |
//!
//! | module | what it holds |
//! |---|---|
//! | [`ledger`] | the trait |
//! | [`commit`] | what is compared and changed |
//! | [`entry`] | entries, revisions, snapshots, changes |
//! | [`embedded`] | a ledger in one file, for one process |
//! | `etcd` (feature of this name) | a ledger on etcd, which several processes share |
//! | [`error`] | why a verb failed, and whether it may have taken effect |

pub mod backup;
pub mod commit;
mod deadline;
pub mod embedded;
pub mod entry;
pub mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod ledger;

pub use commit::{Commit, Committed, Compare, Put};
pub use embedded::Embedded;
pub use entry::{Change, Cursor, Entry, Hold, Incarnation, Revision, Snapshot};
pub use error::LedgerError;
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
pub use ledger::{AT_EVERY, Answer, Follow, Ledger, Step};
