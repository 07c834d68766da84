//! How a connection comes up: connect, ask the server what it understands, send what has waited for that.

use std::sync::atomic::Ordering;

use moneta_client::wire::{Dialect, PROBE_KEY, Probe, Probed, Protocol, Request, Verb};
use moneta_net::{Address, Opening, TransportError};

use super::entry::Target;
use super::link::{Link, Turn};
use super::stage::Stage;
use super::watch::{watch, watch_room};
use crate::failure::Failure;

/// Hang-ups in a row, when asked in text, that make it worth asking in binary. One may be chance.
const HANG_UPS_OF_BINARY: u32 = 2;

impl Link {
    /// Begins to connect.
    pub(super) fn connect(&mut self, turn: &mut Turn<'_>) {
        let config = &self.shared.config;
        if let Some(why) = config.endpoint.log_in.held_off(&config.endpoint.address) {
            return self.lose(self.log_in_refused(&why), turn);
        }
        if let Address::Tcp(_) = config.endpoint.address {
            self.address = self.shared.names.address(self.passed_over);
            if self.address.is_none() {
                let reason = format!("the host of {} is not known", config.endpoint.address);
                return self.lose(Failure::unreachable(reason), turn);
            }
        }
        let begun = config.endpoint.begin(self.address).and_then(|(transport, opening)| {
            watch(&transport, turn.queue, opening == Opening::UnderWay)?;
            Ok((transport, opening))
        });
        match begun {
            Ok((transport, opening)) => {
                self.stage = Stage::Connecting { until: turn.now + config.connect_timeout() };
                self.transport = Some(transport);
                if opening == Opening::Done {
                    self.probe(turn);
                }
            }
            Err(error) => self.lose(self.cannot_connect(&error), turn),
        }
    }

    fn log_in_refused(&self, why: &str) -> Failure {
        Failure::unreachable(format!("{} refuses the log-in: {why}", self.shared.config.endpoint.address))
    }

    fn cannot_connect(&self, error: &TransportError) -> Failure {
        if matches!(error, TransportError::Tls(_)) {
            self.shared.counters.handshake_failures.fetch_add(1, Ordering::Relaxed);
        }
        Failure::unreachable(format!("cannot connect to {}: {error}", self.shared.config.endpoint.address))
    }

    /// Sees whether connecting is through.
    pub(super) fn see_connected(&mut self, turn: &mut Turn<'_>) {
        let Some(transport) = &mut self.transport else { return };
        match transport.open() {
            Ok(Opening::UnderWay) => {}
            Ok(Opening::Done) => match watch_room(transport, turn.queue, false) {
                Ok(()) => self.probe(turn),
                Err(error) => self.lose(self.cannot_connect(&error), turn),
            },
            Err(error) => self.lose(self.cannot_connect(&error), turn),
        }
    }

    fn probe(&mut self, turn: &mut Turn<'_>) {
        self.out.clear();
        self.sent = 0;
        let in_binary = self.hang_ups >= HANG_UPS_OF_BINARY;
        let config = &self.shared.config;
        let user = config.endpoint.log_in.credentials();
        let probe = Probe::begin_as(user.as_deref(), config.protocol, in_binary, &mut self.out);
        self.stage = Stage::Probing { until: turn.now + self.shared.config.request_timeout.get(), probe };
        if let Err(failure) = self.flush(turn) {
            self.lose(failure, turn);
        }
    }

    /// Reads what the server has said of itself.
    pub(super) fn look_at_probe(&mut self, turn: &mut Turn<'_>) -> Result<(), Failure> {
        let Stage::Probing { probe, .. } = &mut self.stage else { return Ok(()) };
        match probe.look(&self.input[self.read..]) {
            Ok(Probed::Partial) => Ok(()),
            Ok(Probed::Dialect(dialect, consumed)) => {
                self.read += consumed;
                self.come_up(dialect, turn);
                Ok(())
            }
            Ok(Probed::LogInRefused(why)) => {
                self.shared.counters.refused_log_ins.fetch_add(1, Ordering::Relaxed);
                let endpoint = &self.shared.config.endpoint;
                endpoint.log_in.note_refusal(&endpoint.address, &why);
                Err(self.log_in_refused(&why))
            }
            Ok(Probed::Refused(why)) => {
                Err(Failure::unreachable(format!("{} refuses: {why}", self.shared.config.endpoint.address)))
            }
            Err(broken) => Err(self.misbehaved(broken.0)),
        }
    }

    fn come_up(&mut self, dialect: Dialect, turn: &mut Turn<'_>) {
        tracing::debug!(server = %self.shared.config.endpoint.address, protocol = dialect.protocol.name(), "connected");
        self.shared.counters.reconnects.fetch_add(u64::from(self.was_up), Ordering::Relaxed);
        self.shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let endpoint = &self.shared.config.endpoint;
        endpoint.log_in.note_taken(&endpoint.address);
        self.shared.note_dialect(dialect);
        self.stage = Stage::Up { dialect, since: turn.now };
        self.was_up = true;
        self.heard = turn.now;
        self.served = false;
        self.hang_ups = 0;
        self.out.clear();
        self.sent = 0;
        self.on_trial = false;
        if self.shared.hangs() {
            self.begin_trial(turn, dialect);
        } else {
            self.settle();
        }
        self.send_carried(dialect, turn);
        self.send_waiting(turn);
        // What was carried over began before.
        self.due = turn.now;
    }

    /// Sends a harmless request to a server that leaves requests unanswered, so that no client request has to wait to find out
    /// whether the server is back. Does nothing while a request is in flight, which tests the same.
    pub(super) fn begin_trial(&mut self, turn: &mut Turn<'_>, dialect: Dialect) {
        if !self.in_flight.is_empty() {
            return;
        }
        let request = Request { verb: Verb::Peek { value: false }, key: PROBE_KEY, value: &[] };
        if self.send_later(&request, 0, 0, Target::Unanswered, turn.now, dialect).is_ok() {
            turn.replies.tally.begun();
            self.on_trial = true;
        }
    }

    /// Asks whether the server is still there, on a connection that may be open on this side alone.
    #[cold]
    pub(super) fn begin_check(&mut self, turn: &mut Turn<'_>) {
        let Stage::Up { dialect, .. } = self.stage else { return };
        let request = Request { verb: Verb::Noop, key: &[], value: &[] };
        self.heard = turn.now;
        // Every dialect has it.
        let _ = self.send_later(&request, 0, 0, Target::Check, turn.now, dialect);
    }

    /// The server has answered that.
    pub(super) fn pass_trial(&mut self) {
        self.on_trial = false;
        self.shared.note_passed_trial();
        self.settle();
    }

    /// The address is good: the next connections begin with it.
    fn settle(&mut self) {
        self.passed_over = 0;
        if let Some(address) = self.address {
            self.shared.names.prove(address);
        }
    }

    /// Notes that the server hung up at its first question in text; true if it is asked again at once.
    pub(super) fn note_hang_up(&mut self) -> bool {
        self.hang_ups += 1;
        let asks_again = self.hang_ups < HANG_UPS_OF_BINARY || self.shared.may_want_binary();
        if !asks_again {
            self.hang_ups = 0;
        }
        asks_again
    }

    /// Whether the server was found to understand more than this connection, which came up when it did not show that.
    #[inline]
    pub(super) fn could_do_better(&self) -> bool {
        matches!(self.stage, Stage::Up { dialect, .. } if dialect.protocol != Protocol::Meta)
            && self.shared.knows_meta()
    }

    /// Leaves a connection with nothing in flight for a new one.
    #[cold]
    pub(super) fn start_over(&mut self, turn: &mut Turn<'_>) {
        self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        self.forget_stream();
        self.stage = Stage::Down { retry_at: turn.now, recoveries: self.shared.recoveries() };
        self.connect(turn);
    }
}
