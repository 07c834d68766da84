//! The store: each request mapped to the server's own, which makes it atomic there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moneta_client::wire::{Dialect, Verb};
use moneta_store::component::{Component, Flush, Health, Parts, Report, Walk};
use moneta_store::request::{Delete, Exptime, Retrieve};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cursor, Cx, Key, KeyHash, Op, Outcome, PendingReads, Put, Reactors, ReadSeveral, Step, Store, StoreStats,
    Version, Visit, Walked, Walking,
};
use parking_lot::Mutex;

use crate::caller::{Caller, Inner};
use crate::config::RemoteConfig;
use crate::error::RemoteError;
use crate::shared::ServerShared;
use crate::statistics::Snapshot;
use crate::worker_client::WorkerClient;
use crate::{counting, install, newer, reads, several, statistics, walk, writes};

/// Seconds by which a server may flush later than asked for by our clock: one that its second began later, one that memcached
/// looks at its clock only once a second, and one for the way there.
const FLUSH_LAG: u32 = 3;

/// A server that speaks memcached's protocol. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
    snapshot: Arc<Snapshot>,
}

impl Remote {
    /// A store on the server that `config` names. It need not be up: requests fail until it answers.
    ///
    /// # Errors
    /// When the configuration makes no sense or the host's name means nothing, unless [`RemoteConfig::may_be_unknown`].
    pub fn new(config: RemoteConfig, clock: Arc<Clock>) -> Result<Self, RemoteError> {
        let shared = Arc::new(ServerShared::new(config)?);
        let inner = Arc::new(Inner { shared, clock, background: Mutex::new(None) });
        Ok(Self { inner, snapshot: Arc::default() })
    }

    /// What the server was found to understand when it was last connected to; `None` before that.
    pub fn dialect(&self) -> Option<Dialect> {
        self.inner.dialect()
    }

    /// The configuration.
    pub fn config(&self) -> &RemoteConfig {
        self.inner.config()
    }

    /// Requests that were answered, or given up because no answer came in time, and the time that these took together. Does not
    /// wait.
    pub fn answered(&self) -> (u64, Duration) {
        let shared = &self.inner.shared;
        shared.counters.answered(shared.config.request_timeout.get())
    }

    /// Bytes of large values that have moved so far, and whether one is half through now: what small ones wait behind on the way.
    /// Does not wait.
    pub fn carried(&self) -> (u64, bool) {
        let counters = &self.inner.shared.counters;
        (counters.carried.load(Ordering::Relaxed), counters.carrying.load(Ordering::Relaxed) > 0)
    }

    /// The store as one caller sees it.
    fn of(&self, cx: &Cx) -> Caller {
        Caller::new(&self.inner, cx)
    }
}

impl Store for Remote {
    #[inline]
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        let caller = self.of(cx);
        match op {
            Op::Read(request) => reads::get(&caller, key, request),
            Op::Peek => reads::peek(&caller, key),
            Op::Write(value, request) => writes::set(&caller, key, value, request),
            Op::Delete(request) => writes::delete(&caller, key, request),
            Op::Arithmetic(request) => counting::arithmetic(&caller, key, request),
            Op::Put(item, Put::Newer { as_of, base }) => newer::put(&caller, key, item, as_of, base),
            Op::Bury(version) => newer::bury(&caller, key, version),
            Op::Put(item, how) => install::put(&caller, key, item, how),
            Op::Drop => {
                caller.begin_unanswered(Verb::Delete(Delete::default()), key);
                Step::Done(Ok(Outcome::Done))
            }
            // Asking would have to wait.
            Op::Holds => Step::Done(Ok(Outcome::Held(true))),
            Op::NoteHit => {
                reads::note_hit(&caller, key);
                Step::Done(Ok(Outcome::Done))
            }
            Op::BuriedAs => Step::Done(Ok(Outcome::Cas(0))),
            Op::NextCas => Step::Done(Ok(Outcome::Cas(0))),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        Some(self)
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.config().seed
    }
}

impl ReadSeveral for Remote {
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        several::begin(self.of(cx), keys, request)
    }
}

impl Component for Remote {
    /// The server bounds its own memory, and does not tell what it evicts.
    fn parts(&self) -> Parts<'_> {
        Parts { below: Vec::new(), walk: Some(self), flush: Some(self), resize: None, observe: None, feed: None }
    }

    fn attach(&self, worker: &mut Reactors) {
        if let Some(client) = WorkerClient::of_worker(&self.inner.shared) {
            worker.add(self.inner.shared.slot, client);
        }
    }

    fn report(&self, cx: &Cx, _: Vec<Report>) -> Report {
        let shared = &self.inner.shared;
        let address = shared.config.endpoint.address.to_string();
        let asks = shared.config.asks_statistics || cx.asks_statistics();
        let told = asks.then(|| statistics::stats(&self.of(cx), &self.snapshot));
        Report {
            stats: StoreStats { kind: "remote", ..told.unwrap_or_default() },
            metrics: shared.counters.samples(&address, !shared.is_open()),
        }
    }

    fn health(&self, _: Vec<Health>) -> Health {
        let shared = &self.inner.shared;
        if !shared.is_open() {
            return Health::default();
        }
        let note = format!("{} does not answer: {}", shared.config.endpoint.address, shared.last_failure());
        Health { unready: true, notes: vec![note] }
    }

    fn close(&self) {
        drop(self.inner.background.lock().take());
    }
}

impl Walk for Remote {
    fn walk(&self, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        walk::walk(&self.of(cx), cursor, show)
    }
}

impl Flush for Remote {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        writes::flush(&self.of(cx), delay)
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        newer::floor(&self.of(cx), floor)
    }

    /// The server keeps them to itself.
    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        newer::newest(&self.of(cx))
    }

    fn lag(&self) -> u32 {
        FLUSH_LAG
    }
}
