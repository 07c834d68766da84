//! The engine itself: a library, its writers and readers, as one store.

use std::sync::Arc;
use std::thread::JoinHandle;

use moneta_store::change::{self, Old};
use moneta_store::component::{Component, Flush, Health, Observe, Observer, Parts, Report, Walk};
use moneta_store::offload::{Answer, Offload, answer};
use moneta_store::request::Exptime;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cursor, Cx, Expiry, Item, Key, KeyHash, Lookup, Op, Outcome, OwnedOp, Pending, Put, Reactors, Step, Store,
    StoreError, StoreStats, Version, Visit, Walked, Walking,
};
use parking_lot::Mutex;

use crate::batch_context::found;
use crate::counters::Counters;
use crate::database::{Database, Settings};
use crate::deletes::shard_of;
use crate::error::{EmbeddedError, Failure};
use crate::maintenance::{self, Maintenance};
use crate::manifest::Manifest;
use crate::record::Header;
use crate::shared::Shared;
use crate::writer::{OwnedKey, Queue, Request, Writer};

/// Everything that handles share.
pub(crate) struct Inner<D: Database> {
    // The library goes before what keeps its folder locked.
    pub(crate) database: D,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Settings,
    pub(crate) queues: Box<[Queue]>,
    pub(crate) readers: Offload,
    pub(crate) counters: Counters,
    pub(crate) maintenance: Maintenance,
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
        let manifest = Manifest::open(&settings.folder, settings.identity)?;
        let shared = Arc::new(Shared::new(manifest, clock, &settings.versioning, settings.identity.shards));
        let engine = settings.identity.engine;
        let readers = Offload::start(&format!("{engine}-read"), settings.readers);
        let readers = readers.map_err(|source| EmbeddedError::Start { what: "the readers", source })?;
        let database = D::open(config, &shared)?;
        let failed = |source| EmbeddedError::Io { path: settings.folder.clone(), what: "write its ledger", source };
        shared.manifest().opened().map_err(failed)?;
        let inner = Arc::new(Inner {
            database,
            queues: (0..settings.identity.shards).map(|_| Queue::default()).collect(),
            shared,
            settings,
            readers,
            counters: Counters::default(),
            maintenance: Maintenance::default(),
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
        inner.spawn(format!("{engine}-keep"), move || maintenance::run(&keeper))
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
    pub fn maintain(&self) -> Result<(), Failure> {
        maintenance::turn(&self.inner)
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
        self.maintenance.stop();
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
    fn change(&self, key: &Key<'_>, op: Op<'_>) -> Step {
        let (answer, pending) = answer();
        self.ask(key, Request::new(key, OwnedOp::of(op), answer));
        Step::Wait(pending)
    }

    /// Has a reader look at what lies under a key.
    fn look(
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

impl<D: Database> Store for Embedded<D> {
    fn call(&self, _: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        let inner = &self.inner;
        match op {
            // Reads go to the readers; one that turns out to change something goes on to the writer, which looks again.
            Op::Read(request) => {
                let request = *request;
                inner.look(key, move |inner, key, live, expired, answer| {
                    match change::read(live.as_ref(), &request, inner.shared.now()) {
                        None => answer.send(Ok(Lookup::Miss { expired }.into())),
                        Some(reading) if reading.rewrite.is_none() => {
                            let item = Item { meta: reading.meta, value: reading.value.to_vec().into() };
                            answer.send(Ok(Lookup::Found(item).into()));
                        }
                        Some(reading) => {
                            let request = Request::new(key, OwnedOp::Read(request), answer);
                            inner.ask(key, request.rewriting(reading.value.len()));
                        }
                    }
                })
            }
            Op::Peek => inner.look(key, |_, _, live, expired, answer| {
                let lookup = live.map_or(Lookup::Miss { expired }, |old| {
                    Lookup::Found(Item { meta: old.meta, value: old.value.to_vec().into() })
                });
                answer.send(Ok(lookup.into()));
            }),
            Op::Put(item, Put::Newer { .. }) => match inner.shared.accept_version(item.meta.version()) {
                Ok(()) => inner.change(key, op),
                Err(error) => Step::Done(Err(error)),
            },
            Op::Bury(version) => match inner.shared.accept_version(version) {
                Ok(()) => inner.change(key, op),
                Err(error) => Step::Done(Err(error)),
            },
            Op::Write(..) | Op::Delete(_) | Op::Arithmetic(_) | Op::Put(..) => inner.change(key, op),
            Op::Drop => {
                // At once not served, and then removed.
                inner.shared.untrusted.add(key.bytes);
                drop(inner.change(key, op));
                Step::Done(Ok(Outcome::Done))
            }
            // It would have to wait to know.
            Op::Holds => Step::Done(Ok(Outcome::Held(true))),
            // What goes first is decided by age, not by hits.
            Op::NoteHit => Step::Done(Ok(Outcome::Done)),
            Op::BuriedAs => {
                let version = inner.shared.deletes.find(key.hash).0.unwrap_or_default();
                Step::Done(Ok(Outcome::Cas(version.0)))
            }
            // 0 if the number cannot be made sure of, as no floor above it can be written.
            Op::NextCas => Step::Done(Ok(Outcome::Cas(inner.shared.next_sequence().unwrap_or(0)))),
        }
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.inner.shared.seed()
    }
}

impl<D: Database> Component for Embedded<D> {
    /// What limits this store is what it may take of its device, which is set when it is opened.
    fn parts(&self) -> Parts<'_> {
        Parts { below: Vec::new(), walk: Some(self), flush: Some(self), resize: None, observe: Some(self), feed: None }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, _: Vec<Report>) -> Report {
        let (inner, counters) = (&self.inner, &self.inner.counters);
        let engine = inner.settings.identity.engine;
        let (tombstones, tombstone_bytes, horizon) = inner.shared.deletes.census();
        let mut stats = StoreStats {
            // Without the kind of compaction.
            kind: engine.split('-').next().unwrap_or_default(),
            total_items: counters.total_items(),
            out_of_memory: counters.out_of_memory(),
            tombstones,
            tombstone_bytes,
            horizon,
            ..StoreStats::default()
        };
        inner.database.stats(&mut stats);
        Report { stats, metrics: inner.database.metrics() }
    }

    fn health(&self, _: Vec<Health>) -> Health {
        let (inner, counters) = (&self.inner, &self.inner.counters);
        let engine = inner.settings.identity.engine;
        let mut health = Health::default();
        if let Some(reason) = inner.maintenance.failure() {
            health.notes.push(format!("{engine} fails: {reason}"));
        }
        let failures = counters.failures();
        if failures > 0 {
            health.notes.push(format!("{engine} failed {failures} requests"));
        }
        if inner.shared.untrusted.any() {
            health.notes.push("keys whose change failed are not served until they can be written".into());
        }
        inner.database.health(&mut health);
        health
    }

    fn close(&self) {
        self.inner.shut_down(true);
    }
}

impl<D: Database> Walk for Embedded<D> {
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.inner.walk(cursor, show)
    }
}

impl<D: Database> Flush for Embedded<D> {
    fn flush(&self, _: &Cx, delay: Exptime) -> Step<()> {
        let now = self.inner.shared.now();
        let moment = Some(Expiry::resolve(delay, now).0).filter(|moment| *moment > now).unwrap_or(0);
        let inner = Arc::clone(&self.inner);
        let flush = move || inner.shared.flush(moment).map_err(|failure| inner.fail(&failure));
        Step::Wait(self.inner.readers.submit(flush))
    }

    fn pending(&self) -> Option<u32> {
        self.inner.shared.pending_flush()
    }

    fn floor(&self, _: &Cx, floor: Floor) -> Step<()> {
        let inner = Arc::clone(&self.inner);
        let take = move || inner.shared.floor(floor).map_err(|failure| inner.fail(&failure));
        Step::Wait(self.inner.readers.submit(take))
    }

    fn floors(&self) -> Floors {
        self.inner.shared.floors()
    }

    fn lag(&self) -> u32 {
        0
    }
}

impl<D: Database> Observe for Embedded<D> {
    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.inner.shared.observe(observer);
    }
}
