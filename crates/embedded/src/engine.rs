//! The engine itself: a library, its writers and readers, as one store.

use std::sync::Arc;
use std::thread::JoinHandle;

use moneta_store::change::{self, Old};
use moneta_store::offload::{Answer, Offload, answer};
use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Clock, Cursor, Deleted, Expiry, Figure, Health, Install, Item, ItemRef, Key, KeyHash, Lookup, Number, Observer,
    Pending, Step, Store, StoreError, StoreStats, Tier, Visit, Walked, Walking, Written,
};
use parking_lot::Mutex;

use crate::bench::{Bench, found};
use crate::counters::Counters;
use crate::database::{Database, Settings};
use crate::ending::Ending;
use crate::error::{EmbeddedError, Failure};
use crate::keeper::{self, Keeping};
use crate::ledger::Ledger;
use crate::perform;
use crate::shared::Shared;
use crate::writer::{Asked, OwnedKey, Queue, Request, Writer};

/// Bytes that a request may add to a batch beside its value.
const REQUEST_BYTES: usize = 512;

/// Everything that handles share.
pub(crate) struct Inner<D: Database> {
    // The library goes before what keeps its folder locked.
    pub(crate) database: D,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Settings,
    pub(crate) queues: Box<[Queue<D>]>,
    pub(crate) readers: Offload,
    pub(crate) counters: Counters,
    pub(crate) keeping: Keeping,
    threads: Mutex<Option<Vec<JoinHandle<()>>>>,
}

/// An engine on an embedded key-value library. Clones are handles on the same store; when the last one goes, it is closed.
pub struct Embedded<D: Database> {
    inner: Arc<Inner<D>>,
    // Ends the threads when the last handle goes; they hold `inner` themselves.
    _end: Arc<End<D>>,
}

struct End<D: Database>(Arc<Inner<D>>);

impl<D: Database> Drop for End<D> {
    fn drop(&mut self) {
        self.0.shut_down(true);
    }
}

impl<D: Database> Clone for Embedded<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), _end: Arc::clone(&self._end) }
    }
}

impl<D: Database> std::fmt::Debug for Embedded<D> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Embedded").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl<D: Database> Embedded<D> {
    /// Opens what a folder holds, or makes it there if the folder is empty or missing.
    ///
    /// # Errors
    /// If the folder cannot be used, is in use, or was made by something else; it is not changed then.
    pub fn open(config: &D::Config, clock: Arc<Clock>) -> Result<Self, EmbeddedError> {
        let settings = D::settings(config)?;
        let ledger = Ledger::open(&settings.folder, settings.identity)?;
        let shared = Arc::new(Shared::new(ledger, clock));
        let engine = settings.identity.engine;
        let readers = Offload::start(&format!("{engine}-read"), settings.readers);
        let readers = readers.map_err(|source| EmbeddedError::Start { what: "the readers", source })?;
        let database = D::open(config, &shared)?;
        let failed = |source| EmbeddedError::Io { path: settings.folder.clone(), what: "write its ledger", source };
        shared.ledger().opened().map_err(failed)?;
        let inner = Arc::new(Inner {
            database,
            queues: (0..settings.identity.shards).map(|_| Queue::default()).collect(),
            shared,
            settings,
            readers,
            counters: Counters::default(),
            keeping: Keeping::default(),
            threads: Mutex::new(Some(Vec::new())),
        });
        let store = Self { _end: Arc::new(End(Arc::clone(&inner))), inner };
        store.start_threads()?;
        Ok(store)
    }

    fn start_threads(&self) -> Result<(), EmbeddedError> {
        let inner = &self.inner;
        let engine = inner.settings.identity.engine;
        for shard in 0..inner.queues.len() {
            let writer = Writer::new(Arc::clone(inner), shard);
            inner.spawn(format!("{engine}-write-{shard}"), move || writer.run())?;
        }
        let keeper = Arc::clone(inner);
        inner.spawn(format!("{engine}-keep"), move || keeper::run(&keeper))
    }

    /// Ends when everything answered so far outlives a kill of the process, and of the machine if the engine is asked for
    /// that.
    pub fn sync(&self) -> Pending<()> {
        let inner = Arc::clone(&self.inner);
        self.inner.readers.submit(move || inner.database.sync().map_err(|failure| inner.fail(&failure)))
    }

    /// Does at once what the keeper does once an interval, for tests that wait for its effects.
    ///
    /// # Errors
    /// If the library fails.
    #[cfg(feature = "testing")]
    pub fn tend(&self) -> Result<(), Failure> {
        keeper::turn(&self.inner)
    }

    /// What lies below, for tests of an engine's own.
    #[cfg(feature = "testing")]
    pub fn database(&self) -> &D {
        &self.inner.database
    }

    /// Stops as a killed process does: nothing more is written.
    #[cfg(feature = "testing")]
    pub fn crash(self) {
        self.inner.shut_down(false);
    }
}

impl<D: Database> Inner<D> {
    fn spawn(&self, name: String, run: impl FnOnce() + Send + 'static) -> Result<(), EmbeddedError> {
        let started = std::thread::Builder::new().name(name).spawn(run);
        let thread = started.map_err(|source| EmbeddedError::Start { what: "a thread of the engine", source })?;
        if let Some(threads) = self.threads.lock().as_mut() {
            threads.push(thread);
        }
        Ok(())
    }

    /// Ends the threads; with `rest`, after everything is written and noted to be in good order.
    fn shut_down(&self, rest: bool) {
        let Some(threads) = self.threads.lock().take() else { return };
        self.keeping.stop();
        self.readers.close();
        self.queues.iter().for_each(Queue::close);
        for thread in threads {
            let _ = thread.join();
        }
        if !rest {
            return;
        }
        if let Err(failure) = self.database.sync() {
            tracing::warn!(%failure, "the engine cannot be closed in good order");
        } else if let Err(error) = self.shared.ledger().close() {
            tracing::warn!(%error, "the ledger cannot be closed in good order");
        }
    }

    /// Shards by the upper half of the hash.
    fn shard(&self, key: &Key<'_>) -> usize {
        (((key.hash >> 32) * self.queues.len() as u64) >> 32) as usize
    }

    /// Counts a failure and makes it a request's end.
    pub(crate) fn fail(&self, failure: &Failure) -> StoreError {
        self.counters.failed(failure);
        failure.to_store_error()
    }

    /// Has the writer of the key's shard do something.
    pub(crate) fn ask<T, F>(&self, key: &Key<'_>, bytes: usize, answer: Answer<T>, act: F)
    where
        T: Ending + Send + 'static,
        F: FnMut(&mut Bench<'_, D>, &Key<'_>) -> Result<T, Failure> + Send + 'static,
    {
        let bytes = bytes + REQUEST_BYTES;
        let request: Box<dyn Request<D>> =
            Box::new(Asked { key: OwnedKey::new(key), bytes, act, answer, outcome: None });
        self.queues[self.shard(key)].push(request);
    }

    /// The same, to wait for.
    fn change<T, F>(&self, key: &Key<'_>, bytes: usize, act: F) -> Step<T>
    where
        T: Ending + Send + 'static,
        F: FnMut(&mut Bench<'_, D>, &Key<'_>) -> Result<T, Failure> + Send + 'static,
    {
        let (answer, pending) = answer();
        self.ask(key, bytes, answer, act);
        Step::Wait(pending)
    }

    /// Has a reader look at what lies under a key.
    fn look<T: Send + 'static>(
        self: &Arc<Self>,
        key: &Key<'_>,
        look: impl FnOnce(&Arc<Self>, &Key<'_>, Option<Old<'_>>, bool, Answer<T>) + Send + 'static,
    ) -> Step<T> {
        let (answer, pending) = answer();
        let (inner, key) = (Arc::clone(self), OwnedKey::new(key));
        self.readers.execute(move || {
            let key = key.borrow();
            let mut asked = Some((look, answer));
            // Asked before the read, as what is read may be replaced and settled meanwhile, and after it, as a change may fail.
            let in_doubt = || inner.shared.doubts.has(key.bytes);
            let was_in_doubt = in_doubt();
            let mut see = |record: Option<&[u8]>| {
                let served = record.filter(|_| !was_in_doubt && !in_doubt());
                let found = found(&inner.shared, served);
                if let Some((look, answer)) = asked.take() {
                    look(&inner, &key, found.live, found.expired, answer);
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

impl<D: Database> Store for Embedded<D> {
    fn seed(&self) -> KeyHash {
        self.inner.shared.seed()
    }

    /// Reads go to the readers; one that turns out to change something goes on to the writer, which looks again.
    fn get(&self, key: &Key<'_>, request: &Retrieve, _visitor: &mut impl Visit) -> Step<Lookup> {
        let request = *request;
        self.inner.look(key, move |inner, key, live, expired, answer| {
            let now = inner.shared.now();
            match change::read(live.as_ref(), &request, now) {
                None => answer.send(Ok(Lookup::Miss { expired })),
                Some(reading) if reading.rewrite.is_none() => {
                    answer.send(Ok(Lookup::Found(Item { meta: reading.meta, value: reading.value.to_vec() })));
                }
                Some(reading) => {
                    let bytes = reading.value.len();
                    inner.ask(key, bytes, answer, move |bench, key| perform::get(bench, key, &request));
                }
            }
        })
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        let (value, request) = (Box::<[u8]>::from(value), *request);
        self.inner.change(key, value.len(), move |bench, key| perform::set(bench, key, &value, &request))
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        let request = *request;
        self.inner.change(key, 0, move |bench, key| perform::delete(bench, key, &request))
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        let request = *request;
        self.inner.change(key, 0, move |bench, key| perform::arithmetic(bench, key, &request))
    }

    fn peek(&self, key: &Key<'_>, _visitor: &mut impl Visit) -> Step<Lookup> {
        self.inner.look(key, |_, _, live, expired, answer| {
            answer.send(Ok(match live {
                Some(old) => Lookup::Found(Item { meta: old.meta, value: old.value.to_vec() }),
                None => Lookup::Miss { expired },
            }));
        })
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        let now = self.inner.shared.now();
        let moment = Some(Expiry::resolve(delay, now).0).filter(|moment| *moment > now).unwrap_or(0);
        let inner = Arc::clone(&self.inner);
        let flush = move || inner.shared.flush(moment).map_err(|failure| inner.fail(&failure));
        Step::Wait(self.inner.readers.submit(flush))
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.inner.walk(cursor, show)
    }

    fn stats(&self) -> StoreStats {
        let counters = &self.inner.counters;
        let mut stats = StoreStats {
            // Without the kind of compaction.
            kind: self.inner.settings.identity.engine.split('-').next().unwrap_or_default(),
            total_items: counters.total_items(),
            out_of_memory: counters.out_of_memory(),
            ..StoreStats::default()
        };
        self.inner.database.stats(&mut stats);
        stats
    }

    fn figures(&self) -> Vec<Figure> {
        self.inner.database.figures()
    }

    /// Refuses: what limits this store is what it may take of its device, which is set when it is opened.
    fn resize(&self, _limit: u64) -> bool {
        false
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.inner.shared.observe(observer);
    }

    fn health(&self) -> Health {
        let mut health = Health::default();
        if let Some(reason) = self.inner.keeping.failure() {
            health.notes.push(format!("{} fails: {reason}", self.inner.settings.identity.engine));
        }
        let failures = self.inner.counters.failures();
        if failures > 0 {
            health.notes.push(format!("{} failed {failures} requests", self.inner.settings.identity.engine));
        }
        if self.inner.shared.doubts.any() {
            health.notes.push("keys whose change failed are not served until they can be written".into());
        }
        self.inner.database.health(&mut health);
        health
    }

    fn close(&self) {
        self.inner.shut_down(true);
    }
}

impl<D: Database> Tier for Embedded<D> {
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        let item = Item { meta: item.meta, value: item.value.to_vec() };
        self.inner.change(key, item.value.len(), move |bench, key| perform::install(bench, key, &item, how))
    }

    /// 0 if the number cannot be made sure of, as no floor above it can be written.
    fn next_cas(&self, _key: &Key<'_>) -> u64 {
        self.inner.shared.next_sequence().unwrap_or(0)
    }

    fn pending_flush(&self) -> Option<u32> {
        self.inner.shared.pending_flush()
    }

    /// It would have to wait to know, so: yes.
    fn holds(&self, _key: &Key<'_>) -> bool {
        true
    }
}
