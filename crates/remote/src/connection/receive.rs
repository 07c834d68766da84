//! Receives the replies of a connection, and hands each to the request that it answers.

use std::time::Duration;

use moneta_client::wire::{self, Decoded};
use moneta_net::Received;
use moneta_store::ErrorKind;

use super::apart::note_length;
use super::link::{KEPT_BYTES, Link, NO_MEMORY, RECEIVE_BYTES, TURN_BYTES, Turn};
use super::stage::Stage;
use crate::counters::Times;
use crate::failure::Failure;
use crate::large::LARGE;

impl Link {
    /// Receives what there is, up to about [`TURN_BYTES`], and hands out the replies in it.
    pub(super) fn receive(&mut self, turn: &mut Turn<'_>) -> Result<(), Failure> {
        let mut received = 0;
        self.unread = false;
        loop {
            let lacking = self.needed.saturating_sub(self.input.len() - self.read);
            self.input.reserve(lacking.max(RECEIVE_BYTES));
            let Some(transport) = &mut self.transport else { return Ok(()) };
            match transport.receive(&mut self.input).map_err(|error| self.broke(&error))? {
                Received::Nothing => return Ok(()),
                Received::End => {
                    let address = &self.shared.config.endpoint.address;
                    return Err(Failure::unreachable(format!("{address} closed the connection")));
                }
                Received::Some { bytes, drained } => {
                    (self.active, self.heard) = (turn.now, turn.now);
                    self.moved += bytes as u64;
                    self.digest(turn)?;
                    self.note_carrying(bytes);
                    if drained {
                        return Ok(());
                    }
                    received += bytes;
                    if received >= TURN_BYTES {
                        self.unread = true;
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Decodes what was received.
    fn digest(&mut self, turn: &mut Turn<'_>) -> Result<(), Failure> {
        if matches!(self.stage, Stage::Probing { .. }) {
            self.look_at_probe(turn)?;
        }
        if matches!(self.stage, Stage::Up { .. }) {
            self.take_replies(turn)?;
        }
        if self.read == self.input.len() {
            self.input.clear();
            if self.input.capacity() > KEPT_BYTES {
                self.input = Vec::new();
            }
        } else if self.read > 0 {
            self.input.drain(..self.read);
        }
        self.read = 0;
        Ok(())
    }

    fn take_replies(&mut self, turn: &mut Turn<'_>) -> Result<(), Failure> {
        let Stage::Up { dialect, .. } = self.stage else { return Ok(()) };
        let (mut any, mut checked) = (false, false);
        // Requests that were sent together have waited equally long: a subtraction of instants for each would cost as much as its reply.
        let mut waited = (turn.now, Duration::ZERO);
        // Where there is no room, large values are thrown away as they come.
        let is_full = self.shared.config.memory.is_full();
        let most = if is_full { self.shared.config.item_max.min(LARGE) } else { self.shared.config.item_max };
        loop {
            if self.skip > 0 {
                let here = self.skip.min(self.input.len() - self.read);
                self.read += here;
                self.skip -= here;
            }
            let rest = &self.input[self.read..];
            if rest.is_empty() || rest.len() < self.needed {
                break;
            }
            let Some(entry) = self.in_flight.front() else {
                return Err(self.misbehaved("what was not asked for"));
            };
            // What no request of ours has gone out for is no reply to it.
            if self.retains && entry.span.start >= self.sent {
                return Err(self.misbehaved("what was not asked for"));
            }
            let decoded = wire::decode(rest, dialect.protocol, &entry.expect, most);
            match decoded.map_err(|broken| self.misbehaved(broken.0))? {
                Decoded::Partial { needed } => {
                    if needed >= LARGE && needed != self.needed {
                        note_length(&self.shared, self.is_large, &mut self.much, entry.hash, needed);
                    }
                    self.needed = needed;
                    break;
                }
                Decoded::Answer { answer, consumed } => {
                    self.read += consumed;
                    let was_known = std::mem::take(&mut self.needed) == consumed;
                    let after = leaves_stream_unsure(dialect.protocol, &entry.expect, &answer);
                    if (self.is_large || consumed >= LARGE)
                        && matches!(answer, wire::Answer::Hit(_) | wire::Answer::Miss)
                        && !(was_known && consumed >= LARGE)
                    {
                        note_length(&self.shared, self.is_large, &mut self.much, entry.hash, consumed);
                    }
                    let entry = self.in_flight.pop_front().expect("it was at the front");
                    self.asked -= entry.cost as usize;
                    if entry.is_check() {
                        checked = true;
                        continue;
                    }
                    any = true;
                    if entry.is_given_up() {
                        self.given_up = self.given_up.saturating_sub(1);
                    } else {
                        // Neither large values nor what has waited behind them, or for its connection, tells how fast the server is.
                        let is_apart = self.is_large || self.much > 0 || entry.has_waited;
                        let kind = match (is_apart, entry.idempotent) {
                            (true, _) => Times::Large,
                            (false, true) => Times::Read,
                            (false, false) => Times::Write,
                        };
                        if entry.begun != waited.0 {
                            waited = (entry.begun, turn.now.saturating_duration_since(entry.begun));
                        }
                        turn.replies.answer(entry.target, kind, waited.1, answer);
                    }
                    if after {
                        return Err(self.misbehaved("an error after which replies cannot be told apart"));
                    }
                }
                Decoded::Oversized { skip } => {
                    self.needed = 0;
                    self.skip = skip;
                    any = true;
                    let entry = self.in_flight.pop_front().expect("it was at the front");
                    self.asked -= entry.cost as usize;
                    if entry.is_given_up() {
                        self.given_up = self.given_up.saturating_sub(1);
                        continue;
                    }
                    let failure = match is_full {
                        true => Failure::new(ErrorKind::OutOfMemory, NO_MEMORY),
                        false => {
                            let (address, max) = (&self.shared.config.endpoint.address, self.shared.config.item_max);
                            let reason = format!("the item on {address} is over the limit of {max} bytes");
                            Failure::new(ErrorKind::Unsupported, reason)
                        }
                    };
                    turn.replies.fail(entry.target, &self.shared.counters, failure);
                }
            }
        }
        if any {
            self.served = true;
            if self.on_trial {
                self.pass_trial();
            } else {
                self.shared.note_reply();
            }
        }
        if self.in_flight.is_empty() {
            self.much = 0;
        }
        if any || checked {
            self.release();
        }
        Ok(())
    }
}

/// Whether a server that gives this answer may take the value that came with the request for further commands.
#[inline]
fn leaves_stream_unsure(protocol: wire::Protocol, request: &wire::Expect, answer: &wire::Answer) -> bool {
    use wire::{Answer, Refusal};
    matches!(answer, Answer::Refused(Refusal::Unknown | Refusal::Client, _))
        && request.brings_value()
        && protocol != wire::Protocol::Binary
}
