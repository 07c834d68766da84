//! The loss of a connection: what happens to its requests, and when to reconnect.
//!
//! A sent request may have taken effect: it fails, and its outcome is unknown. Retries idempotent reads and unsent requests, once,
//! if the connection was idle before, since a restarted server may have closed it, or one that is gone may not have told that.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moneta_client::wire::Dialect;
use moneta_store::ErrorKind;

use super::link::{Link, Turn};
use super::stage::Stage;
use super::{Entry, Target};
use crate::failure::Failure;

impl Link {
    /// Ends the connection and everything that was due on it.
    pub(super) fn lose(&mut self, failure: Failure, turn: &mut Turn<'_>) {
        let silent = failure.kind == ErrorKind::Timeout;
        tracing::debug!(server = %self.shared.config.address, reason = %failure.reason, "connection lost");
        let was_up = matches!(self.stage, Stage::Up { .. });
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
        self.end_in_flight(&failure, was_up && (!silent || was_dead), turn);
        self.forget_stream();
        self.stage = Stage::Down { retry_at: turn.now, recoveries: self.shared.recoveries() };
        if at_once {
            self.connect(turn);
        } else {
            self.pause(turn);
            self.end_waiting(&failure, turn);
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
    fn end_in_flight(&mut self, failure: &Failure, may_carry: bool, turn: &mut Turn<'_>) {
        let may_carry = may_carry && self.retains;
        if may_carry && let Stage::Up { dialect, .. } = self.stage {
            self.carried.dialect = Some(dialect);
        }
        let not_sent = failure.clone().not_sent();
        for mut entry in std::mem::take(&mut self.in_flight) {
            let unsent = entry.span.start >= self.sent;
            if entry.is_check() {
                continue;
            }
            if may_carry && !entry.retried && (entry.idempotent || unsent) {
                self.carried.bytes.extend_from_slice(&self.out[entry.span.clone()]);
                entry.retried = true;
                self.carried.entries.push_back(entry);
            } else {
                // Places are those of the bytes only while they are kept.
                let was_sent = entry.retried || !unsent || !self.retains;
                self.fail(entry.target, if was_sent { failure } else { &not_sent }, turn);
            }
        }
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
            self.in_flight.extend(carried.entries);
            return;
        }
        let reason = format!("{} came back as another server", self.shared.config.address);
        let failure = Failure::unreachable(reason);
        carried.entries.into_iter().for_each(|entry| self.fail(entry.target, &failure, turn));
    }

    /// Ends what waits for a connection.
    fn end_waiting(&mut self, failure: &Failure, turn: &mut Turn<'_>) {
        let carried = std::mem::take(&mut self.carried);
        carried.entries.into_iter().for_each(|entry| self.fail(entry.target, failure, turn));
        self.waiting_bytes = 0;
        let not_sent = failure.clone().not_sent();
        for queued in std::mem::take(&mut self.waiting) {
            self.fail(queued.target, &not_sent, turn);
        }
    }

    /// Ends what has waited for too long.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        let timeout = self.shared.config.request_timeout;
        let late = |begun: std::time::Instant| turn.now.saturating_duration_since(begun) >= timeout;
        let silent = match &self.stage {
            Stage::Down { .. } => false,
            Stage::Connecting { until } | Stage::Probing { until, .. } => turn.now >= *until,
            Stage::Up { .. } => self.in_flight.front().is_some_and(|entry| late(entry.begun)),
        };
        if silent {
            let reason = format!("no answer from {} within {timeout:?}", self.shared.config.address);
            self.lose(Failure::timeout(reason), turn);
        }
        if self.waiting.is_empty() && self.carried.entries.is_empty() {
            return;
        }
        let reason: Arc<str> = format!("no connection to {} within {timeout:?}", self.shared.config.address).into();
        let failure = Failure::timeout(reason);
        let not_sent = failure.clone().not_sent();
        while self.waiting.front().is_some_and(|queued| late_at(turn, queued.begun, timeout)) {
            let queued = self.waiting.pop_front().expect("it was at the front");
            self.waiting_bytes -= queued.request.size();
            self.fail(queued.target, &not_sent, turn);
        }
        if self.carried.entries.front().is_some_and(|entry| late_at(turn, entry.begun, timeout)) {
            let carried = std::mem::take(&mut self.carried);
            carried.entries.into_iter().for_each(|Entry { target, .. }| self.fail(target, &failure, turn));
        }
    }

    fn fail(&self, target: Target, failure: &Failure, turn: &mut Turn<'_>) {
        turn.replies.fail(target, &self.shared.counters, failure.clone());
    }

    /// The thread that turned it is going: everything ends.
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>) {
        let failure = Failure::unreachable(format!("the connection to {} is closed", self.shared.config.address));
        if matches!(self.stage, Stage::Up { .. }) {
            self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        }
        self.end_in_flight(&failure, false, turn);
        self.end_waiting(&failure, turn);
        self.forget_stream();
        self.stage = Stage::Down { retry_at: turn.now, recoveries: 0 };
    }
}

fn late_at(turn: &Turn<'_>, begun: std::time::Instant, timeout: std::time::Duration) -> bool {
    turn.now.saturating_duration_since(begun) >= timeout
}
