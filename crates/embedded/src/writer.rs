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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::batch_context::{BatchContext, Buffers};
use crate::database::{Batch, Database};
use crate::error::Failure;
use crate::inner::Inner;
use crate::queue::Request;

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
