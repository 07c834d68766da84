//! The newest revisions, in RAM: what followers that keep up are told without a read of the disk.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::embedded::queue::closed;
use crate::entry::{Change, Cursor, Incarnation, Revision};
use crate::error::LedgerError;

/// Bytes of keys and values that are kept.
const BYTES_MAX: usize = 8 << 20;
/// Revisions that are kept.
const REVISIONS_MAX: usize = 10_000;
/// Revisions that a follower looks at before it lets others have the lock.
const LOOK_MAX: usize = 1_000;

/// What one commit changed, in the order of keys.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) revision: Revision,
    pub(crate) changes: Vec<Change>,
}

impl Told {
    fn bytes(&self) -> usize {
        let of = |change: &Change| match change {
            Change::Put(entry) => entry.key.len() + entry.value.len(),
            Change::Deleted { key, .. } => key.len(),
        };
        self.changes.iter().map(|change| of(change) + size_of::<Change>()).sum()
    }
}

#[derive(Debug)]
struct Newest {
    incarnation: Incarnation,
    revision: Revision,
    compacted: Revision,
    /// All revisions above this one are in `told`.
    floor: Revision,
    told: VecDeque<Arc<Told>>,
    bytes: usize,
    is_closed: bool,
}

/// The newest revisions.
#[derive(Debug)]
pub(crate) struct Tail {
    newest: Mutex<Newest>,
    woken: watch::Sender<()>,
}

/// What a follower finds.
#[derive(Debug)]
pub(crate) enum Found {
    /// The next commit that changed something below its prefix.
    Changes(Revision, Vec<Change>),
    /// Nothing up to here, and there is more to look at.
    Nothing(Revision),
    /// Nothing, and this is the newest revision.
    All(Revision),
    /// It is on disk.
    Older,
}

impl Tail {
    pub(crate) fn new(incarnation: Incarnation, revision: Revision, compacted: Revision) -> Self {
        let newest = Newest {
            incarnation,
            revision,
            compacted,
            floor: revision,
            told: VecDeque::new(),
            bytes: 0,
            is_closed: false,
        };
        Self { newest: Mutex::new(newest), woken: watch::Sender::new(()) }
    }

    /// Tells when there is more.
    pub(crate) fn woken(&self) -> watch::Receiver<()> {
        self.woken.subscribe()
    }

    pub(crate) fn push(&self, told: Vec<Arc<Told>>) {
        if told.is_empty() {
            return;
        }
        let mut newest = self.newest.lock();
        for told in told {
            newest.revision = told.revision;
            newest.bytes += told.bytes();
            newest.told.push_back(told);
        }
        while newest.bytes > BYTES_MAX || newest.told.len() > REVISIONS_MAX {
            let Some(told) = newest.told.pop_front() else { break };
            newest.bytes -= told.bytes();
            newest.floor = told.revision;
        }
        drop(newest);
        self.woken.send_replace(());
    }

    pub(crate) fn compacted(&self, compacted: Revision) {
        let mut newest = self.newest.lock();
        newest.compacted = newest.compacted.max(compacted);
    }

    /// The ledger was filled, and is another one.
    pub(crate) fn replaced(&self, now: Cursor) {
        let mut newest = self.newest.lock();
        newest.incarnation = now.incarnation;
        (newest.revision, newest.compacted, newest.floor) = (now.revision, now.revision, now.revision);
        newest.told.clear();
        newest.bytes = 0;
        drop(newest);
        self.woken.send_replace(());
    }

    pub(crate) fn close(&self) {
        self.newest.lock().is_closed = true;
        self.woken.send_replace(());
    }

    /// Whether one can follow from there.
    pub(crate) fn can_follow(&self, after: Cursor) -> Result<(), LedgerError> {
        let newest = self.newest.lock();
        newest.check(after)?;
        match after.revision < newest.compacted {
            true => Err(LedgerError::Compacted { oldest: newest.compacted }),
            false => Ok(()),
        }
    }

    /// What comes after `after` below `prefix`.
    pub(crate) fn after(&self, after: Cursor, prefix: &str) -> Result<Found, LedgerError> {
        let newest = self.newest.lock();
        newest.check(after)?;
        if after.revision < newest.floor {
            return Ok(Found::Older);
        }
        let from = newest.told.partition_point(|told| told.revision <= after.revision);
        for told in newest.told.range(from..).take(LOOK_MAX) {
            if told.changes.iter().any(|change| change.key().starts_with(prefix)) {
                let told = Arc::clone(told);
                drop(newest);
                let changes = told.changes.iter().filter(|change| change.key().starts_with(prefix)).cloned().collect();
                return Ok(Found::Changes(told.revision, changes));
            }
        }
        Ok(match newest.told.get(from + LOOK_MAX - 1) {
            Some(told) => Found::Nothing(told.revision),
            None => Found::All(newest.revision),
        })
    }
}

impl Newest {
    fn check(&self, after: Cursor) -> Result<(), LedgerError> {
        if self.is_closed {
            return Err(closed());
        }
        if after.incarnation != self.incarnation {
            return Err(LedgerError::Replaced { now: self.incarnation });
        }
        if after.revision > self.revision {
            return Err(LedgerError::Future { asked: after.revision, at: self.revision });
        }
        Ok(())
    }
}
