//! The engine itself: a library, its writers and readers, as one store.

use std::sync::Arc;

use moneta_store::change;
use moneta_store::component::{Component, Flush, Health, Observe, Observer, Parts, Report, Walk};
use moneta_store::offload::Offload;
use moneta_store::request::Exptime;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cursor, Cx, Expiry, Item, Key, KeyHash, Lookup, Op, Outcome, OwnedOp, Pending, Put, Reactors, ReadSeveral,
    Step, Store, StoreStats, Version, Visit, Walked, Walking,
};
use parking_lot::Mutex;

use crate::counters::EngineCounters;
use crate::database::Database;
use crate::error::EmbeddedError;
use crate::inner::Inner;
use crate::maintenance::Maintenance;
use crate::manifest::Manifest;
use crate::queue::{Queue, Request};
use crate::shared::EngineShared;
use crate::upkeep;
use crate::writer::Writer;

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
        let shared = Arc::new(EngineShared::new(manifest, clock, &settings.versioning, settings.identity.shards));
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
            counters: EngineCounters::default(),
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
        let maintained = Arc::clone(inner);
        inner.spawn(format!("{engine}-keep"), move || {
            maintained.maintenance.run(maintained.settings.interval, || upkeep::turn(&maintained));
        })
    }

    /// Ends when everything answered so far outlives a kill of the process, and of the machine if the engine is asked for
    /// that.
    pub fn sync(&self) -> Pending<()> {
        let inner = Arc::clone(&self.inner);
        self.inner.readers.submit(move || inner.database.sync().map_err(|failure| inner.fail(&failure)))
    }

    /// Does at once what maintenance does once an interval, for tests that wait for its effects.
    ///
    /// # Errors
    /// If the library fails.
    #[cfg(feature = "testing")]
    pub fn maintain(&self) -> Result<(), crate::error::Failure> {
        upkeep::turn(&self.inner)
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

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
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

    fn newest(&self, _: &Cx) -> Step<Version> {
        Step::done(self.inner.shared.newest())
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
