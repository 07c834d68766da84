//! The store's reactors on a worker's thread, as part of the worker's event loop.
//!
//! The loop turns them before it sleeps, to begin what requests asked for, and after, to end what is done: then looks into
//! its mailbox, where the wakes of a turn are. Their descriptors are watched for changes: a turn leaves nothing that was done
//! when it began, and what is done later is a change.

use std::rc::Rc;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use moneta_store::{Reactors, Store, component};

/// Token of the reactors' descriptors; connections count from 0.
pub(crate) const REACTOR: Token = Token(usize::MAX - 1);

/// Turns of connections between two of the reactors. Fewer keep devices busier, and each costs a system call; measured with 64
/// connections reading from an SSD, 4 and 8 gave about a third more reads a second than none.
const TURNS: u32 = 4;

/// The reactors of one worker.
pub(crate) struct WorkerReactors {
    reactors: Rc<Reactors>,
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
        Self { reactors: Rc::new(reactors), turns: 0 }
    }

    /// What operations find their reactors by.
    pub(crate) fn reactors(&self) -> &Rc<Reactors> {
        &self.reactors
    }

    /// A connection had its turn. Now and then what connections asked for is begun at once, so that devices do not idle while
    /// the worker goes through the others.
    #[inline]
    pub(crate) fn after_connection(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS) {
            self.reactors.turn();
        }
    }

    /// Begins and ends I/O; true if waiting requests may have been woken by that.
    #[inline]
    pub(crate) fn turn(&self) -> bool {
        self.reactors.turn();
        !self.reactors.is_empty()
    }
}

impl Drop for WorkerReactors {
    fn drop(&mut self) {
        self.reactors.close();
    }
}

/// False if that cannot be: then the store does its I/O by other means.
fn watch(reactors: &Reactors, registry: &Registry) -> bool {
    reactors.descriptors().all(|descriptor| {
        registry
            .register(&mut SourceFd(&descriptor), REACTOR, Interest::READABLE)
            .inspect_err(|error| tracing::warn!(%error, "the store's I/O cannot be waited for: it uses threads"))
            .is_ok()
    })
}
