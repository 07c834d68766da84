//! The store: each request mapped to the server's own, which makes it atomic there.

use std::sync::Arc;

use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};
use moneta_store::{
    Clock, Cursor, Deleted, Driver, ErrorKind, Figure, Health, Install, ItemRef, Key, KeyHash, Lookup, Number,
    Observer, Step, Store, StoreError, StoreStats, Tier, Visit, Walked, Walking, Written,
};
use parking_lot::Mutex;

use crate::background::Background;
use crate::config::RemoteConfig;
use crate::connection::{OwnedRequest, Target};
use crate::error::RemoteError;
use crate::exchange::Exchange;
use crate::lane::{self, Lane};
use crate::promise::Promise;
use crate::shared::Shared;
use crate::statistics::Snapshot;
use crate::wire::{Answer, Dialect, Refusal, Request, Verb};
use crate::{counting, install, reads, statistics, walk, writes};

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

    /// Whether this thread has connections of its own, because it turns an event loop.
    pub(crate) fn has_lane(&self) -> bool {
        Lane::find(&self.0.shared).is_some()
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
        match Lane::find(&self.0.shared) {
            Some(lane) => lane.begin(&request, key.hash).map(|slot| Exchange::local(lane, slot)),
            None => self.begin_for(verb, key, value).map(Exchange::shared),
        }
    }

    /// Begins a request whose answer nobody waits for.
    pub(crate) fn begin_for_nobody(&self, verb: Verb, key: &Key<'_>) {
        let request = Request { verb, key: key.bytes, value: &[] };
        // That it cannot be begun is counted, and no more than that is due.
        let _ = match Lane::find(&self.0.shared) {
            Some(lane) => lane.begin_for(&request, key.hash, Target::Nobody),
            None => self.submit(&request, key.hash, None),
        };
    }

    /// Begins a request whose answer goes into a promise, also on a thread with connections of its own.
    pub(crate) fn begin_for(&self, verb: Verb, key: &Key<'_>, value: &[u8]) -> Result<Arc<Promise>, StoreError> {
        let request = Request { verb, key: key.bytes, value };
        let promise = Promise::new();
        match Lane::find(&self.0.shared) {
            Some(lane) => lane.begin_for(&request, key.hash, Target::Shared(Arc::clone(&promise)))?,
            None => self.submit(&request, key.hash, Some(Arc::clone(&promise)))?,
        }
        Ok(promise)
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

    /// An answer that is an error, or none that fits the question.
    pub(crate) fn unexpected(&self, answer: Answer) -> StoreError {
        let address = &self.config().address;
        let (kind, reason) = match answer {
            Answer::OutOfMemory => (ErrorKind::OutOfMemory, format!("{address} has no memory left")),
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
    fn seed(&self) -> KeyHash {
        self.config().seed
    }

    #[inline]
    fn get(&self, key: &Key<'_>, request: &Retrieve, _: &mut impl Visit) -> Step<Lookup> {
        reads::get(self, key, request)
    }

    #[inline]
    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        writes::set(self, key, value, request)
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        writes::delete(self, key, request)
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        counting::arithmetic(self, key, request)
    }

    fn peek(&self, key: &Key<'_>, _: &mut impl Visit) -> Step<Lookup> {
        reads::peek(self, key)
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        writes::flush(self, delay)
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        walk::walk(self, cursor, show)
    }

    fn stats(&self) -> StoreStats {
        StoreStats { kind: "remote", ..statistics::stats(self, &self.0.snapshot) }
    }

    fn figures(&self) -> Vec<Figure> {
        let shared = &self.0.shared;
        shared.counters.figures(&shared.config.address.to_string(), shared.is_open())
    }

    /// Its memory is its own affair.
    fn resize(&self, _: u64) -> bool {
        false
    }

    /// It does not tell what it evicts.
    fn observe(&self, _: Option<Arc<dyn Observer>>) {}

    fn driver(&self) -> Option<Box<dyn Driver>> {
        lane::install(&self.0.shared)
    }

    fn health(&self) -> Health {
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

impl Tier for Remote {
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        install::install(self, key, item, how)
    }

    fn flush_lag(&self) -> u32 {
        FLUSH_LAG
    }

    /// Asking would have to wait.
    fn holds(&self, _: &Key<'_>) -> bool {
        true
    }

    fn forget(&self, key: &Key<'_>) {
        self.begin_for_nobody(Verb::Delete(Delete::default()), key);
    }

    fn note_hit(&self, key: &Key<'_>) {
        reads::note_hit(self, key);
    }
}
