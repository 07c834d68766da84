//! What the handles, the writers and the maintenance thread of an engine share.

use std::sync::Arc;

use moneta_background::Task;
use moneta_store::change::Old;
use moneta_store::offload::{Answer, Offload, answer};
use moneta_store::{Key, Op, Outcome, OwnedOp, Step, StoreError, Version};
use parking_lot::Mutex;

use crate::batch_context::found;
use crate::counters::EngineCounters;
use crate::database::Database;
use crate::deletes::shard_of;
use crate::error::{EmbeddedError, Failure};
use crate::maintenance::Maintenance;
use crate::queue::{OwnedKey, Queue, Request};
use crate::record::Header;
use crate::settings::Settings;
use crate::shared::EngineShared;

/// Everything that handles share.
pub(crate) struct Inner<D: Database> {
    // The library goes before what keeps its folder locked.
    pub(crate) database: D,
    pub(crate) shared: Arc<EngineShared>,
    pub(crate) settings: Settings,
    pub(crate) queues: Box<[Queue]>,
    pub(crate) readers: Offload,
    pub(crate) counters: EngineCounters,
    pub(crate) maintenance: Maintenance,
    pub(crate) threads: Mutex<Option<Vec<Task>>>,
}

impl<D: Database> Inner<D> {
    /// Starts a thread, which ends with the engine.
    pub(crate) fn spawn(&self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), EmbeddedError> {
        let started = moneta_background::start(name, move |_| run());
        let thread = started.map_err(|source| EmbeddedError::Start { what: "a thread of the engine", source })?;
        if let Some(threads) = self.threads.lock().as_mut() {
            threads.push(thread);
        }
        Ok(())
    }

    /// Ends the threads; with `rest`, after everything is written and noted to be in good order.
    pub(crate) fn shut_down(&self, rest: bool) {
        let Some(threads) = self.threads.lock().take() else { return };
        self.maintenance.stop();
        self.readers.close();
        self.queues.iter().for_each(Queue::close);
        for thread in threads {
            thread.join();
        }
        if !rest {
            return;
        }
        if let Err(failure) = self.database.sync() {
            tracing::warn!(%failure, "the engine cannot be closed in good order");
        } else if let Err(error) = self.shared.close() {
            tracing::warn!(%error, "the manifest cannot be closed in good order");
        }
    }

    fn shard(&self, key: &Key<'_>) -> usize {
        shard_of(key.hash, self.queues.len())
    }

    /// Counts a failure and makes it a request's end.
    pub(crate) fn fail(&self, failure: &Failure) -> StoreError {
        self.counters.failed(failure);
        failure.to_store_error()
    }

    /// Has the writer of the key's shard do something.
    pub(crate) fn ask(&self, key: &Key<'_>, request: Request) {
        self.queues[self.shard(key)].push(request);
    }

    /// The same, to wait for.
    pub(crate) fn change(&self, key: &Key<'_>, op: Op<'_>) -> Step {
        let (answer, pending) = answer();
        self.ask(key, Request::new(key, OwnedOp::of(op), answer));
        Step::Wait(pending)
    }

    /// Has a reader look at what lies under a key.
    pub(crate) fn look(
        self: &Arc<Self>,
        key: &Key<'_>,
        look: impl FnOnce(&Arc<Self>, &Key<'_>, Option<Old<'_>>, bool, Answer<Outcome>) + Send + 'static,
    ) -> Step {
        let (answer, pending) = answer();
        let (inner, key) = (Arc::clone(self), OwnedKey::new(key));
        self.readers.execute(move || {
            let key = key.borrow();
            let mut asked = Some((look, answer));
            // Asked before the read, as what is read may be replaced and settled meanwhile, and after it, as a change may fail.
            let is_untrusted = || inner.shared.untrusted.has(key.bytes);
            let was_untrusted = is_untrusted();
            let mut see = |record: Option<&[u8]>| {
                let served = record.filter(|_| !was_untrusted && !is_untrusted());
                let found = found(&inner.shared, served);
                if let (Some(expired), Some((header, _))) = (found.expired, served.and_then(Header::read))
                    && expired > Version::ZERO
                {
                    inner.shared.expired(key.bytes, &header);
                }
                if let Some((look, answer)) = asked.take() {
                    look(&inner, &key, found.live, found.expired.is_some(), answer);
                }
            };
            let read = inner.shared.settle().and_then(|()| {
                let is_there = inner.database.read(inner.shard(&key), key.bytes, &mut |record| see(Some(record)))?;
                if !is_there {
                    see(None);
                }
                Ok(())
            });
            if let (Err(failure), Some((_, answer))) = (read, asked) {
                answer.send(Err(inner.fail(&failure)));
            }
        });
        Step::Wait(pending)
    }
}
