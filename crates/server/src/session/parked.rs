//! Requests that wait for the store, in the order they came, each with the bytes of those answered behind it.
//!
//! ```text
//!  front                                                          tail
//!   ┌─────────┐   ┌───────────────┐   ┌─────────┐   ┌───────────────┐
//!   │ waiting │ → │ ready bytes   │ → │ waiting │ → │ ready bytes   │ ← replies of later requests
//!   └─────────┘   └───────────────┘   └─────────┘   └───────────────┘
//! ```
//!
//! A slot goes from waiting to ready once, and leaves from the front only, when it is ready. So replies keep the order of
//! their requests whatever order the store finishes them in.
//!
//! What is asked of one key takes effect in order, too: a request does not start while one on its key waits, unless both
//! only read, and nothing starts while a flush waits. A client that sends a set and a get of the same key behind it, without
//! waiting in between, reads what it set.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::{Deleted, Key, Lookup, Number, Pending, Store, StoreError, Written};

use super::execute::stored_key;
use super::ticket::Ticket;
use super::{MAX_PARKED, Session, Worker, change, read};
use crate::node::Peer;
use moneta_protocol::command::ReadVerb;

/// What a parked request waits for, and what its answer depends on.
pub(super) enum Waiting {
    Read {
        verb: ReadVerb,
        request: Retrieve,
        future: Pending<Lookup>,
    },
    Debug {
        future: Pending<Lookup>,
    },
    Write {
        request: Write,
        size: usize,
        future: Pending<Written>,
    },
    Delete {
        request: Delete,
        future: Pending<Deleted>,
    },
    /// A key that an over-large write leaves without a value; nobody is told.
    Forget {
        future: Pending<Deleted>,
    },
    Arithmetic {
        request: Arithmetic,
        future: Pending<Number>,
    },
    Flush {
        future: Pending<()>,
    },
}

impl Waiting {
    /// Whether later requests on the key would see that this one is done.
    fn changes(&self) -> bool {
        match self {
            Self::Read { request, .. } => read::changes(request),
            Self::Debug { .. } => false,
            Self::Write { .. }
            | Self::Delete { .. }
            | Self::Forget { .. }
            | Self::Arithmetic { .. }
            | Self::Flush { .. } => true,
        }
    }
}

enum Slot {
    Ready(Vec<u8>),
    Waiting { waiting: Waiting, ticket: Ticket },
}

/// The queue.
#[derive(Default)]
pub(super) struct Parked {
    slots: VecDeque<Slot>,
    waiting: usize,
    /// How many of those that wait change something.
    changes: usize,
}

impl Parked {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether the front could leave if there were room.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.slots.front(), Some(Slot::Ready(_)))
    }

    /// Whether nothing more may be started: too much waits, or too much is answered behind it.
    pub(super) fn is_full(&self, high_water: usize) -> bool {
        self.waiting >= MAX_PARKED || self.ready_bytes() >= high_water
    }

    /// Whether something waits that a request on `key` must not overtake; `changes` says whether that request changes it.
    pub(super) fn stands_before(&self, key: &[u8], changes: bool) -> bool {
        // Most of what waits only reads, and so does most of what comes.
        if self.changes == 0 && !(changes && self.waiting > 0) {
            return false;
        }
        self.slots.iter().any(|slot| match slot {
            Slot::Ready(_) => false,
            Slot::Waiting { waiting: Waiting::Flush { .. }, .. } => true,
            Slot::Waiting { waiting, ticket } => (changes || waiting.changes()) && ticket.is_of(key),
        })
    }

    /// Whether anything waits: a flush must overtake nothing.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    fn ready_bytes(&self) -> usize {
        let bytes = |slot: &Slot| if let Slot::Ready(bytes) = slot { bytes.len() } else { 0 };
        self.slots.iter().map(bytes).sum()
    }

    pub(super) fn park(&mut self, waiting: Waiting, ticket: Ticket) {
        self.changes += usize::from(waiting.changes());
        self.waiting += 1;
        self.slots.push_back(Slot::Waiting { waiting, ticket });
    }

    /// The buffer behind everything that waits.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        if !matches!(self.slots.back(), Some(Slot::Ready(_))) {
            self.slots.push_back(Slot::Ready(Vec::new()));
        }
        match self.slots.back_mut() {
            Some(Slot::Ready(bytes)) => bytes,
            _ => unreachable!("a ready slot was just pushed"),
        }
    }

    /// Polls everything that waits; what is done becomes bytes in its place.
    pub(super) fn poll<S: Store>(&mut self, worker: &Worker<S>, peer: &Peer, cx: &mut Context<'_>) {
        for slot in &mut self.slots {
            if let Slot::Waiting { waiting, ticket } = slot
                && let Poll::Ready(bytes) = poll_slot(worker, peer, waiting, ticket, cx)
            {
                self.changes -= usize::from(waiting.changes());
                self.waiting -= 1;
                *slot = Slot::Ready(bytes);
            }
        }
    }

    /// Moves what is ready at the front to `output`, until it has grown past `high_water`.
    pub(super) fn drain(&mut self, output: &mut Vec<u8>, high_water: usize) {
        while output.len() < high_water
            && let Some(Slot::Ready(bytes)) = self.slots.front()
        {
            output.extend_from_slice(bytes);
            self.slots.pop_front();
        }
    }
}

fn poll_slot<S: Store>(
    worker: &Worker<S>,
    peer: &Peer,
    waiting: &mut Waiting,
    ticket: &Ticket,
    cx: &mut Context<'_>,
) -> Poll<Vec<u8>> {
    let (key, style) = (ticket.key(), ticket.style());
    let mut out = Vec::new();
    match waiting {
        Waiting::Read { verb, request, future } => {
            let outcome = std::task::ready!(poll_future(future, cx));
            read::answer_late(
                worker,
                peer,
                read::Asked { key, request, verb: *verb, style: &style },
                outcome,
                &mut out,
            );
        }
        Waiting::Debug { future } => {
            let outcome = std::task::ready!(poll_future(future, cx));
            read::answer_debug_late(worker, key, &style, outcome, &mut out);
        }
        Waiting::Write { request, size, future } => {
            let outcome = std::task::ready!(poll_future(future, cx));
            let asked = change::Asked { key, request, style: &style };
            let mut buffer = Session::key_buffer();
            let stored = Key::new(stored_key(key, &style, &mut buffer), worker.store.seed());
            let size = change::grown_size(worker, &stored, &asked, *size, &outcome);
            change::answer_write(worker, peer, asked, size, outcome, &mut out);
        }
        Waiting::Delete { request, future } => {
            let outcome = std::task::ready!(poll_future(future, cx));
            change::answer_delete(worker, change::Asked { key, request, style: &style }, outcome, &mut out);
        }
        Waiting::Forget { future } => {
            if std::task::ready!(poll_future(future, cx)).is_err() {
                worker.counters.store_errors.bump();
            }
        }
        Waiting::Arithmetic { request, future } => {
            let outcome = std::task::ready!(poll_future(future, cx));
            change::answer_arithmetic(worker, change::Asked { key, request, style: &style }, outcome, &mut out);
        }
        Waiting::Flush { future } => {
            let outcome = std::task::ready!(poll_future(future, cx));
            change::answer_flush(worker, &style, outcome, &mut out);
        }
    }
    Poll::Ready(out)
}

fn poll_future<T>(future: &mut Pending<T>, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>> {
    future.as_mut().poll(cx)
}
