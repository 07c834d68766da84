//! The queue of parked requests: those that wait for the store, in order, with the replies of later requests in between.
//!
//! ```text
//!  front                                                          tail
//!   ┌─────────┐   ┌───────────────┐   ┌─────────┐   ┌───────────────┐
//!   │ waiting │ → │ ready bytes   │ → │ waiting │ → │ ready bytes   │ ← replies of later requests
//!   └─────────┘   └───────────────┘   └─────────┘   └───────────────┘
//! ```
//!
//! A slot changes from waiting to ready once, and leaves only from the front, when it is ready. So replies keep the order of
//! their requests, in whichever order the store finishes them. The reply at the front is written directly to the output, not to a
//! slot.
//!
//! Requests on one key also take effect in order: a request does not start while another on its key waits, unless both only read,
//! and nothing starts while a flush waits. A client that pipelines a set and a get of the same key reads the new value.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Instant;

use moneta_store::{Key, Outcome, Pending, StoreError};

use super::key::stored_key;
use super::lanes::{Lane, Lanes};
use super::several::Failure;
use super::ticket::Ticket;
use super::waiting::Waiting;
use super::{MAX_PARKED, Session, Worker, change, read, sample};
use crate::latency::Kind;
use crate::node::Peer;
use moneta_protocol::command::{Style, TextStyle};

/// Largest reply buffer that is kept for reuse: behind a single `get` it holds only the five bytes of `END`.
const SPARE_BYTES: usize = 256;
/// Most slots in a queue whose memory is kept.
const SPARE_SLOTS: usize = 16;

/// Bytes that a waiting request takes besides its value: its slot, the futures of the layers, its key.
pub(super) const REQUEST_BYTES: usize = 1024;

#[expect(
    clippy::large_enum_variant,
    reason = "a box for each request that waits costs more than the room of what is ready"
)]
enum Slot {
    Ready(Vec<u8>),
    /// The end of the `get` of several keys with this number, of whose keys some had to wait.
    EndOfGet(u32),
    Waiting {
        waiting: Waiting,
        ticket: Ticket,
        /// Bytes it is assumed to hold.
        bytes: usize,
        /// It is a whole `get`: `END` follows the value.
        ends: bool,
        /// The `get` of several keys that it belongs to, if it does to one.
        get: u32,
        lane: Lane,
        /// Since when it waits: the lower half of Unix milliseconds.
        since: u32,
        /// The kind and the begin of its command, if that is timed.
        timed: Option<(Kind, Instant)>,
    },
}

impl Slot {
    /// Bytes of replies of reads that wait for those behind them, as far as they are more than was assumed.
    fn held_back(&self) -> usize {
        match self {
            Self::Waiting { waiting: Waiting::Several(several), bytes, .. } => {
                several.written.capacity().saturating_sub(*bytes)
            }
            _ => 0,
        }
    }
}

/// The queue.
#[derive(Default)]
pub(super) struct Parked {
    slots: VecDeque<Slot>,
    waiting: usize,
    /// How many of them read several keys.
    several: usize,
    /// How many waiting requests change something.
    changes: usize,
    /// Bytes that waiting requests hold or will hold.
    reserved: usize,
    /// A spare buffer for replies behind a waiting request.
    spare: Vec<u8>,
    lanes: Lanes,
    /// The number of the `get` that comes next, or is not over, of those that count: of several keys, or failed at once.
    get: u32,
    /// Those that failed and have not ended, with why.
    failed: Vec<(u32, Failure)>,
    /// A request was parked since [`Parked::forget_parking`].
    has_parked: bool,
    /// The next [`Parked::poll`] gives out what is held back.
    releases: bool,
}

impl Parked {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether a `get` that is not over has failed.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Whether its memory is small enough to keep while it is empty.
    pub(super) fn is_small(&self) -> bool {
        self.slots.capacity() <= SPARE_SLOTS
    }

    /// Whether replies to the first of several pipelined requests wait for those to the others: one that sends them all together
    /// costs less. The caller sees to it that they do not wait for long.
    #[inline]
    pub(super) fn holds_back(&self) -> bool {
        matches!(self.slots.front(), Some(Slot::Waiting { waiting: Waiting::Several(several), .. }) if several.holds_back())
    }

    /// Has the next poll give out what is held back.
    pub(super) fn release(&mut self) {
        self.releases = true;
    }

    /// Whether the front is ready and lacks only output room.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.slots.front(), Some(Slot::Ready(_) | Slot::EndOfGet(_)))
    }

    /// Whether no more requests may be started: too many wait, too many reply bytes are queued, or both together exceed the
    /// connection's `share`. The request that exceeds the share is the last one started.
    #[inline]
    pub(super) fn is_full(&self, high_water: usize, share: usize) -> bool {
        if self.waiting >= MAX_PARKED || self.reserved > share {
            return true;
        }
        let ready = self.ready_bytes();
        ready >= high_water || self.reserved + ready > share
    }

    /// Whether all slots wait, each for one key: none has bytes besides those that are reserved. So it is for most connections.
    #[inline]
    fn is_only_reserved(&self) -> bool {
        self.several == 0 && self.slots.len() == self.waiting
    }

    /// Bytes it holds, including those of waiting requests.
    #[inline]
    pub(super) fn held(&self) -> usize {
        if self.is_only_reserved() { self.reserved } else { self.held_in_slots() }
    }

    fn held_in_slots(&self) -> usize {
        let bytes = |slot: &Slot| if let Slot::Ready(bytes) = slot { bytes.capacity() } else { slot.held_back() };
        self.reserved + self.slots.iter().map(bytes).sum::<usize>()
    }

    /// Whether a request on `key` must not overtake a waiting one; `changes`: whether the new request changes the item.
    pub(super) fn stands_before(&self, key: &[u8], changes: bool) -> bool {
        // Most waiting and most new requests only read.
        if self.changes == 0 && !(changes && self.waiting > 0) {
            return false;
        }
        self.slots.iter().any(|slot| match slot {
            Slot::Ready(_) | Slot::EndOfGet(_) => false,
            Slot::Waiting { waiting: Waiting::Flush { .. }, .. } => true,
            Slot::Waiting { waiting: Waiting::Several(several), .. } => changes && several.has(key),
            Slot::Waiting { waiting, ticket, .. } => (changes || waiting.changes()) && ticket.is_of(key),
        })
    }

    /// Drops replies and requests that change nothing, after the client has gone.
    pub(super) fn keep_changes(&mut self) {
        self.slots.retain(|slot| matches!(slot, Slot::Waiting { waiting, .. } if waiting.changes()));
        (self.waiting, self.several) = (self.changes, 0);
        self.failed.clear();
        let bytes = |slot: &Slot| if let Slot::Waiting { bytes, .. } = slot { *bytes } else { 0 };
        self.reserved = self.slots.iter().map(bytes).sum();
    }

    /// Whether any request waits: a flush must not overtake one.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    #[inline]
    fn ready_bytes(&self) -> usize {
        if self.is_only_reserved() { 0 } else { self.ready_in_slots() }
    }

    fn ready_in_slots(&self) -> usize {
        let bytes = |slot: &Slot| if let Slot::Ready(bytes) = slot { bytes.len() } else { slot.held_back() };
        self.slots.iter().map(bytes).sum()
    }

    /// Parks a request that will read or write `bytes`, at `now`, in Unix milliseconds.
    pub(super) fn park(&mut self, waiting: Waiting, ticket: Ticket, bytes: usize, now: u64) {
        let bytes = bytes.saturating_add(REQUEST_BYTES);
        self.changes += usize::from(waiting.changes());
        self.waiting += 1;
        self.several += usize::from(matches!(waiting, Waiting::Several(_)));
        self.reserved += bytes;
        let lane = self.lanes.take();
        // A request may have been offered room for a reply that it has not got yet.
        if let Some(Slot::Ready(bytes)) = self.slots.back_mut()
            && bytes.is_empty()
        {
            self.spare = std::mem::take(bytes);
            self.slots.pop_back();
        }
        let (since, get) = (now as u32, self.get);
        self.slots.push_back(Slot::Waiting { waiting, ticket, bytes, ends: false, get, lane, since, timed: None });
        self.has_parked = true;
    }

    /// A command that is timed begins.
    pub(super) fn forget_parking(&mut self) {
        self.has_parked = false;
    }

    /// Times the last request of a command of `kind` that began at `started`. False if it has parked none.
    pub(super) fn time_last(&mut self, kind: Kind, started: Instant) -> bool {
        let last = self.slots.iter_mut().rev().find_map(|slot| match slot {
            Slot::Waiting { timed, .. } => Some(timed),
            Slot::Ready(_) | Slot::EndOfGet(_) => None,
        });
        last.filter(|_| self.has_parked).is_some_and(|timed| timed.replace((kind, started)).is_none())
    }

    /// Appends `END` to the reply of the last slot. Only for a `get` that was just parked.
    pub(super) fn end_last(&mut self) {
        match self.slots.back_mut() {
            Some(Slot::Waiting { ends, .. }) => *ends = true,
            _ => unreachable!("a request was just parked"),
        }
    }

    /// The `get` that is under way has failed.
    #[cold]
    pub(super) fn fail_get(&mut self, why: Failure) {
        let get = self.get;
        self.failed.push((get, why));
    }

    /// Ends the `get` that is under way: behind all that waits, or in `output`.
    pub(super) fn end_get(&mut self, output: &mut Vec<u8>) {
        let get = self.get;
        self.get = get.wrapping_add(1);
        if self.slots.is_empty() {
            end_get(&mut self.failed, get, output);
        } else {
            self.slots.push_back(Slot::EndOfGet(get));
        }
    }

    /// The buffer behind all waiting requests.
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

    /// Polls woken requests, and moves ready replies at the front to `output` until that has grown past `high_water`. A finished
    /// request at the front writes its reply to `output`; one behind a waiting request leaves its reply in its slot.
    pub(super) fn poll(
        &mut self,
        worker: &Worker,
        peer: &Peer,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        high_water: usize,
    ) {
        self.lanes.belong_to(cx.waker());
        let releases = std::mem::take(&mut self.releases);
        // Slots at the front that are done.
        let mut through = 0;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let is_next = through == index && output.len() < high_water;
            match slot {
                Slot::Ready(bytes) if is_next => output.extend_from_slice(bytes),
                Slot::EndOfGet(get) if is_next => end_get(&mut self.failed, *get, output),
                Slot::Ready(_) | Slot::EndOfGet(_) => continue,
                Slot::Waiting { waiting, ticket, bytes: reserved, ends, get, lane, since, timed } => {
                    let mut bytes = Vec::new();
                    let out = if is_next { &mut *output } else { &mut bytes };
                    if releases
                        && is_next
                        && let Waiting::Several(several) = waiting
                    {
                        several.release(out);
                    }
                    if !lane.take_wake() {
                        continue;
                    }
                    let before = out.len();
                    let polled = poll_slot(worker, peer, waiting, ticket, &mut lane.context(), out);
                    let Poll::Ready(failure) = polled else { continue };
                    if *ends {
                        ticket.with_style(|style| read::end_get(style, failure.as_ref(), out));
                    } else if let Some(why) = failure {
                        self.failed.push((*get, why));
                    }
                    if let Some((kind, started)) = *timed {
                        worker.latencies().record(kind, started);
                        sample::moved_late(worker, waiting, ticket, out.len() - before);
                    }
                    let waited = (worker.node.clock.millis() as u32).wrapping_sub(*since) as i32;
                    if worker.node.slow_log.is_long(waited) {
                        sample::waited(worker, peer, waiting, ticket, waited, !is_next);
                    }
                    self.changes -= usize::from(waiting.changes());
                    self.waiting -= 1;
                    self.several -= usize::from(matches!(waiting, Waiting::Several(_)));
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

impl Session {
    /// What was parked before is not of the command that is timed next.
    #[cold]
    pub(super) fn forget_parking(&mut self) {
        if let Some(extras) = &mut self.extras {
            extras.parked.forget_parking();
        }
    }
}

/// Ends a `get`: with why it failed, if it did.
fn end_get(failed: &mut Vec<(u32, Failure)>, get: u32, out: &mut Vec<u8>) {
    let failure = failed.iter().position(|(of, _)| *of == get).map(|place| failed.swap_remove(place).1);
    if failure.is_some() {
        failed.retain(|(of, _)| *of != get);
    }
    read::end_get(&Style::Text(TextStyle::default()), failure.as_ref(), out);
}

/// Polls a request. What it ends with is to be told in place of the `END` of its `get`.
fn poll_slot(
    worker: &Worker,
    peer: &Peer,
    waiting: &mut Waiting,
    ticket: &Ticket,
    cx: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Poll<Option<Failure>> {
    // Most polls are still pending, so prepare nothing for a reply before there is an outcome.
    let key = ticket.key();
    match waiting {
        Waiting::Read { verb, request, hash, future } => {
            let outcome = std::task::ready!(poll_future(future, cx)).map(Outcome::lookup);
            return Poll::Ready(ticket.with_style(|style| {
                let asked = read::Asked { key, request, verb: *verb, style };
                read::answer_read(worker, peer, asked, *hash, outcome, out)
            }));
        }
        Waiting::Several(several) => {
            std::task::ready!(ticket.with_style(|style| read::answer_several(worker, peer, several, style, cx, out)));
            return Poll::Ready(several.failure.take());
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
    Poll::Ready(None)
}

fn poll_future<T>(future: &mut Pending<T>, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>> {
    future.as_mut().poll(cx)
}
