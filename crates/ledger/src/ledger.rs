//! What a ledger is.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::commit::{Commit, Committed};
use crate::entry::{Change, Revision, Snapshot};
use crate::error::LedgerError;

/// What a verb returns. Dropped before its end, a change may have taken effect or not.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LedgerError>> + Send + 'a>>;

/// The name of a hold, as the ledger gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold(pub i64);

/// A store of keys with revisions.
///
/// Verbs that change something are linearizable. Each has a deadline of its own; none waits for ever. A store that cannot say for
/// sure answers by an error, never by less than there is.
pub trait Ledger: Debug + Send + Sync {
    /// All entries whose key begins with `prefix`, at one revision.
    fn snapshot<'a>(&'a self, prefix: &'a str) -> Answer<'a, Snapshot>;

    /// All of `commit`, as one revision, or nothing.
    fn commit(&self, commit: Commit) -> Answer<'_, Committed>;

    /// Follows what happens to keys that begin with `prefix` after the revision `after`.
    fn follow<'a>(&'a self, prefix: &'a str, after: Revision) -> Answer<'a, Box<dyn Follow>>;

    /// Forgets what was overwritten or deleted before `before`: nobody can follow from an earlier revision any more. What is there at
    /// `before` stays. One process compacts at a time; a revision compacted before is no fault.
    fn compact(&self, before: Revision) -> Answer<'_, ()>;

    /// Begins a hold that ends `ttl` after its last renewal, and its keys with it. Rounded up to whole seconds. Time in which no
    /// process could renew (a change of the leader, a restart of the store) does not count against it where the store can tell.
    fn hold(&self, ttl: Duration) -> Answer<'_, Hold>;

    /// Renews a hold.
    ///
    /// # Errors
    /// [`LedgerError::HoldEnded`] if it is over.
    fn renew(&self, hold: Hold) -> Answer<'_, ()>;

    /// Ends a hold; its keys are gone when this returns.
    fn release(&self, hold: Hold) -> Answer<'_, ()>;
}

/// What follows a ledger. Dropped, it ends.
pub trait Follow: Send {
    /// The next step. Waits until there is one.
    ///
    /// # Errors
    /// After an error it is over: one follows anew, after a snapshot if it was [`Compacted`](LedgerError::Compacted) or
    /// [`Future`](LedgerError::Future).
    fn step(&mut self) -> Answer<'_, Step>;
}

/// A step of what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// All that one commit changed below the prefix, in the order of keys.
    Changes {
        /// The commit.
        revision: Revision,
        /// What it changed.
        changes: Vec<Change>,
    },
    /// All up to this revision was told. Comes every few seconds, also where nothing changes: a follower that waits longer for
    /// anything is not in step.
    At(Revision),
}
