//! A shard's writer: one thread that does what was asked of the shard, as much at a time as has come together.
//!
//! One writer a shard instead of locks on keys: what waits while a batch is written becomes the next batch, so that the
//! library is told of many requests at once when there are many, and of one at once when there is one; requests of one key
//! take effect one after the other without any lock; and a library that knows only one writer, as LMDB, loses nothing.
//! The price: a request that has to look at what is there (append, incr, cas) holds its shard up while that is read.
//!
//! ```text
//!  requests ──> queue ──> group ──> batch ──commit──> answers
//!                           ^         │ full: make room, once more
//!                           └─────────┘ fails: each request in a separate batch
//! ```

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use moneta_store::offload::Answer;
use moneta_store::{Key, Outcome, OwnedOp};
use parking_lot::{Condvar, Mutex};

use crate::batch_context::{BatchContext, Buffers};
use crate::database::{Batch, Database};
use crate::engine::Inner;
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
    key: OwnedKey,
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
    fn perform<D: Database>(&mut self, context: &mut BatchContext<'_, D>) -> Result<(), Failure> {
        self.outcome = Some(perform(context, &self.key.borrow(), &self.op)?);
        Ok(())
    }

    /// Answers with what the last try came to, or why it came to nothing.
    fn answer(self, ended: Result<(), &Failure>) {
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
    fn take(&self) -> Vec<Request> {
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

/// The writer of a shard.
pub(crate) struct Writer<D: Database> {
    inner: Arc<Inner<D>>,
    shard: usize,
    buffers: Buffers,
}

impl<D: Database> Writer<D> {
    pub(crate) fn new(inner: Arc<Inner<D>>, shard: usize) -> Self {
        Self { inner, shard, buffers: Buffers::default() }
    }

    /// Writes until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let inner = Arc::clone(&self.inner);
        loop {
            let mut group = inner.queues[self.shard].take();
            if group.is_empty() {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| self.write(&mut group))).is_err() {
                self.buffers = Buffers::default();
                // The requests not yet answered end in an error as they are dropped; the shard goes on.
                group.iter().for_each(|request| inner.shared.untrusted.add(request.key.borrow().bytes));
            }
        }
    }

    /// Does a group and answers it: no request is left in it but by a panic.
    fn write(&mut self, group: &mut Vec<Request>) {
        let count = group.len();
        let ended = self.attempt(group);
        if ended.is_ok() || count == 1 && !matches!(ended, Err(Failure::Full(_))) {
            return self.end(group, count, ended);
        }
        if matches!(ended, Err(Failure::Full(_))) && self.make_room() {
            let ended = self.attempt(group);
            if ended.is_ok() {
                return self.end(group, count, ended);
            }
        }
        while !group.is_empty() {
            let mut ended = self.attempt(&mut group[..1]);
            while matches!(ended, Err(Failure::Full(_))) && self.make_room() {
                ended = self.attempt(&mut group[..1]);
            }
            self.end(group, 1, ended);
        }
    }

    fn make_room(&self) -> bool {
        self.inner.database.make_room(self.shard).unwrap_or_else(|failure| {
            tracing::warn!(shard = self.shard, %failure, "no room can be made");
            false
        })
    }

    /// Does a group in one batch.
    fn attempt(&mut self, group: &mut [Request]) -> Result<(), Failure> {
        let inner = Arc::clone(&self.inner);
        inner.shared.settle()?;
        let _no_flush = inner.shared.changing();
        self.in_batch(|context| group.iter_mut().try_for_each(|request| request.perform(context)))
    }

    /// Has a batch filled, and lets it take effect.
    fn in_batch(&mut self, fill: impl FnOnce(&mut BatchContext<'_, D>) -> Result<(), Failure>) -> Result<(), Failure> {
        let inner = &*self.inner;
        let batch = inner.database.begin(self.shard)?;
        let mut context = BatchContext::<D>::new(batch, &inner.shared, inner.settings.item_max, &mut self.buffers);
        fill(&mut context)?;
        let BatchContext { batch, stored, written, buried, .. } = context;
        batch.commit()?;
        let millis = inner.shared.millis();
        buried.into_iter().for_each(|(hash, version)| inner.shared.deletes.insert(hash, version, millis));
        inner.counters.stored(stored);
        inner.shared.untrusted.settle(&written);
        Ok(())
    }

    /// Answers the first `count` of a group. What a request that failed was to replace must not be served any more.
    fn end(&mut self, group: &mut Vec<Request>, count: usize, ended: Result<(), Failure>) {
        if let Err(failure) = &ended {
            self.inner.counters.failed(failure);
            for request in &group[..count] {
                if self.in_batch(|context| context.forget(&request.key.borrow())).is_err() {
                    self.inner.shared.untrusted.add(request.key.borrow().bytes);
                }
            }
        }
        for request in group.drain(..count) {
            request.answer(ended.as_ref().copied());
        }
    }
}
