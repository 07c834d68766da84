//! What waits for the writer.
//!
//! ```text
//!  waiting ──the writer takes it──> taken ──> answered
//!     │ the caller's time is up, or it lets go
//!     └──> withdrawn: the writer passes over it, so it surely has no effect
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::commit::{Commit, Committed};
use crate::entry::{Cursor, Hold, Revision};
use crate::error::LedgerError;

/// Changes that wait at most; one more is refused at once.
const WAITING_MAX: usize = 4096;
/// Bytes of them at most.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Changes that become one transaction.
const BATCH_MAX: usize = 256;
/// Bytes of them, about.
const BATCH_BYTES: usize = 8 << 20;

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// What the writer is to do.
#[derive(Debug)]
pub(crate) enum Work {
    Commit(Commit),
    Compact(Revision),
    Hold(u64),
    End(Hold),
    Fill { above: Revision, entries: Vec<(String, Bytes)> },
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Commit(commit) => commit.puts.iter().map(|put| put.key.len() + put.value.len()).sum(),
            Self::Compact(_) | Self::Hold(_) | Self::End(_) => 0,
            Self::Fill { entries, .. } => entries.iter().map(|(key, value)| key.len() + value.len()).sum(),
        }
    }
}

/// What the writer has done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Done {
    Nothing,
    Committed(Committed),
    Hold(Hold),
    Cursor(Cursor),
}

impl Done {
    pub(crate) fn committed(self) -> Result<Committed, LedgerError> {
        if let Self::Committed(committed) = self { Ok(committed) } else { Err(mixed()) }
    }

    pub(crate) fn hold(self) -> Result<Hold, LedgerError> {
        if let Self::Hold(hold) = self { Ok(hold) } else { Err(mixed()) }
    }

    pub(crate) fn cursor(self) -> Result<Cursor, LedgerError> {
        if let Self::Cursor(cursor) = self { Ok(cursor) } else { Err(mixed()) }
    }
}

fn mixed() -> LedgerError {
    LedgerError::Unknown { reason: "the writer gave the answer of another question".to_owned() }
}

pub(crate) type Answered = Result<Done, LedgerError>;

/// A change in the queue.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    state: Arc<AtomicU8>,
    answer: oneshot::Sender<Answered>,
}

impl Job {
    pub(crate) fn answer(self, answer: Answered) {
        // Who asked may be gone.
        let _ = self.answer.send(answer);
    }
}

/// The caller's side of a change.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Arc<AtomicU8>,
    answer: oneshot::Receiver<Answered>,
}

impl Ticket {
    /// The writer's answer.
    pub(crate) async fn answer(&mut self) -> Answered {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            Err(_) if self.withdraw() => Err(closed()),
            Err(_) => Err(LedgerError::Unknown { reason: "the ledger was closed meanwhile".to_owned() }),
        }
    }

    /// Takes it back; false if the writer has it.
    pub(crate) fn withdraw(&self) -> bool {
        self.state.compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.withdraw();
    }
}

pub(crate) fn closed() -> LedgerError {
    LedgerError::Unavailable { reason: "the ledger is closed".to_owned() }
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: usize,
    is_closed: bool,
}

/// What waits for the writer.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Queue {
    pub(crate) fn push(&self, work: Work) -> Result<Ticket, LedgerError> {
        let bytes = work.bytes();
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(closed());
        }
        if waiting.jobs.len() >= WAITING_MAX || (waiting.bytes + bytes > WAITING_BYTES_MAX && !waiting.jobs.is_empty())
        {
            return Err(LedgerError::Unavailable { reason: "too many changes wait for the disk".to_owned() });
        }
        let (answer, receiver) = oneshot::channel();
        let state = Arc::new(AtomicU8::new(WAITING));
        waiting.bytes += bytes;
        waiting.jobs.push_back(Job { work, state: Arc::clone(&state), answer });
        drop(waiting);
        self.changed.notify_one();
        Ok(Ticket { state, answer: receiver })
    }

    /// What is to be one transaction; nothing if `until` comes first or the ledger is closed.
    pub(crate) fn take(&self, until: Instant) -> Vec<Job> {
        let mut waiting = self.waiting.lock();
        while waiting.jobs.is_empty() && !waiting.is_closed {
            if self.changed.wait_until(&mut waiting, until).timed_out() {
                break;
            }
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES {
            let Some(job) = waiting.jobs.pop_front() else { break };
            bytes += job.work.bytes();
            waiting.bytes -= job.work.bytes();
            if job.state.compare_exchange(WAITING, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                batch.push(job);
            }
        }
        batch
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().jobs.len()
    }

    /// Whether nothing is taken any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.waiting.lock().is_closed
    }

    /// Fails what waits and what comes.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        let jobs = std::mem::take(&mut waiting.jobs);
        waiting.bytes = 0;
        drop(waiting);
        jobs.into_iter().for_each(|job| job.answer(Err(closed())));
        self.changed.notify_all();
    }
}
