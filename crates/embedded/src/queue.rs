//! What waits for a shard's writer.

use std::collections::VecDeque;

use moneta_store::offload::Answer;
use moneta_store::{Key, Outcome, OwnedOp};
use parking_lot::{Condvar, Mutex};

use crate::batch_context::BatchContext;
use crate::database::Database;
use crate::error::Failure;
use crate::perform::{perform, without_room};

/// Most requests of a batch.
const GROUP_REQUESTS: usize = 512;
/// Most bytes of a batch, but for one request: a part of what a library may hold in memory or in a transaction.
const GROUP_BYTES: usize = 1 << 20;
/// Bytes that a request may add to a batch beside its value.
const REQUEST_BYTES: usize = 512;

/// A key that outlives its request's bytes.
#[derive(Clone, Debug)]
pub(crate) struct OwnedKey {
    bytes: Box<[u8]>,
    hash: u64,
}

impl OwnedKey {
    pub(crate) fn new(key: &Key<'_>) -> Self {
        Self { bytes: key.bytes.into(), hash: key.hash }
    }

    pub(crate) fn borrow(&self) -> Key<'_> {
        Key { bytes: &self.bytes, hash: self.hash }
    }
}

/// An operation that a shard's writer is to do.
pub(crate) struct Request {
    pub(crate) key: OwnedKey,
    op: OwnedOp,
    /// Bytes it may add to a batch, about.
    bytes: usize,
    answer: Answer<Outcome>,
    /// What the last try came to.
    outcome: Option<Outcome>,
}

impl Request {
    pub(crate) fn new(key: &Key<'_>, op: OwnedOp, answer: Answer<Outcome>) -> Self {
        let value = match &op {
            OwnedOp::Write(value, _) => value.len(),
            OwnedOp::Put(item, _) => item.value.len(),
            _ => 0,
        };
        Self { key: OwnedKey::new(key), op, bytes: value + REQUEST_BYTES, answer, outcome: None }
    }

    /// The same, where it may write an item again of that many bytes.
    pub(crate) fn rewriting(self, bytes: usize) -> Self {
        Self { bytes: self.bytes + bytes, ..self }
    }

    /// Does it in a batch. May be called again, in another one.
    pub(crate) fn perform<D: Database>(&mut self, context: &mut BatchContext<'_, D>) -> Result<(), Failure> {
        self.outcome = Some(perform(context, &self.key.borrow(), &self.op)?);
        Ok(())
    }

    /// Answers with what the last try came to, or why it came to nothing.
    pub(crate) fn answer(self, ended: Result<(), &Failure>) {
        let outcome = match ended {
            Ok(()) => self.outcome,
            Err(Failure::Full(_)) => without_room(&self.op),
            Err(Failure::Broken(_)) => None,
        };
        match (outcome, ended) {
            (Some(outcome), _) => self.answer.send(Ok(outcome)),
            (None, Err(failure)) => self.answer.send(Err(failure.to_store_error())),
            // A request that was performed has an outcome; without one its answer is dropped, which is an error too.
            (None, Ok(())) => (),
        }
    }
}

/// What waits for a shard's writer.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    closed: bool,
}

impl Queue {
    /// Asks for something. A closed queue drops it, and so ends it in an error.
    pub(crate) fn push(&self, request: Request) {
        let mut state = self.state.lock();
        if !state.closed {
            state.requests.push_back(request);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Lets the writer end when it has done what was asked so far.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for requests and takes as many as make a batch; none when there will be no more.
    pub(crate) fn take(&self) -> Vec<Request> {
        let mut state = self.state.lock();
        while state.requests.is_empty() && !state.closed {
            self.changed.wait(&mut state);
        }
        let mut bytes = 0;
        let first = state.requests.iter().take(GROUP_REQUESTS).take_while(|request| {
            bytes += request.bytes;
            bytes <= GROUP_BYTES
        });
        let count = first.count().max(1).min(state.requests.len());
        state.requests.drain(..count).collect()
    }
}
