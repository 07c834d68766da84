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
mod read;
mod rights;
mod sample;
mod several;
mod ticket;
mod together;
mod tuning;
mod waiting;
mod words;

use std::task::Context;

use moneta_protocol::decoder::{Decoded, Decoder, Protocol};
use moneta_protocol::encode;
use moneta_protocol::refusal::Refusal;

use crate::auth::AuthMode;
use crate::client_memory::{Holding, Kind};
use crate::dump::Dumped;
use crate::feed::Progress;
use crate::latency::Stopwatch;
use crate::node::{Door, Peer, Policy};
pub use crate::peer::CloseReason;
use crate::watch;
pub use context::Worker;
use extras::SessionExtras;
use limited::SessionLimits;
use login::Login;
use ticket::Ticket;
use waiting::Waiting;

/// Most requests of one connection that wait for the store at once; further ones are not started.
pub const MAX_PARKED: usize = 256;

/// The progress of [`Session::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Input bytes that have been consumed.
    pub consumed: usize,
    /// Bytes that must follow `consumed` in the buffer, including those already there, before another call can make progress; 0
    /// if progress depends on output room or a parked request instead.
    pub needed: usize,
    /// What becomes of the connection.
    pub after: After,
}

/// What [`Session::poll`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Input that is left can be passed to [`Session::receive`] again: no parked request blocks it.
    pub receive_again: bool,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It continues.
    Continue,
    /// Write the output and the replies of parked requests, then close.
    CloseWhenFlushed,
    /// Close at once.
    CloseNow,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was received yet.
    New,
    /// The client has to log in with a text `set`.
    TextLogin,
    /// The client has to log in with SASL; `started` after the first step.
    SaslLogin { started: bool },
    /// Commands are executed.
    Open,
    /// Lines of a `watch` are sent; input is discarded.
    Watching,
    /// The connection is about to close; input is ignored.
    Closing,
    /// Too many failed log-ins: nothing is read until the connection is closed after a delay.
    Barred,
}

/// What follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Execute the next one.
    Next,
    /// A long `get` paused; this many bytes at the end of what the command consumed were not executed.
    Paused { rest: usize },
    /// The same, and the rest waits for a parked request.
    Held { rest: usize },
    /// Discard further input.
    Deaf,
    /// Read nothing until the connection is closed.
    Barred,
    /// Close.
    Close(After),
}

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
        if self.limits.is_none() && worker.node.app_limits().is_some() {
            self.limit(SessionLimits::default());
        }
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
        if self.limits.is_some() {
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

    /// Polls parked requests, dumps and watchers; appends ready replies, in order, to `output`. Parked requests are polled even
    /// without output room (`high_water` 0), since others may wait for them in the store.
    pub fn poll(&mut self, worker: &Worker, cx: &mut Context<'_>, output: &mut Vec<u8>, high_water: usize) -> Polled {
        let mut dump_can_go_on = false;
        if let Some(extras) = &mut self.extras {
            extras.parked.poll(worker, &self.peer, cx, output, high_water);
            if extras.forgotten.is_some() && self.forget_parked(worker) {
                // For what it parked.
                cx.waker().wake_by_ref();
            }
        }
        if high_water > 0
            && self.extras.as_ref().is_some_and(|extras| extras.log_in.is_some() && extras.parked.is_empty())
        {
            self.poll_log_in(worker, cx, output);
        }
        if let Some(extras) = &mut self.extras {
            if high_water == 0 {
                return Polled { receive_again: false };
            }
            if extras.parked.is_empty() {
                if let Some(dump) = &mut extras.dump {
                    let user = self.limits.as_ref().and_then(|limits| limits.logged_in.as_ref());
                    let shows = |key: &[u8]| user.is_none_or(|user| guard::may_touch(worker, &self.peer, user, key));
                    match dump.write(worker, &shows, cx, output, high_water) {
                        Dumped::All => extras.dump = None,
                        Dumped::Some => dump_can_go_on = true,
                        Dumped::Waiting => {}
                    }
                }
                if let Some(listing) = &mut extras.listing {
                    match listing.write(&worker.node, cx, output, high_water) {
                        Progress::All => extras.listing = None,
                        Progress::Some => dump_can_go_on = true,
                        Progress::Waiting => {}
                    }
                }
                if let Some(changes) = &mut extras.changes {
                    match changes.write(cx, output, high_water) {
                        Progress::All => extras.changes = None,
                        Progress::Some => dump_can_go_on = true,
                        Progress::Waiting => {}
                    }
                }
                if let Some(watcher) = &mut extras.watcher {
                    watcher.poll(cx, output, high_water);
                }
            }
            // The caller waits for this waker: wake it, so that it comes back for output that only lacked room.
            if dump_can_go_on || extras.parked.is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        if let Some(extras) = self.extras.take_if(|extras| extras.is_empty()) {
            extras.keep();
        }
        Polled { receive_again: !self.is_held_up(worker, high_water) }
    }

    /// Whether replies to pipelined requests wait for those after them, to be sent with these. The caller calls
    /// [`Session::release`] and [`Session::poll`] when they have waited for long.
    #[inline]
    pub fn holds_back(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.parked.holds_back())
    }

    /// Has the next [`Session::poll`] give out what waits for replies after it.
    pub fn release(&mut self) {
        if let Some(extras) = &mut self.extras {
            extras.parked.release();
        }
    }

    /// Whether [`Session::poll`] has anything to do: a parked request, a dump, the feed or a watcher.
    pub fn is_waiting(&self) -> bool {
        self.extras.is_some()
    }

    /// Whether the idle timeout may close it. Watchers and readers of the feed are exempt.
    pub fn may_time_out(&self) -> bool {
        self.extras.as_ref().is_none_or(|extras| extras.watcher.is_none() && extras.changes.is_none())
    }

    /// Whether a dump is in progress, or the feed is sent.
    pub(crate) fn is_dumping(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.dump.is_some() || extras.changes.is_some())
    }

    /// Whether parked requests or a dump have to progress before more is started.
    #[inline(always)]
    fn is_held_up(&self, worker: &Worker, high_water: usize) -> bool {
        let Some(extras) = &self.extras else { return false };
        extras.dump.is_some()
            || extras.changes.is_some()
            || extras.listing.is_some()
            || extras.forgotten.is_some()
            || extras.log_in.is_some()
            || extras.parked.is_full(high_water, worker.node.client_memory.share())
    }

    /// Takes what a reader of the feed says while it is sent. Returns the bytes that were taken, and those with which there may
    /// be more.
    #[cold]
    fn hear_reader(&self, input: &[u8]) -> (usize, usize) {
        let changes = self.extras.as_ref().and_then(|extras| extras.changes.as_ref());
        changes.map_or((0, 0), |changes| changes.hear(input))
    }

    /// Parks a request that writes `written` bytes.
    fn park(&mut self, worker: &Worker, waiting: Waiting, ticket: Ticket, written: usize) {
        let read = match (worker.cx.bytes_to_read(), waiting.reads()) {
            (Some(usize::MAX), _) => worker.node.settings.item_max,
            (Some(bytes), _) => bytes,
            (None, true) => worker.counters.ledger.expected_read(),
            (None, false) => 0,
        };
        let now = worker.node.clock.millis();
        self.extras().parked.park(waiting, ticket, read + written, now);
    }

    /// Bytes held by its parked requests, if it holds nothing else.
    #[inline]
    pub(crate) fn parks_only(&self) -> Option<usize> {
        match &self.extras {
            _ if self.stage != Stage::Open => None,
            None => Some(0),
            Some(extras) => (extras.dump.is_none()
                && extras.changes.is_none()
                && extras.listing.is_none()
                && extras.watcher.is_none())
            .then(|| extras.parked.held()),
        }
    }

    /// The memory it holds, including `input` bytes of incomplete requests and `output` bytes of unsent replies.
    pub(crate) fn holding(&self, input: usize, output: usize) -> Holding {
        let mut holding = Holding::default();
        let logs_in = matches!(self.stage, Stage::New | Stage::TextLogin | Stage::SaslLogin { .. } | Stage::Barred);
        holding.add(if logs_in { Kind::Login } else { Kind::Input }, input);
        let mut output_is = Kind::Output;
        if let Some(extras) = &self.extras {
            holding.add(Kind::Parked, extras.parked.held());
            if extras.watcher.is_some() {
                holding.add(Kind::Watch, watch::QUEUE_MAX);
                output_is = Kind::Watch;
            } else if let Some(changes) = &extras.changes {
                holding.add(Kind::Feed, changes.held());
                output_is = Kind::Feed;
            } else if extras.dump.is_some() || extras.listing.is_some() {
                output_is = Kind::Dump;
            }
            if let Some(listing) = &extras.listing {
                holding.add(Kind::Dump, listing.held());
            }
        }
        holding.add(output_is, output);
        holding
    }

    /// Whether a parked request has to finish before a request on `key`, in the store's form, may start.
    fn must_not_overtake(&self, key: &[u8], changes: bool) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.parked.stands_before(key, changes))
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
                AuthMode::Text => (Protocol::Text, Stage::TextLogin),
                AuthMode::Sasl => (Protocol::Binary, Stage::SaslLogin { started: false }),
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
