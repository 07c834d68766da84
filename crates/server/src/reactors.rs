//! The store's reactors on a worker's thread, as part of the worker's event loop.
//!
//! The loop has them submit requested I/O before it sleeps, and take completions when their descriptors tell of some; then it
//! checks its mailbox for wakes from that. Requests to other servers may wait a little for more that go out with them. Their
//! descriptors are edge-triggered: a turn takes all completions present at its start, and later ones raise a new event.

use std::rc::Rc;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use moneta_store::{Reactors, Store, component};

/// Token of the reactors' descriptors; connections count from 0.
pub(crate) const REACTOR: Token = Token(usize::MAX - 1);

/// Connection turns between two turns of the reactors. A smaller number keeps devices busier, but each reactor turn costs a
/// system call.
const TURNS: u32 = 4;

/// The reactors of one worker.
pub(crate) struct WorkerReactors {
    reactors: Rc<Reactors>,
    /// Whether there are any: a node in RAM alone has none.
    any: bool,
    /// Turns of connections so far.
    turns: u32,
}

impl WorkerReactors {
    /// Attaches `store` to the calling thread and has `registry` watch its reactors.
    pub(crate) fn new(store: &dyn Store, registry: &Registry) -> Self {
        let mut reactors = Reactors::default();
        component::attach(store, &mut reactors);
        if !watch(&reactors, registry) {
            reactors.close();
            // None of them is turned after its close.
            reactors = Reactors::default();
        }
        Self { any: !reactors.is_empty(), reactors: Rc::new(reactors), turns: 0 }
    }

    /// The reactors, for the context of operations.
    pub(crate) fn reactors(&self) -> &Rc<Reactors> {
        &self.reactors
    }

    /// Notes a connection's turn. Every few turns, has eager reactors submit requested I/O at once, so that devices do not idle
    /// while the worker serves the other connections.
    #[inline]
    pub(crate) fn after_connection(&mut self) {
        if !self.any {
            return;
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS) {
            self.reactors.turn_eager();
        }
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// Submits I/O.
    #[inline]
    pub(crate) fn submit(&self) {
        if self.any {
            self.reactors.submit();
        }
    }

    /// Whether I/O that was asked for should wait for more to join it.
    #[inline]
    pub(crate) fn gathers(&self) -> bool {
        self.any && self.reactors.gathers()
    }

    /// Takes completions. I/O is to be submitted before the thread sleeps.
    #[inline]
    pub(crate) fn reap(&self) {
        self.reactors.reap();
    }
}

impl Drop for WorkerReactors {
    fn drop(&mut self) {
        self.reactors.close();
    }
}

/// False if they cannot be watched: then the store uses other means of I/O.
fn watch(reactors: &Reactors, registry: &Registry) -> bool {
    reactors.descriptors().all(|descriptor| {
        registry
            .register(&mut SourceFd(&descriptor), REACTOR, Interest::READABLE)
            .inspect_err(|error| tracing::warn!(%error, "the store's I/O cannot be waited for: it uses threads"))
            .is_ok()
    })
}
