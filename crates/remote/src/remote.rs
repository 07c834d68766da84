//! The store: each request mapped to the server's own, which makes it atomic there.

use std::rc::Rc;
use std::sync::Arc;

use moneta_client::wire::{Answer, Dialect, Refusal, Request, Verb};
use moneta_store::component::{Component, Flush, Health, Parts, Report, Walk};
use moneta_store::request::{Delete, Exptime};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cursor, Cx, ErrorKind, Key, KeyHash, Op, Outcome, Put, Reactors, Step, Store, StoreError, StoreStats, Visit,
    Walked, Walking,
};
use parking_lot::Mutex;

use crate::background::Background;
use crate::config::RemoteConfig;
use crate::connection::{OwnedRequest, Target};
use crate::error::RemoteError;
use crate::exchange::Exchange;
use crate::promise::Promise;
use crate::shared::Shared;
use crate::statistics::Snapshot;
use crate::worker_client::WorkerClient;
use crate::{counting, install, newer, reads, statistics, walk, writes};

/// Seconds by which a server may flush later than asked for by our clock: one that its second began later, one that memcached
/// looks at its clock only once a second, and one for the way there.
const FLUSH_LAG: u32 = 3;

/// A server that speaks memcached's protocol. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Remote(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    clock: Arc<Clock>,
    snapshot: Arc<Snapshot>,
    // Held while the thread starts, and for a push into its mailbox; its users have no event loop to hold up.
    background: Mutex<Option<Background>>,
}

impl Remote {
    /// A store on the server that `config` names. It need not be up: requests fail until it answers.
    ///
    /// # Errors
    /// When the configuration makes no sense or the host's name means nothing.
    pub fn new(config: RemoteConfig, clock: Arc<Clock>) -> Result<Self, RemoteError> {
        let shared = Arc::new(Shared::new(config)?);
        Ok(Self(Arc::new(Inner { shared, clock, snapshot: Arc::default(), background: Mutex::new(None) })))
    }

    /// What the server was found to understand when it was last connected to; `None` before that.
    pub fn dialect(&self) -> Option<Dialect> {
        self.0.shared.dialect()
    }

    /// The configuration.
    pub fn config(&self) -> &RemoteConfig {
        &self.0.shared.config
    }

    /// The store as one caller sees it.
    fn of(&self, cx: &Cx) -> Caller {
        Caller { remote: self.clone(), cx: cx.clone() }
    }

    fn submit(&self, request: &Request<'_>, hash: u64, promise: Option<Arc<Promise>>) -> Result<(), StoreError> {
        let mut background = self.0.background.lock();
        let thread = match &mut *background {
            Some(thread) => thread,
            none => {
                let started = Background::start(&self.0.shared, &self.0.clock);
                let failed = |error| {
                    StoreError::new(ErrorKind::Unreachable, "cannot start a thread for a remote store")
                        .with_source(error)
                };
                none.insert(started.map_err(failed)?)
            }
        };
        thread.submit(OwnedRequest::from(request), hash, promise);
        Ok(())
    }
}

/// The store as one caller sees it: through its worker's connections, or through the background thread's.
#[derive(Clone)]
pub(crate) struct Caller {
    remote: Remote,
    cx: Cx,
}

impl std::ops::Deref for Caller {
    type Target = Remote;

    fn deref(&self) -> &Remote {
        &self.remote
    }
}

impl Caller {
    /// Whether the caller is a worker, which must not be kept waiting.
    pub(crate) fn is_worker(&self) -> bool {
        self.cx.is_worker()
    }

    fn client(&self) -> Option<Rc<WorkerClient>> {
        self.cx.reactor(self.0.shared.slot)
    }

    pub(crate) fn now(&self) -> u32 {
        self.0.clock.now()
    }

    /// Begins a request on a connection of this thread, or has the background thread begin it.
    ///
    /// # Errors
    /// When it fails at once.
    #[inline]
    pub(crate) fn begin(&self, verb: Verb, key: &Key<'_>, value: &[u8]) -> Result<Exchange, StoreError> {
        let request = Request { verb, key: key.bytes, value };
        match self.client() {
            Some(client) => client.begin(&request, key.hash).map(|slot| Exchange::local(client, slot)),
            None => self.begin_for(verb, key, value).map(Exchange::shared),
        }
    }

    /// Begins a request whose answer is not waited for.
    pub(crate) fn begin_unanswered(&self, verb: Verb, key: &Key<'_>) {
        let request = Request { verb, key: key.bytes, value: &[] };
        // Counts the failure; nothing else to do.
        let _ = match self.client() {
            Some(client) => client.begin_for(&request, key.hash, Target::Unanswered),
            None => self.submit(&request, key.hash, None),
        };
    }

    /// Begins a request whose answer goes into a promise, also on a thread with connections.
    pub(crate) fn begin_for(&self, verb: Verb, key: &Key<'_>, value: &[u8]) -> Result<Arc<Promise>, StoreError> {
        let request = Request { verb, key: key.bytes, value };
        let promise = Promise::new();
        match self.client() {
            Some(client) => client.begin_for(&request, key.hash, Target::Shared(Arc::clone(&promise)))?,
            None => self.submit(&request, key.hash, Some(Arc::clone(&promise)))?,
        }
        Ok(promise)
    }

    /// An answer that is an error, or none that fits the question.
    pub(crate) fn unexpected(&self, answer: Answer) -> StoreError {
        let address = &self.config().address;
        let (kind, reason) = match answer {
            Answer::OutOfMemory => (ErrorKind::OutOfMemory, format!("{address} has no memory left")),
            Answer::Refused(Refusal::Server, why) if why == StoreError::CLOCK_AHEAD => {
                (ErrorKind::ClockAhead, format!("{address}: {why}"))
            }
            Answer::Refused(Refusal::Server, why) if why == StoreError::CATCHING_UP => {
                (ErrorKind::CatchingUp, format!("{address}: {why}"))
            }
            Answer::Refused(Refusal::Server, why) if why == StoreError::NO_VERSIONS => {
                (ErrorKind::Unsupported, format!("{address}: {why}"))
            }
            Answer::Refused(Refusal::Server, why) => (ErrorKind::Unreachable, format!("{address} failed: {why}")),
            Answer::Refused(Refusal::Client, why) => (ErrorKind::Unsupported, format!("{address} refused: {why}")),
            Answer::Refused(Refusal::Unknown, _) => {
                (ErrorKind::Unsupported, format!("{address} does not know the command"))
            }
            _ => (ErrorKind::Unreachable, format!("{address} gave an answer that does not fit")),
        };
        self.0.shared.counters.failure(kind);
        StoreError::new(kind, reason)
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

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.config().seed
    }
}

impl Component for Remote {
    /// The server bounds its own memory, and does not tell what it evicts.
    fn parts(&self) -> Parts<'_> {
        Parts { below: Vec::new(), walk: Some(self), flush: Some(self), resize: None, observe: None, feed: None }
    }

    fn attach(&self, worker: &mut Reactors) {
        if let Some(client) = WorkerClient::of_worker(&self.0.shared) {
            worker.add(self.0.shared.slot, client);
        }
    }

    fn report(&self, cx: &Cx, _: Vec<Report>) -> Report {
        let shared = &self.0.shared;
        let address = shared.config.address.to_string();
        Report {
            stats: StoreStats { kind: "remote", ..statistics::stats(&self.of(cx), &self.0.snapshot) },
            metrics: shared.counters.samples(&address, !shared.is_open()),
        }
    }

    fn health(&self, _: Vec<Health>) -> Health {
        let shared = &self.0.shared;
        if !shared.is_open() {
            return Health::default();
        }
        let note = format!("{} does not answer: {}", shared.config.address, shared.last_failure());
        Health { unready: true, notes: vec![note] }
    }

    fn close(&self) {
        drop(self.0.background.lock().take());
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

    fn lag(&self) -> u32 {
        FLUSH_LAG
    }
}
