//! A ledger in one file, for one process.
//!
//! ```text
//!  commit, hold, release ──> queue ──> writer, a thread: what waits becomes one transaction of redb, each commit a revision of it
//!                                        │ synced
//!                                        ├──> tail: the newest revisions, in RAM ──> followers are woken
//!                                        └──> answers
//!  snapshot, followers far behind ──> threads for what blocks, which read beside the writer
//!  renew ──> deadlines of holds, in RAM: no disk can keep a holder from renewing
//! ```
//!
//! A disk that is full or fails makes each change fail until the file can be opened again, which the writer tries every second. What
//! was lost on the way is told by the file: a commit that is not in there when it is opened again did not take effect.

mod disk;
mod follower;
mod holds;
mod lock;
mod queue;
mod shared;
mod store;
mod tables;
mod tail;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moneta_background::{Task, runtime, start};
use tokio::sync::Semaphore;

use crate::commit::{Commit, Committed};
use crate::deadline::within;
use crate::embedded::disk::{FileDisk, Opener};
use crate::embedded::follower::Follower;
use crate::embedded::holds::Holds;
use crate::embedded::lock::DirLock;
use crate::embedded::queue::{Queue, Work};
use crate::embedded::shared::Shared;
use crate::embedded::store::Store;
use crate::embedded::tail::Tail;
use crate::entry::{Cursor, Hold, Revision, Snapshot};
use crate::error::LedgerError;
use crate::ledger::{Answer, Follow, Ledger};

/// The file in the data directory.
const FILE: &str = "ledger.redb";

/// How long a verb takes at most.
const DEADLINE: Duration = Duration::from_secs(5);

/// Reads that use the disk at one time.
const READERS: usize = 4;

/// A ledger in one file of a directory. Dropped, it is closed: what waits for it fails, and its followers end.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    writer: Option<Task>,
}

impl Embedded {
    /// Opens the ledger in a directory, which is made if it is not there. Checks the whole file. Blocks.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] if another process has it open or the directory cannot be used, and [`LedgerError::Damaged`] if
    /// the file is not as it was written.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, LedgerError> {
        Self::open_on(directory.as_ref(), Arc::new(FileDisk::open), DEADLINE)
    }

    fn open_on(directory: &Path, opener: Opener, deadline: Duration) -> Result<Self, LedgerError> {
        let lock = DirLock::take(directory)?;
        let runtime = runtime::handle()
            .map_err(|error| LedgerError::Unavailable { reason: format!("no thread for timers: {error}") })?;
        let (store, found) = Store::open(directory.join(FILE), opener)?;
        let shared = Arc::new(Shared {
            queue: Queue::default(),
            store,
            tail: Tail::new(found.incarnation, found.revision, found.compacted),
            holds: Holds::new(found.holds),
            readers: Arc::new(Semaphore::new(READERS)),
            runtime,
            deadline,
        });
        let writing = Arc::clone(&shared);
        let writer = start("ledger", move |run| {
            writer::run(&writing, run, found.turn);
            // Followers may live on; the file is closed here, and then others may open it.
            writing.store.close();
            drop(lock);
        })
        .map_err(|error| LedgerError::Unavailable { reason: format!("no thread for the writer: {error}") })?;
        Ok(Self { shared, writer: Some(writer) })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.tail.close();
        if let Some(writer) = self.writer.take() {
            writer.stop();
            // A writer that is stuck in the disk holds the lock until it is done.
            let _ = writer.join_by(std::time::Instant::now() + self.shared.deadline);
        }
    }
}

impl Ledger for Embedded {
    fn snapshot<'a>(&'a self, prefix: &'a str) -> Answer<'a, Snapshot> {
        Box::pin(async move {
            let prefix = prefix.to_owned();
            self.shared.read(move |database| tables::snapshot(database, &prefix)).await
        })
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Committed> {
        Box::pin(async move {
            commit.check()?;
            self.shared.change(Work::Commit(commit)).await?.committed()
        })
    }

    fn follow<'a>(&'a self, prefix: &'a str, after: Cursor) -> Answer<'a, Box<dyn Follow>> {
        Box::pin(async move {
            self.shared.tail.can_follow(after)?;
            Ok(Box::new(Follower::new(Arc::clone(&self.shared), prefix.to_owned(), after)) as Box<dyn Follow>)
        })
    }

    fn compact(&self, before: Revision) -> Answer<'_, ()> {
        Box::pin(async move { self.shared.change(Work::Compact(before)).await.map(drop) })
    }

    fn hold(&self, ttl: Duration) -> Answer<'_, Hold> {
        Box::pin(async move { self.shared.change(Work::Hold(holds::seconds(ttl))).await?.hold() })
    }

    fn renew(&self, hold: Hold) -> Answer<'_, ()> {
        Box::pin(async move { self.shared.holds.renew(hold) })
    }

    fn release(&self, hold: Hold) -> Answer<'_, ()> {
        Box::pin(async move { self.shared.change(Work::End(hold)).await.map(drop) })
    }

    fn fill(&self, above: Revision, entries: Vec<(String, Bytes)>) -> Answer<'_, Cursor> {
        Box::pin(async move { self.shared.change(Work::Fill { above, entries }).await?.cursor() })
    }
}

impl Shared {
    /// Has the writer change something, and waits for its answer.
    async fn change(&self, work: Work) -> Result<queue::Done, LedgerError> {
        let mut ticket = self.queue.push(work)?;
        let reason = || "the disk does not answer in time".to_owned();
        match within(&self.runtime, self.deadline, ticket.answer()).await {
            Some(answer) => answer,
            None if ticket.withdraw() => Err(LedgerError::Unavailable { reason: reason() }),
            None => Err(LedgerError::Unknown { reason: reason() }),
        }
    }
}
