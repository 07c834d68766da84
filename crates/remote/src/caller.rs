//! The store as one caller sees it: through its worker's connections, or through the background thread's.

use std::rc::Rc;
use std::sync::Arc;

use moneta_client::wire::{Answer, Dialect, Refusal, Request, Verb};
use moneta_store::{Clock, Cx, ErrorKind, Key, StoreError};
use parking_lot::Mutex;

use crate::background::Background;
use crate::config::RemoteConfig;
use crate::connection::{OwnedRequest, Target};
use crate::exchange::Exchange;
use crate::promise::Promise;
use crate::shared::ServerShared;
use crate::worker_client::WorkerClient;

/// What all clones of a store share.
pub(crate) struct Inner {
    pub(crate) shared: Arc<ServerShared>,
    pub(crate) clock: Arc<Clock>,
    // Held while the thread starts, and for a push into its mailbox; its users have no event loop to hold up.
    pub(crate) background: Mutex<Option<Background>>,
}

impl Inner {
    /// What the server was found to understand when it was last connected to; `None` before that.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        self.shared.dialect()
    }

    pub(crate) fn config(&self) -> &RemoteConfig {
        &self.shared.config
    }

    fn submit(&self, request: &Request<'_>, hash: u64, promise: Option<Arc<Promise>>) -> Result<(), StoreError> {
        let mut background = self.background.lock();
        let thread = match &mut *background {
            Some(thread) => thread,
            none => {
                let started = Background::start(&self.shared, &self.clock);
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
pub(crate) struct Caller {
    remote: Arc<Inner>,
    cx: Cx,
    /// It belongs to an operation that goes on, and so may begin a request when its connections had their turn for this operation.
    goes_on: bool,
}

/// For an operation that goes on when it is polled.
impl Clone for Caller {
    fn clone(&self) -> Self {
        Self { remote: Arc::clone(&self.remote), cx: self.cx.clone(), goes_on: true }
    }
}

impl std::ops::Deref for Caller {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.remote
    }
}

impl Caller {
    pub(crate) fn new(remote: &Arc<Inner>, cx: &Cx) -> Self {
        Self { remote: Arc::clone(remote), cx: cx.clone(), goes_on: false }
    }

    /// For an operation that goes on when it is polled.
    pub(crate) fn going_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// Whether the caller is a worker, which must not be kept waiting.
    pub(crate) fn is_worker(&self) -> bool {
        self.cx.is_worker()
    }

    /// The connections of this thread, if it has any.
    pub(crate) fn client(&self) -> Option<Rc<WorkerClient>> {
        let client: Rc<WorkerClient> = self.cx.reactor(self.remote.shared.slot)?;
        if self.goes_on {
            client.ask_for_turn();
        }
        Some(client)
    }

    pub(crate) fn now(&self) -> u32 {
        self.remote.clock.now()
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
    pub(crate) fn unexpected(&self, answer: Answer<'_>) -> StoreError {
        let address = &self.config().endpoint.address;
        let (kind, reason) = match answer {
            Answer::OutOfMemory => (ErrorKind::OutOfMemory, format!("{address} has no memory left")),
            Answer::Refused(Refusal::Told(code), why) => (code.into(), format!("{address}: {why}")),
            // What it is about is not known: one client's request may be enough for it.
            Answer::Refused(Refusal::Server, why) => (ErrorKind::Refused, format!("{address} failed: {why}")),
            Answer::Refused(Refusal::Client, why) => (ErrorKind::Unsupported, format!("{address} refused: {why}")),
            Answer::Refused(Refusal::Unknown, _) => {
                (ErrorKind::Unsupported, format!("{address} does not know the command"))
            }
            _ => (ErrorKind::Refused, format!("{address} gave an answer that does not fit")),
        };
        self.remote.shared.counters.failure(kind);
        StoreError::new(kind, reason)
    }
}
