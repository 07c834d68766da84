//! A session: bytes of one connection in, bytes out. It does no I/O, starts no threads and makes no system calls.

use std::sync::Arc;
use std::task::Context;

use moneta_store::Store;

use crate::counters::Counters;
use crate::node::{Node, Peer};

/// Most requests of one connection that wait for the store at once; further ones are not started.
pub const MAX_PARKED: usize = 256;

/// What a session needs of the worker it runs on: one per worker thread.
pub struct Worker<S> {
    /// The store, cheap to clone.
    pub store: S,
    /// What all workers share.
    pub node: Arc<Node>,
    /// This worker's counters.
    pub counters: Arc<Counters>,
}

/// How far [`Session::receive`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Bytes that must follow `consumed` in the buffer, those already there included, before another call can make
    /// progress; 0 when more output room or a finished request is what it takes.
    pub needed: usize,
    /// What becomes of the connection.
    pub after: After,
}

/// What [`Session::poll`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Input that was left lying can be received again: requests finished that stood in its way.
    pub receive_again: bool,
    /// What becomes of the connection.
    pub after: After,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It goes on.
    Continue,
    /// Write what is in the output, then close.
    CloseWhenFlushed,
    /// Close at once.
    CloseNow,
}

/// Why a connection ended, for `watch connevents`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed it, or asked for it.
    Normal,
    /// An error on the socket or in the protocol.
    Error,
    /// Idle for too long.
    IdleTimeout,
    /// The node stops.
    Shutdown,
}

/// One connection's protocol state.
pub struct Session {
    peer: Peer,
}

impl Session {
    /// A session for a connection just accepted.
    pub fn new(peer: Peer) -> Self {
        Self { peer }
    }

    /// Tells watchers that the connection is there. Call once, before the first [`Session::receive`].
    pub fn opened<S: Store>(&self, worker: &Worker<S>) {
        let _ = (worker, self.peer);
    }

    /// Ends the session: tells watchers and lets go of what it holds in the node. Call once, last.
    pub fn closed<S: Store>(&mut self, worker: &Worker<S>, reason: CloseReason) {
        let _ = (worker, reason);
    }

    /// Executes what `input` holds and appends the replies to `output`. Stops early when `output` has grown past
    /// `high_water` bytes or when [`MAX_PARKED`] requests wait; call again with the rest when output has drained, or when
    /// [`Session::poll`] says so.
    pub fn receive<S: Store>(
        &mut self,
        worker: &Worker<S>,
        input: &[u8],
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Received {
        let _ = (worker, output, high_water);
        Received { consumed: input.len(), needed: 1, after: After::CloseNow }
    }

    /// Polls parked requests, dumps and watchers; appends what became ready, in order, to `output`.
    pub fn poll<S: Store>(
        &mut self,
        worker: &Worker<S>,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Polled {
        let _ = (worker, cx, output, high_water);
        Polled { receive_again: false, after: After::Continue }
    }

    /// Whether [`Session::poll`] has anything to do: something is parked, dumped or watched.
    pub fn is_waiting(&self) -> bool {
        false
    }

    /// Whether the idle timeout may close it. Watchers are exempt.
    pub fn may_time_out(&self) -> bool {
        true
    }
}
