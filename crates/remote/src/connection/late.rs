//! Requests that take too long, and connections on which nothing moves.
//!
//! A request has the timeout, and more as bytes move: a second for each [`PACE`] of them since it began, so that one behind large
//! values lives as long as these arrive. One that is late fails by itself: its reply is thrown away when it comes, and those
//! behind it go on. The connection is lost where nothing has moved for [`PATIENCE`] timeouts, however many requests wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entry::Target;
use super::link::{Link, Turn};
use super::stage::Stage;
use crate::failure::Failure;

/// Bytes that buy time on a common connection, at most: one on which more comes is left to its writes ([`super::apart`]).
const MOST: u64 = 4 << 20;
/// The same on a connection for large values, where what waits knows what it waits for.
const MOST_LARGE: u64 = 128 << 20;
/// Bytes that have to move in a second for a request to live longer than the timeout. A connection that carries less is as good
/// as none.
const PACE: u64 = 1 << 20;
/// Timeouts in which nothing moves before a connection is lost. In the first one the requests of before it have failed, each by
/// itself: a server that pauses for a little longer than the timeout costs no others.
const PATIENCE: u32 = 2;
/// Requests in flight are looked at for late ones so many times in a timeout at most, for there may be thousands.
const LOOKS: u32 = 16;

/// The time that so many bytes are worth.
fn worth(bytes: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / PACE)
}

impl Link {
    /// When a request is late that began then, when so many bytes had moved.
    pub(super) fn late_at(&self, begun: Instant, moved: u64) -> Instant {
        let most = if self.is_large && !self.is_retired { MOST_LARGE } else { MOST };
        begun + self.shared.config.request_timeout.get() + worth((self.moved - moved).min(most))
    }

    /// When the connection is lost if nothing moves before; `None`: no reply is waited for.
    fn silent_at(&self) -> Option<Instant> {
        let first = self.in_flight.front()?;
        let timeout = self.shared.config.request_timeout.get();
        // What only asks whether the server is there is answered at once.
        let patience = if first.is_check() || self.on_trial { timeout } else { timeout * PATIENCE };
        Some(first.begun.max(self.heard) + patience)
    }

    /// Whether a reply is waited for, or room for a request.
    #[inline]
    pub(super) fn awaits(&self) -> bool {
        !(self.in_flight.is_empty() && self.waiting.is_empty() && self.carried.entries.is_empty())
    }

    /// A request that began then comes to those that are waited for. One that began before it, or the last look at these, makes
    /// the moment no later.
    #[inline]
    pub(super) fn note_begin(&mut self, begun: Instant) {
        if !self.awaits() {
            self.due = begun + self.shared.config.request_timeout.get();
        }
    }

    /// When a request in flight is late, or the connection is lost.
    fn deadline_of_requests(&self) -> Option<Instant> {
        let silent = self.silent_at()?;
        let late = self.in_flight.get(self.given_up).map(|entry| self.late_at(entry.begun, entry.moved));
        Some(late.map_or(silent, |late| silent.min(late.max(self.look_at))))
    }

    /// When the first of those is late that wait for a connection or for room on one.
    fn deadline_of_waiting(&self) -> Option<Instant> {
        let waiting = self.waiting.front().map(|queued| self.late_at(queued.begun, queued.moved));
        let carried = self.carried.entries.front().map(|entry| self.late_at(entry.begun, entry.moved));
        waiting.into_iter().chain(carried).min()
    }

    /// The next deadline of a connection that is not up.
    #[cold]
    pub(super) fn deadline_before_up(&self) -> Option<Instant> {
        let stage = match &self.stage {
            Stage::Down { retry_at, .. } => Some(*retry_at),
            Stage::Connecting { until } | Stage::Probing { until, .. } => Some(*until),
            Stage::Up { .. } => None,
        };
        stage.into_iter().chain(self.deadline_of_waiting()).min()
    }

    /// Ends what has waited for too long, and sees until when nothing else has.
    #[cold]
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        self.end_late(turn);
        // Of those after the first one, some may be late before that.
        let next = turn.now + self.shared.config.request_timeout.get() / LOOKS;
        let known = self.deadline_of_requests().into_iter().chain(self.deadline_of_waiting()).min();
        self.due = known.map_or(next, |at| at.min(next));
    }

    fn end_late(&mut self, turn: &mut Turn<'_>) {
        let timeout = self.shared.config.request_timeout.get();
        let silent = match &self.stage {
            Stage::Down { .. } => false,
            Stage::Connecting { until } | Stage::Probing { until, .. } => turn.now >= *until,
            Stage::Up { .. } => self.silent_at().is_some_and(|at| turn.now >= at),
        };
        if silent {
            let reason = format!("no answer from {} within {timeout:?}", self.shared.config.endpoint.address);
            self.lose(Failure::timeout(reason), turn);
        }
        self.expire_sent(turn);
        if self.waiting.is_empty() && self.carried.entries.is_empty() {
            return;
        }
        let reason: Arc<str> =
            format!("no room on a connection to {} within {timeout:?}", self.shared.config.endpoint.address).into();
        let mut failure = Failure::timeout(reason);
        let now = turn.now;
        while self.waiting.front().is_some_and(|queued| now >= self.late_at(queued.begun, queued.moved)) {
            let queued = self.waiting.pop_front().expect("it was at the front");
            self.waiting_bytes -= queued.request.size();
            failure.unsent = true;
            self.fail(queued.target, &mut failure, turn);
        }
        failure.unsent = false;
        if self.carried.entries.front().is_some_and(|entry| now >= self.late_at(entry.begun, entry.moved)) {
            let carried = std::mem::take(&mut self.carried);
            carried.entries.into_iter().for_each(|entry| self.fail(entry.target, &mut failure, turn));
        }
    }

    /// Ends requests in flight that are late. What began later is late later only where little moved in between, so all that are
    /// old enough are looked at.
    #[inline]
    fn expire_sent(&mut self, turn: &mut Turn<'_>) {
        let timeout = self.shared.config.request_timeout.get();
        let now = turn.now;
        let is_old = |begun: Instant| now.saturating_duration_since(begun) >= timeout;
        if self.in_flight.get(self.given_up).is_some_and(|entry| is_old(entry.begun)) && turn.now >= self.look_at {
            self.give_up_late(turn);
        }
    }

    #[cold]
    fn give_up_late(&mut self, turn: &mut Turn<'_>) {
        let timeout = self.shared.config.request_timeout.get();
        self.look_at = turn.now + timeout / LOOKS;
        let reason = format!("no answer from {} within {timeout:?}", self.shared.config.endpoint.address);
        for index in self.given_up..self.in_flight.len() {
            let entry = &self.in_flight[index];
            if turn.now.saturating_duration_since(entry.begun) < timeout {
                break;
            }
            let is_late = turn.now >= self.late_at(entry.begun, entry.moved);
            if is_late && !entry.is_check() && !entry.is_given_up() {
                let target = std::mem::replace(&mut self.in_flight[index].target, Target::GivenUp);
                self.fail(target, &mut Failure::timeout(reason.as_str()), turn);
            }
        }
        while self.in_flight.get(self.given_up).is_some_and(super::Entry::is_given_up) {
            self.given_up += 1;
        }
    }
}
