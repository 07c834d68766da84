//! The loss of a connection: what happens to its requests, and when to reconnect. [`super::late`] says when it is lost for being
//! silent.
//!
//! A sent request may have taken effect: it fails, and its outcome is unknown. Retries idempotent reads and unsent requests,
//! once, if the connection was idle before, since a restarted server may have closed it, or one that is gone may not have told
//! that.

use std::sync::atomic::Ordering;
use std::time::Duration;

use moneta_client::wire::Dialect;
use moneta_store::ErrorKind;

use super::entry::{Entry, Target};
use super::link::{Link, Turn};
use super::stage::Stage;
use crate::failure::Failure;

impl Link {
    /// Ends the connection and everything that was due on it.
    pub(super) fn lose(&mut self, mut failure: Failure, turn: &mut Turn<'_>) {
        let silent = failure.kind == ErrorKind::Timeout;
        tracing::debug!(server = %self.shared.config.endpoint.address, reason = %failure.reason, "connection lost");
        let was_up = matches!(self.stage, Stage::Up { .. });
        if was_up && failure.kind == ErrorKind::Unreachable {
            failure.kind = ErrorKind::Lost;
        }
        // Nothing came since it was idle, so only this connection is known to be dead.
        let was_dead = silent && was_up && self.in_flight.front().is_some_and(Entry::is_check);
        self.shared.counters.dead_connections.fetch_add(u64::from(was_dead), Ordering::Relaxed);
        let hung_up = !silent && matches!(&self.stage, Stage::Probing { probe, .. } if probe.may_be_binary());
        if !hung_up {
            self.hang_ups = 0;
        }
        let at_once = match self.stage {
            Stage::Up { .. } if was_dead => !self.shared.hangs(),
            Stage::Up { since, .. } => self.judge_service(&failure, turn.now.saturating_duration_since(since)),
            _ => (hung_up && self.note_hang_up()) || self.judge_attempt(&failure),
        };
        if was_up {
            self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.shared.counters.connect_failures.fetch_add(1, Ordering::Relaxed);
        }
        self.end_in_flight(&mut failure, was_up && (!silent || was_dead), turn);
        self.forget_stream();
        self.stage = Stage::Down { retry_at: turn.now, recoveries: self.shared.recoveries() };
        if at_once {
            self.connect(turn);
        } else {
            self.pause(turn);
            self.end_waiting(&mut failure, turn);
        }
    }

    /// What the end of a connection says of the server that was up for `lasted`; true if the next one is made at once.
    fn judge_service(&mut self, failure: &Failure, lasted: Duration) -> bool {
        let silent = failure.kind == ErrorKind::Timeout;
        let was_of_use = self.served || lasted >= self.shared.config.backoff_max;
        if silent || !was_of_use {
            self.shared.note_unanswered(&failure.reason);
        }
        if std::mem::take(&mut self.on_trial) {
            self.passed_over = (self.passed_over + 1) % self.shared.names.places();
        }
        let at_once = (silent || was_of_use) && !self.shared.hangs();
        if at_once {
            self.tries = 0;
        }
        at_once
    }

    /// What it says of the server that no connection came up at an address; true if the next address is tried at once. It
    /// refuses only if it does so at the last one, but silence costs time at each.
    fn judge_attempt(&mut self, failure: &Failure) -> bool {
        self.passed_over += 1;
        let are_left = self.passed_over < self.shared.names.places();
        if failure.kind == ErrorKind::Timeout {
            self.shared.note_silence(&failure.reason);
        } else if !are_left {
            self.shared.note_refusal(&failure.reason);
        }
        if !are_left {
            self.passed_over = 0;
        }
        are_left
    }

    /// Puts the next attempt off.
    fn pause(&mut self, turn: &Turn<'_>) {
        self.tries = self.tries.saturating_add(1);
        let retry_at = turn.now + self.shared.pause(self.tries);
        self.stage = Stage::Down { retry_at, recoveries: self.shared.recoveries() };
    }

    /// Ends what is in flight, but for what may be carried over.
    fn end_in_flight(&mut self, failure: &mut Failure, may_carry: bool, turn: &mut Turn<'_>) {
        let may_carry = may_carry && self.retains;
        if may_carry && let Stage::Up { dialect, .. } = self.stage {
            self.carried.dialect = Some(dialect);
        }
        (self.given_up, self.asked) = (0, 0);
        for mut entry in std::mem::take(&mut self.in_flight) {
            let unsent = entry.span.start >= self.sent;
            if entry.is_check() || entry.is_given_up() {
                continue;
            }
            if may_carry && !entry.retried && (entry.idempotent || unsent) {
                self.carried.bytes.extend_from_slice(&self.out[entry.span.clone()]);
                entry.retried = true;
                self.carried.entries.push_back(entry);
            } else {
                // Places are those of the bytes only while they are kept.
                let was_sent = entry.retried || !unsent || !self.retains;
                failure.unsent = !was_sent;
                self.fail(entry.target, failure, turn);
            }
        }
        self.much = 0;
        failure.unsent = false;
    }

    /// Sends what was carried over, if the server still understands it.
    pub(super) fn send_carried(&mut self, dialect: Dialect, turn: &mut Turn<'_>) {
        let carried = std::mem::take(&mut self.carried);
        if carried.entries.is_empty() {
            return;
        }
        if carried.dialect == Some(dialect) {
            self.shared.counters.retries.fetch_add(carried.entries.len() as u64, Ordering::Relaxed);
            self.out.extend_from_slice(&carried.bytes);
            self.asked += carried.entries.iter().map(|entry| entry.cost as usize).sum::<usize>();
            self.in_flight.extend(carried.entries);
            return;
        }
        let reason = format!("{} came back as another server", self.shared.config.endpoint.address);
        let mut failure = Failure::unreachable(reason);
        carried.entries.into_iter().for_each(|entry| self.fail(entry.target, &mut failure, turn));
    }

    /// Ends what waits for a connection.
    fn end_waiting(&mut self, failure: &mut Failure, turn: &mut Turn<'_>) {
        let carried = std::mem::take(&mut self.carried);
        carried.entries.into_iter().for_each(|entry| self.fail(entry.target, failure, turn));
        self.waiting_bytes = 0;
        failure.unsent = true;
        for queued in std::mem::take(&mut self.waiting) {
            self.fail(queued.target, failure, turn);
        }
    }

    /// Fails a request. What has failed several has one cause: it is told once.
    pub(super) fn fail(&self, target: Target, failure: &mut Failure, turn: &mut Turn<'_>) {
        let is_told = target.is_waited_for();
        if (self.is_large || self.much > 0) && failure.kind == ErrorKind::Timeout {
            self.shared.counters.large_timeouts.fetch_add(1, Ordering::Relaxed);
        }
        turn.replies.fail(target, &self.shared.counters, failure.clone());
        failure.is_repeated |= is_told;
    }

    /// The thread that turned it is going: everything ends.
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>) {
        let mut failure =
            Failure::unreachable(format!("the connection to {} is closed", self.shared.config.endpoint.address));
        if matches!(self.stage, Stage::Up { .. }) {
            self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        }
        self.end_in_flight(&mut failure, false, turn);
        self.end_waiting(&mut failure, turn);
        self.forget_stream();
        self.stage = Stage::Down { retry_at: turn.now, recoveries: 0 };
    }
}
