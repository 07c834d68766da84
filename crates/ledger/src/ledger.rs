//! What a ledger is.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::commit::{Commit, Committed};
use crate::entry::{Change, Cursor, Hold, Revision, Snapshot};
use crate::error::LedgerError;

/// How often a follower is told that nothing has changed, at the least.
pub const AT_EVERY: Duration = Duration::from_secs(5);

/// What a verb returns. Dropped before its end, a change may have taken effect or not.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, LedgerError>> + Send + 'a>>;

/// A store of keys with revisions.
///
/// Verbs that change something are linearizable. Each has a deadline of its own; none waits for ever. A store that cannot say for
/// sure answers by an error, never by less than there is.
pub trait Ledger: Debug + Send + Sync {
    /// All entries whose key begins with `prefix`, at one revision.
    fn snapshot<'a>(&'a self, prefix: &'a str) -> Answer<'a, Snapshot>;

    /// All of `commit`, as one revision, or nothing.
    fn commit(&self, commit: Commit) -> Answer<'_, Committed>;

    /// Follows what happens to keys that begin with `prefix` after a snapshot, or a step, that had this cursor.
    ///
    /// # Errors
    /// [`LedgerError::Compacted`], [`LedgerError::Future`] and [`LedgerError::Replaced`], here or at the first step: take a snapshot,
    /// and follow from there.
    fn follow<'a>(&'a self, prefix: &'a str, after: Cursor) -> Answer<'a, Box<dyn Follow>>;

    /// Forgets what was overwritten or deleted before `before`: nobody can follow from an earlier revision any more. What is there at
    /// `before` stays. One process compacts at a time; a revision compacted before is no fault.
    ///
    /// # Errors
    /// [`LedgerError::Future`] if there is no such revision yet.
    fn compact(&self, before: Revision) -> Answer<'_, ()>;

    /// Begins a hold that ends `ttl` after its last renewal, and its keys with it. Rounded up to whole seconds. Time in which no
    /// process could renew (a change of the leader, a restart of the store) does not count against it where the store can tell.
    fn hold(&self, ttl: Duration) -> Answer<'_, Hold>;

    /// Renews a hold.
    ///
    /// # Errors
    /// [`LedgerError::HoldEnded`] if it is over.
    fn renew(&self, hold: Hold) -> Answer<'_, ()>;

    /// Ends a hold; its keys are gone when this returns. One that has ended is no fault.
    fn release(&self, hold: Hold) -> Answer<'_, ()>;

    /// Fills an empty ledger, which becomes another one: of a new incarnation, with these keys and values, at a revision above `above`.
    /// Restoring a backup calls it.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] if a key is there.
    fn fill(&self, above: Revision, entries: Vec<(String, Bytes)>) -> Answer<'_, Cursor>;
}

/// What follows a ledger. Dropped, it ends.
pub trait Follow: Send {
    /// The next step. Waits until there is one.
    ///
    /// # Errors
    /// After an error it is over: one follows anew, after a snapshot if it was [`Compacted`](LedgerError::Compacted),
    /// [`Future`](LedgerError::Future) or [`Replaced`](LedgerError::Replaced).
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
    /// All up to this revision was told. Comes once all is told, and every few seconds ([`AT_EVERY`]) where nothing changes: a follower
    /// that waits longer for anything is not in step.
    At(Revision),
}
