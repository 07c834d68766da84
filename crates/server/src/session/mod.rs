//! A session: turns the input bytes of a connection into output bytes. It does no I/O, starts no threads and makes no system
//! calls.
//!
//! Replies are written directly into the connection's output buffer. A request is parked only if the store has to wait: it keeps
//! its place in a queue, and replies to later requests queue after it. Later requests start meanwhile, except those that would
//! overtake it on the same key. The queue takes no memory while every request is answered at once.

mod admin;
mod board;
mod change;
pub(crate) mod context;
mod curve;
mod early;
mod execute;
mod extras;
mod guard;
mod key;
mod lanes;
pub(crate) mod limited;
pub(crate) mod login;
mod lookahead;
mod needs;
mod newer;
mod parked;
mod progress;
mod read;
mod rights;
mod sample;
mod several;
mod ticket;
mod together;
mod tuning;
mod underway;
mod waiting;
mod words;

use moneta_protocol::decoder::{Decoded, Decoder, Protocol};
use moneta_protocol::encode;
use moneta_protocol::refusal::Refusal;

use crate::auth::AuthMode;
use crate::latency::Stopwatch;
use crate::node::{Door, Peer, Policy};
pub use crate::peer::CloseReason;
use crate::watch;
pub use context::Worker;
use extras::SessionExtras;
use limited::SessionLimits;
use login::Login;
pub use progress::{After, Polled, Received};
use progress::{Flow, Stage};

/// Most requests of one connection that wait for the store at once; further ones are not started.
pub const MAX_PARKED: usize = 256;

/// One connection's protocol state.
pub struct Session {
    decoder: Decoder,
    extras: Option<Box<SessionExtras>>,
    peer: Peer,
    stage: Stage,
    /// Whether the store reads several keys together: asked once for a connection, not with each request.
    reads_together: bool,
    /// Present if clients have to log in.
    login: Option<Box<Login>>,
    /// Present if the connection, or an app that it may use, may do only so much in a second.
    limits: Option<Box<SessionLimits>>,
}

impl Session {
    /// A session for a new connection.
    pub fn new(peer: Peer) -> Self {
        Self {
            decoder: Decoder::new(Protocol::Any, 0),
            extras: None,
            peer,
            stage: Stage::New,
            reads_together: false,
            login: None,
            limits: None,
        }
    }

    /// Reports the connection to watchers, and learns what the store does. Call once, before the first [`Session::receive`].
    pub fn opened(&mut self, worker: &Worker) {
        self.reads_together = worker.store.together().is_some();
        if self.is_guarded() {
            self.begin_guarded(worker);
        } else if worker.node.authenticator.mode() != AuthMode::Off {
            self.login(worker);
        }
        if worker.node.watchers.wants(watch::CONNEVENTS) {
            worker.node.watchers.connection_opened(&self.peer);
        }
    }

    /// The client is gone: nothing more is started or answered. True if changes are in progress, which have to finish in order,
    /// under the locks they hold: then call [`Session::poll`] until [`Session::is_changing`] is false.
    pub fn give_up(&mut self) -> bool {
        self.stage = Stage::Closing;
        if let Some(extras) = &mut self.extras {
            (extras.dump, extras.changes, extras.listing, extras.log_in) = (None, None, None, None);
            extras.parked.keep_changes();
        }
        self.is_changing()
    }

    /// After [`Session::give_up`]: whether changes are still in progress.
    pub fn is_changing(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| !extras.parked.is_empty() || extras.forgotten.is_some())
    }

    /// Ends the session: reports to watchers and releases its resources in the node. Call once, last.
    pub fn closed(&mut self, worker: &Worker, reason: CloseReason) {
        self.stage = Stage::Closing;
        if let Some(extras) = self.extras.take()
            && let Some(watcher) = extras.watcher
        {
            watcher.leave(&worker.node.watchers);
            worker.observe();
        }
        if worker.node.watchers.wants(watch::CONNEVENTS) {
            worker.node.watchers.connection_closed(&self.peer, reason);
        }
    }

    /// Executes the requests in `input` and appends the replies to `output`. Stops early when `output` has grown past
    /// `high_water` bytes, when [`MAX_PARKED`] requests wait, or when the next request must not overtake a parked one; call again
    /// with the rest when output has drained, or when [`Session::poll`] says so. Also stops after `requests_per_event` requests,
    /// however many keys each reads; call again when other connections have had their turn.
    pub fn receive(&mut self, worker: &Worker, input: &[u8], output: &mut Vec<u8>, high_water: usize) -> Received {
        if self.stage != Stage::Open
            && let Some(received) = self.before_commands(worker, input, output, high_water)
        {
            return received;
        }
        if self.limits.is_some() || self.comes_under_limits(worker) {
            if !self.renew(worker) {
                return self.close(input.len(), After::CloseNow);
            }
            self.execute_all::<true>(worker, input, output, high_water)
        } else {
            self.execute_all::<false>(worker, input, output, high_water)
        }
    }

    /// The rest of [`Session::receive`]. `LIMITED`: the connection is under limits, or its client has to be a user. Compiled for each,
    /// so that others pay nothing.
    #[inline]
    fn execute_all<const LIMITED: bool>(
        &mut self,
        worker: &Worker,
        input: &[u8],
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Received {
        let mut consumed = 0;
        // The first request is often the only one; requests after it are pipelined.
        let mut looked_ahead = usize::from(!(self.reads_together && !LIMITED && begins_pipelined(input)));
        let mut stopwatch = Stopwatch::new(worker.latencies());
        let mut requests_left = worker.node.settings.requests_per_event;
        loop {
            if output.len() >= high_water || self.is_held_up(worker, high_water) {
                let (heard, needed) = self.hear_reader(&input[consumed..]);
                return Received { consumed: consumed + heard, needed, after: After::Continue };
            }
            if consumed == input.len() {
                return Received { consumed, needed: 1, after: After::Continue };
            }
            if requests_left == 0 {
                return Received { consumed, needed: 0, after: After::Continue };
            }
            requests_left -= 1;
            if consumed >= looked_ahead {
                if self.reads_together
                    && !LIMITED
                    && let Some((count, taken)) = self.read_pipelined(worker, &input[consumed..], requests_left + 1)
                {
                    for place in 0..count {
                        stopwatch.begin(output.len());
                        if let Some(started) = stopwatch.end() {
                            self.sampled_pipelined(worker, started, &input[consumed..], place, output);
                        }
                    }
                    requests_left -= count - 1;
                    consumed += taken;
                    looked_ahead = consumed;
                    continue;
                }
                looked_ahead = consumed + lookahead::announce(&*worker.store, &input[consumed..]).max(1);
            }
            if stopwatch.begin(output.len()) {
                self.forget_parking();
            }
            if !LIMITED && let Some(shortcut) = self.decoder.shortcut(&input[consumed..]) {
                if self.extras.is_some() && self.is_early_shortcut(&shortcut) {
                    return Received { consumed, needed: 0, after: After::Continue };
                }
                consumed += self.execute_shortcut(worker, shortcut, output, &mut stopwatch);
                continue;
            }
            match self.decoder.decode(&input[consumed..]) {
                Decoded::Command { command, consumed: taken } => {
                    if self.extras.is_some() && self.is_early(&command) {
                        return Received { consumed, needed: 0, after: After::Continue };
                    }
                    let end = consumed + taken;
                    let kind = execute::kind_of(&command);
                    let refused = if LIMITED { self.refuse_limited(worker, &command, taken, output) } else { None };
                    let flow = match refused {
                        Some(flow) => flow,
                        None => self.execute(worker, &command, &input[..end], output, high_water),
                    };
                    if LIMITED {
                        self.note_get(&command, &flow);
                    }
                    if let Some(started) = stopwatch.end() {
                        self.sampled_command(worker, kind, started, &command, &input[consumed..end], &flow, output);
                    }
                    consumed = end;
                    match flow {
                        Flow::Next => {}
                        Flow::Paused { rest } => consumed -= rest,
                        Flow::Held { rest } => {
                            return Received { consumed: consumed - rest, needed: 0, after: After::Continue };
                        }
                        Flow::Deaf => {
                            return Received { consumed: input.len(), needed: 1, after: After::Continue };
                        }
                        Flow::Close(after) => return self.close(consumed, after),
                        Flow::Barred => return Received { consumed, needed: 0, after: After::Continue },
                    }
                }
                Decoded::Partial { needed } => match self.refuse_for_memory(worker, needed, &input[consumed..], output)
                {
                    Some(taken) => consumed += taken,
                    None => return Received { consumed, needed, after: After::Continue },
                },
                Decoded::Refused { refusal, consumed: taken } => {
                    consumed += taken;
                    self.refuse(worker, &refusal, output);
                    if refusal.close {
                        return self.close(consumed, After::CloseWhenFlushed);
                    }
                }
                Decoded::Swallowed { consumed: taken } => consumed += taken,
                Decoded::Close => return self.close(consumed, After::CloseNow),
            }
        }
    }

    /// How its requests treat the tiers.
    #[inline]
    pub fn policy(&self) -> Policy {
        self.peer.policy
    }

    /// Where its requests come in.
    #[inline]
    pub fn door(&self) -> Door {
        self.peer.door
    }

    fn close(&mut self, consumed: usize, after: After) -> Received {
        self.stage = Stage::Closing;
        Received { consumed, needed: 0, after }
    }

    /// Handles log-ins and other states before commands; `None` if commands can be decoded.
    #[cold]
    fn before_commands(
        &mut self,
        worker: &Worker,
        input: &[u8],
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Option<Received> {
        if self.stage == Stage::New {
            if input.is_empty() {
                return Some(Received { consumed: 0, needed: 1, after: After::Continue });
            }
            let settings = &worker.node.settings;
            let is_binary = input.first() == Some(&moneta_protocol::binary::REQUEST_MAGIC);
            let (protocol, stage) = match worker.node.authenticator.mode() {
                _ if self.logged_in().is_some() => (Protocol::Any, Stage::Open),
                _ if self.is_guarded() && is_binary => (Protocol::Binary, Stage::SaslLogin { started: false }),
                _ if self.is_guarded() => (Protocol::Text, Stage::TextLogin),
                AuthMode::Off => (Protocol::Any, Stage::Open),
                AuthMode::Sasl if is_binary => (Protocol::Binary, Stage::SaslLogin { started: false }),
                // Proxies and other nodes speak meta.
                AuthMode::Text | AuthMode::Sasl => (Protocol::Text, Stage::TextLogin),
            };
            self.stage = stage;
            self.decoder = Decoder::new(protocol, settings.item_max);
            self.decoder.refuse_chosen_cas(settings.cluster);
            self.decoder.require_login(matches!(stage, Stage::SaslLogin { .. }));
        }
        match self.stage {
            Stage::TextLogin => self.log_in_by_text(worker, input, output, high_water),
            Stage::Barred => Some(Received { consumed: 0, needed: 0, after: After::Continue }),
            Stage::Watching => Some(Received { consumed: input.len(), needed: 1, after: After::Continue }),
            Stage::Closing => Some(self.close(input.len(), After::CloseWhenFlushed)),
            _ => None,
        }
    }

    /// The buffer for replies: after all parked requests.
    #[inline]
    fn out<'a>(&'a mut self, output: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
        self.peer_and_out(output).1
    }

    /// The client, and the buffer for replies to it.
    #[inline]
    fn peer_and_out<'a>(&'a mut self, output: &'a mut Vec<u8>) -> (&'a Peer, &'a mut Vec<u8>) {
        let out = match &mut self.extras {
            Some(extras) if !extras.parked.is_empty() => extras.parked.tail(),
            _ => output,
        };
        (&self.peer, out)
    }

    fn extras(&mut self) -> &mut SessionExtras {
        self.extras.get_or_insert_with(SessionExtras::empty)
    }

    /// Refuses the request at the front of `input`, which needs `needed` bytes, if it is large and client memory is scarce;
    /// returns how many bytes are then consumed.
    #[cold]
    fn refuse_for_memory(
        &mut self,
        worker: &Worker,
        needed: usize,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Option<usize> {
        if worker.node.client_memory.admits(needed) {
            return None;
        }
        let (refusal, taken) = self.decoder.refuse_value(input)?;
        worker.counters.store_no_memory.bump();
        worker.counters.memory_refusals.bump();
        self.refuse(worker, &refusal, output);
        Some(taken)
    }

    #[cold]
    fn refuse(&mut self, worker: &Worker, refusal: &Refusal<'_>, output: &mut Vec<u8>) {
        worker.counters.protocol_errors.bump();
        if refusal.too_large {
            worker.counters.store_too_large.bump();
        }
        if let Some(forget) = refusal.forget {
            self.forget(worker, forget);
        }
        if let Some(message) = refusal.message {
            encode::message(message, self.out(output));
        }
    }
}

/// Whether a `get` is followed by more.
#[inline]
fn begins_pipelined(input: &[u8]) -> bool {
    input.starts_with(b"get ") && memchr::memchr(b'\n', input).is_some_and(|end| end + 1 < input.len())
}
