//! A follower in the process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::deadline::within;
use crate::embedded::shared::Shared;
use crate::embedded::tables::{self, History};
use crate::embedded::tail::Found;
use crate::entry::{Cursor, Revision};
use crate::error::LedgerError;
use crate::ledger::{Answer, Follow, Step};

/// How long nothing changes before a follower is told so.
const QUIET: Duration = Duration::from_secs(2);

/// What follows one prefix. It holds a cursor, and what one read of the disk gave.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    prefix: String,
    at: Cursor,
    /// Read from the disk, and not told yet.
    read: VecDeque<(Revision, Vec<crate::entry::Change>)>,
    /// Up to where, when all of `read` is told.
    read_to: Revision,
    woken: watch::Receiver<()>,
    said_all: Option<Instant>,
}

impl Follower {
    pub(crate) fn new(shared: Arc<Shared>, prefix: String, after: Cursor) -> Self {
        let woken = shared.tail.woken();
        Self { shared, prefix, at: after, read: VecDeque::new(), read_to: after.revision, woken, said_all: None }
    }

    async fn next(&mut self) -> Result<Step, LedgerError> {
        loop {
            if let Some((revision, changes)) = self.read.pop_front() {
                self.at.revision = revision;
                return Ok(Step::Changes { revision, changes });
            }
            self.at.revision = self.at.revision.max(self.read_to);
            self.woken.borrow_and_update();
            match self.shared.tail.after(self.at, &self.prefix)? {
                Found::Changes(revision, changes) => {
                    self.at.revision = revision;
                    return Ok(Step::Changes { revision, changes });
                }
                Found::Nothing(revision) => self.at.revision = revision,
                Found::All(revision) => {
                    self.at.revision = revision;
                    let quiet = self.said_all.map_or(QUIET, |said| said.elapsed());
                    if quiet >= QUIET {
                        self.said_all = Some(Instant::now());
                        return Ok(Step::At(revision));
                    }
                    // Its sender lives as long as what this holds.
                    let _ = within(&self.shared.runtime, QUIET - quiet, self.woken.changed()).await;
                }
                Found::Older => {
                    let (prefix, after) = (self.prefix.clone(), self.at.revision);
                    match self.shared.read(move |database| tables::history(database, &prefix, after)).await? {
                        History::Compacted(oldest) => return Err(LedgerError::Compacted { oldest }),
                        History::Told(told, to) => (self.read, self.read_to) = (told.into(), to),
                    }
                }
            }
        }
    }
}

impl Follow for Follower {
    fn step(&mut self) -> Answer<'_, Step> {
        Box::pin(self.next())
    }
}
