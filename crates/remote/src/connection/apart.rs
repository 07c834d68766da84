//! Large values: the connection that has them to itself, and one that turns out to carry much.
//!
//! What is asked on the connection for large values at once is bounded by [`WINDOW`]; the rest waits here, so that what its
//! client gives up meanwhile is never asked for. A common connection on which much comes, as by the first reads of large values,
//! is left to the writes that are on it: a new one takes its place, and its reads are asked anew, those of keys that are known to
//! be large by then on the connection for these.

use std::sync::atomic::Ordering;

use moneta_client::wire::Request;
use moneta_store::StoreError;

use super::entry::{Entry, Target};
use super::link::{Link, Queued, Turn};
use super::stage::Stage;
use crate::large::LARGE;
use crate::shared::ServerShared;

/// Bytes that are asked for at once on a connection for large values; one request always may. Far more than the product of
/// bandwidth and delay within a region.
const WINDOW: usize = 4 << 20;
/// Bytes of large replies after which a connection with requests on it gets a successor.
const MUCH: usize = 2 << 20;

/// A reply of so many bytes comes, or has come, on a connection that has brought `much` before. It is to a read.
#[cold]
pub(super) fn note_length(shared: &ServerShared, is_large: bool, much: &mut usize, hash: u64, length: usize) {
    if length >= LARGE {
        *much += length;
        if shared.config.large_apart {
            shared.config.memory.large.note(hash, length);
        }
    } else if is_large {
        shared.config.memory.large.forget(hash);
    }
}

impl Link {
    /// Whether a request for so many bytes has to wait for others on this connection.
    pub(super) fn has_no_room(&self, cost: u32) -> bool {
        let window = if self.shared.config.memory.is_scarce() { 0 } else { WINDOW };
        self.is_large && !(self.in_flight.is_empty() || self.asked + cost as usize <= window)
    }

    /// Begins a request before those that wait for room.
    ///
    /// # Errors
    /// When it fails at once; the target is told nothing then.
    pub(crate) fn begin_first(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        cost: u32,
        target: Target,
        turn: &mut Turn<'_>,
    ) -> Result<(), StoreError> {
        let waited = self.waiting.len();
        self.begin(request, hash, cost, target, turn)?;
        if self.waiting.len() > waited {
            let last = self.waiting.pop_back().expect("it waits");
            self.waiting.push_front(last);
        }
        Ok(())
    }

    /// Sends what has waited for room, and is still wanted.
    pub(super) fn send_waiting(&mut self, turn: &mut Turn<'_>) {
        let Stage::Up { dialect, .. } = self.stage else { return };
        while self.waiting.front().is_some_and(|queued| !self.has_no_room(queued.cost)) {
            let queued = self.waiting.pop_front().expect("it was at the front");
            self.waiting_bytes -= queued.request.size();
            self.send_queued(queued, dialect, turn);
        }
    }

    /// Sends a request that has waited.
    pub(super) fn send_queued(&mut self, queued: Queued, dialect: moneta_client::wire::Dialect, turn: &mut Turn<'_>) {
        let Queued { request, hash, cost, target, begun, moved } = queued;
        if !turn.replies.is_wanted(&target) {
            let gone = crate::failure::Failure::unreachable("the answer is not waited for");
            return turn.replies.end_unsent(target, gone);
        }
        match self.send_later(&request.as_ref(), hash, cost, target, begun, dialect) {
            // Time that it has waited counts, as do bytes that moved meanwhile.
            Ok(()) => {
                let entry = self.in_flight.back_mut().expect("it was sent");
                (entry.moved, entry.has_waited) = (moved, true);
            }
            Err((target, failure)) => turn.replies.end_unsent(target, failure),
        }
    }

    /// Whether it carries so much that others should not wait for it. Writes to a server without versions take effect in the
    /// order in which they come, so those have to stay together.
    #[inline]
    pub(crate) fn is_clogged(&self) -> bool {
        self.much >= MUCH && self.may_be_left()
    }

    #[cold]
    fn may_be_left(&self) -> bool {
        let Stage::Up { dialect, .. } = self.stage else { return false };
        !self.is_large
            && self.shared.config.large_apart
            && self.in_flight.len() > 1
            && (dialect.versions || self.in_flight.iter().all(|entry| entry.idempotent))
    }

    /// Stops taking requests; the connection ends after its last reply. Returns the targets of its reads, which the caller asks
    /// anew.
    pub(crate) fn retire(&mut self, turn: &mut Turn<'_>) -> Vec<Target> {
        (self.is_large, self.is_retired) = (true, true);
        self.shared.counters.retired_connections.fetch_add(1, Ordering::Relaxed);
        let is_moved = |entry: &&mut Entry| entry.idempotent && turn.replies.is_wanted(&entry.target);
        let reads = self.in_flight.iter_mut().filter(is_moved);
        reads.map(|entry| std::mem::replace(&mut entry.target, Target::GivenUp)).collect()
    }

    /// Whether it has no request any more whose answer is wanted.
    pub(crate) fn is_done(&self, turn: &Turn<'_>) -> bool {
        !self.in_flight.iter().any(|entry| turn.replies.is_wanted(&entry.target)) && self.carried.entries.is_empty()
    }

    /// Bytes that it holds.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.out.len() + self.input.len() + self.waiting_bytes
    }
}
