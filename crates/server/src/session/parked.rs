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
//! their requests whatever order the store finishes them in. What is done while nothing waits before it never becomes bytes
//! of a slot: its answer is written to the output at once.
//!
//! What is asked of one key takes effect in order, too: a request does not start while one on its key waits, unless both
//! only read, and nothing starts while a flush waits. A client that sends a set and a get of the same key behind it, without
//! waiting in between, reads what it set.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::{Key, Outcome, Pending, StoreError};

use super::execute::stored_key;
use super::lanes::{Lane, Lanes};
use super::ticket::Ticket;
use super::{MAX_PARKED, Session, Worker, change, read};
use crate::node::Peer;
use moneta_protocol::command::ReadVerb;
use moneta_protocol::encode;
use moneta_protocol::reply::Reply;

/// Largest memory of bytes that left which is kept for others: what stands behind a lone `get` are the five of `END`.
const SPARE_BYTES: usize = 256;
/// Most slots in the memory of a queue that is kept.
const SPARE_SLOTS: usize = 8;

/// Bytes that a request which waits takes beside what it reads or writes: its slot, the futures of the layers, its key.
const REQUEST_BYTES: usize = 1024;

/// What a parked request waits for, and what its answer depends on.
pub(super) enum Waiting {
    Read {
        verb: ReadVerb,
        request: Retrieve,
        future: Pending,
    },
    Debug {
        future: Pending,
    },
    Write {
        request: Write,
        size: usize,
        future: Pending,
    },
    Delete {
        request: Delete,
        future: Pending,
    },
    /// A key that an over-large write leaves without a value; nobody is told.
    Forget {
        future: Pending,
    },
    Arithmetic {
        request: Arithmetic,
        future: Pending,
    },
    Flush {
        future: Pending<()>,
    },
}

impl Waiting {
    /// Whether it ends with an item.
    pub(super) fn reads(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Debug { .. })
    }

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

#[expect(
    clippy::large_enum_variant,
    reason = "a box for each request that waits costs more than the room of what is ready"
)]
enum Slot {
    Ready(Vec<u8>),
    Waiting {
        waiting: Waiting,
        ticket: Ticket,
        /// Bytes it is taken to hold.
        bytes: usize,
        /// What was asked is a whole `get`: `END` follows what is found.
        ends: bool,
        lane: Lane,
    },
}

/// The queue.
#[derive(Default)]
pub(super) struct Parked {
    slots: VecDeque<Slot>,
    waiting: usize,
    /// How many of those that wait change something.
    changes: usize,
    /// Bytes that those that wait hold, or will.
    reserved: usize,
    /// Memory for the next bytes behind something that waits.
    spare: Vec<u8>,
    lanes: Lanes,
}

impl Parked {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether its memory is little enough to be kept while it is empty.
    pub(super) fn is_small(&self) -> bool {
        self.slots.capacity() <= SPARE_SLOTS
    }

    /// Whether the front could leave if there were room.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.slots.front(), Some(Slot::Ready(_)))
    }

    /// Whether nothing more may be started: too much waits, or too much is answered behind it, or both together hold more than
    /// the connection's `share`. The request that goes over its share is the last one.
    pub(super) fn is_full(&self, high_water: usize, share: usize) -> bool {
        if self.waiting >= MAX_PARKED || self.reserved > share {
            return true;
        }
        let ready = self.ready_bytes();
        ready >= high_water || self.reserved + ready > share
    }

    /// Bytes that it holds, those of requests under way included.
    pub(super) fn held(&self) -> usize {
        let bytes = |slot: &Slot| if let Slot::Ready(bytes) = slot { bytes.capacity() } else { 0 };
        self.reserved + self.slots.iter().map(bytes).sum::<usize>()
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
            Slot::Waiting { waiting, ticket, .. } => (changes || waiting.changes()) && ticket.is_of(key),
        })
    }

    /// Drops what nobody needs any more once the client is gone: answers, and requests that change nothing.
    pub(super) fn keep_changes(&mut self) {
        self.slots.retain(|slot| matches!(slot, Slot::Waiting { waiting, .. } if waiting.changes()));
        self.waiting = self.changes;
        let bytes = |slot: &Slot| if let Slot::Waiting { bytes, .. } = slot { *bytes } else { 0 };
        self.reserved = self.slots.iter().map(bytes).sum();
    }

    /// Whether anything waits: a flush must overtake nothing.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    fn ready_bytes(&self) -> usize {
        let bytes = |slot: &Slot| if let Slot::Ready(bytes) = slot { bytes.len() } else { 0 };
        self.slots.iter().map(bytes).sum()
    }

    /// Parks a request; `bytes` are those that it will read or write.
    pub(super) fn park(&mut self, waiting: Waiting, ticket: Ticket, bytes: usize) {
        let bytes = bytes.saturating_add(REQUEST_BYTES);
        self.changes += usize::from(waiting.changes());
        self.waiting += 1;
        self.reserved += bytes;
        let lane = self.lanes.take();
        self.slots.push_back(Slot::Waiting { waiting, ticket, bytes, ends: false, lane });
    }

    /// `END` follows what the last slot waits for. Only for a `get` that was just parked.
    pub(super) fn end_last(&mut self) {
        match self.slots.back_mut() {
            Some(Slot::Waiting { ends, .. }) => *ends = true,
            _ => unreachable!("a request was just parked"),
        }
    }

    /// The buffer behind everything that waits.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        if !matches!(self.slots.back(), Some(Slot::Ready(_))) {
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.clear();
            self.slots.push_back(Slot::Ready(bytes));
        }
        match self.slots.back_mut() {
            Some(Slot::Ready(bytes)) => bytes,
            _ => unreachable!("a ready slot was just pushed"),
        }
    }

    /// Polls what waits and was woken, and moves what is ready at the front to `output` until that has grown past `high_water`.
    /// What is done and next in order is answered right there; what is done behind something else becomes bytes in its place.
    pub(super) fn poll(
        &mut self,
        worker: &Worker,
        peer: &Peer,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        high_water: usize,
    ) {
        self.lanes.belong_to(cx.waker());
        // How many slots, from the front, have nothing more to say.
        let mut through = 0;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let is_next = through == index && output.len() < high_water;
            match slot {
                Slot::Ready(bytes) if is_next => output.extend_from_slice(bytes),
                Slot::Ready(_) => continue,
                Slot::Waiting { waiting, ticket, bytes: reserved, ends, lane } => {
                    if !lane.take_wake() {
                        continue;
                    }
                    let mut bytes = Vec::new();
                    let out = if is_next { &mut *output } else { &mut bytes };
                    if poll_slot(worker, peer, waiting, ticket, &mut lane.context(), out).is_pending() {
                        continue;
                    }
                    if *ends {
                        ticket.with_style(|style| encode::reply(style, &[], Reply::End, 0, out));
                    }
                    self.changes -= usize::from(waiting.changes());
                    self.waiting -= 1;
                    self.reserved -= *reserved;
                    if !is_next && let Slot::Waiting { lane, .. } = std::mem::replace(slot, Slot::Ready(bytes)) {
                        self.lanes.give_back(lane);
                    }
                }
            }
            through += usize::from(is_next);
        }
        for _ in 0..through {
            match self.slots.pop_front() {
                Some(Slot::Ready(bytes)) if bytes.capacity() <= SPARE_BYTES => self.spare = bytes,
                Some(Slot::Waiting { lane, .. }) => self.lanes.give_back(lane),
                _ => {}
            }
        }
    }
}

fn poll_slot(
    worker: &Worker,
    peer: &Peer,
    waiting: &mut Waiting,
    ticket: &Ticket,
    cx: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Poll<()> {
    // Most polls end at once: nothing is made ready for an answer before there is one.
    let key = ticket.key();
    match waiting {
        Waiting::Read { verb, request, future } => {
            let outcome = std::task::ready!(poll_future(future, cx)).map(Outcome::lookup);
            ticket.with_style(|style| {
                read::answer_read(worker, peer, read::Asked { key, request, verb: *verb, style }, outcome, out);
            });
        }
        Waiting::Debug { future } => {
            let outcome = std::task::ready!(poll_future(future, cx)).map(Outcome::lookup);
            ticket.with_style(|style| read::answer_debug_late(worker, key, style, outcome, out));
        }
        Waiting::Write { request, size, future } => {
            let outcome = std::task::ready!(poll_future(future, cx)).map(Outcome::written);
            ticket.with_style(|style| {
                let asked = change::Asked { key, request, style };
                let mut buffer = Session::key_buffer();
                let stored = Key::new(stored_key(key, style, &mut buffer), worker.store.seed());
                let size = change::grown_size(worker, &stored, &asked, *size, &outcome);
                change::answer_write(worker, peer, asked, size, outcome, out);
            });
        }
        Waiting::Delete { request, future } => {
            let outcome = std::task::ready!(poll_future(future, cx)).map(Outcome::deleted);
            ticket.with_style(|style| {
                change::answer_delete(worker, change::Asked { key, request, style }, outcome, out);
            });
        }
        Waiting::Forget { future } => {
            if std::task::ready!(poll_future(future, cx)).is_err() {
                worker.counters.store_errors.bump();
            }
        }
        Waiting::Arithmetic { request, future } => {
            let outcome = std::task::ready!(poll_future(future, cx)).map(Outcome::number);
            ticket.with_style(|style| {
                change::answer_arithmetic(worker, change::Asked { key, request, style }, outcome, out);
            });
        }
        Waiting::Flush { future } => {
            let outcome = std::task::ready!(poll_future(future, cx));
            ticket.with_style(|style| change::answer_flush(worker, style, outcome, out));
        }
    }
    Poll::Ready(())
}

fn poll_future<T>(future: &mut Pending<T>, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>> {
    future.as_mut().poll(cx)
}
