//! A connection: a transport, a session, and the bytes between them.
//!
//! A connection is served in turns. A turn is at most one `recv`, the execution of the received requests, and one `send`. So a
//! request that arrives whole and whose reply the socket takes costs exactly these two system calls, and no connection delays
//! the others for longer than a receive buffer of requests.
//!
//! During a turn, bytes are in the worker's shared buffers. Only an incomplete request, or a reply that the socket did not take,
//! moves to private memory of the connection, which is freed as soon as it is empty: an idle connection owns none.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Waker};

use moneta_net::{Received, Transport, TransportError};
use moneta_store::ClientTag;

use crate::backlog::Backlog;
use crate::client_memory::{Holding, Kind};
use crate::connection_registry::{Activity, Entry};
use crate::inbound::Inbound;
use crate::listener_state::ConnectionPermit;
use crate::node::{Door, Policy};
use crate::session::{After, CloseReason, Session, Worker};

/// What a turn borrows from the event loop.
pub(crate) struct Turn<'a> {
    /// Store, node and counters.
    pub(crate) worker: &'a Worker,
    /// The worker's receive buffer. One turn reads at most its capacity.
    pub(crate) input: &'a mut Vec<u8>,
    /// The worker's output buffer, empty between turns.
    pub(crate) output: &'a mut Vec<u8>,
    /// Close the connection as soon as nothing is in flight.
    pub(crate) draining: bool,
    /// Set by the turn: the connection holds more memory than before.
    pub(crate) grew: bool,
}

/// How a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An event or a wake will bring the next turn.
    Wait,
    /// There is more to do; other connections have their turn first.
    Again,
    /// The connection has to be closed.
    Close(CloseReason),
}

/// One connection.
pub(crate) struct Connection {
    transport: Transport,
    session: Session,
    entry: Arc<Entry>,
    permit: ConnectionPermit,
    inbound: Inbound,
    backlog: Backlog,
    waker: Waker,
    id: u64,
    client: ClientTag,
    /// The socket may hold bytes: there was an event, and no short read since.
    readable: bool,
    /// An event said that the client closed its side; reads continue until they return the end.
    peer_closed: bool,
    /// A read returned the end: the client's side is closed.
    ended: bool,
    /// The session asked to close once everything is sent.
    closing: bool,
    /// The client has been dropped, for this reason; the connection closes when its changes in progress have ended.
    left: Option<CloseReason>,
    /// The memory it held after its last turn.
    held: Holding,
    /// Whether it held any.
    is_holding: bool,
    /// It is in the event loop's list of connections waiting for a turn.
    pub(crate) queued: bool,
    /// It is in the event loop's list of connections that hold replies back.
    pub(crate) awaits_release: bool,
    /// It is registered for writable events.
    watches_writing: bool,
    /// Unsent bytes of a watcher, and the Unix second since which that number has not changed.
    stalled: (usize, u32),
}

impl Connection {
    /// A connection that has not been read from.
    pub(crate) fn new(
        id: u64,
        client: ClientTag,
        transport: Transport,
        session: Session,
        entry: Arc<Entry>,
        permit: ConnectionPermit,
        waker: Waker,
    ) -> Self {
        Self {
            transport,
            session,
            entry,
            permit,
            inbound: Inbound::default(),
            backlog: Backlog::default(),
            waker,
            id,
            client,
            readable: false,
            peer_closed: false,
            ended: false,
            closing: false,
            left: None,
            held: Holding::default(),
            is_holding: false,
            queued: false,
            awaits_release: false,
            watches_writing: false,
            stalled: (0, 0),
        }
    }

    /// The connection's number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whose requests come over it.
    #[inline]
    pub(crate) fn client(&self) -> ClientTag {
        self.client
    }

    /// Whether TLS protects it.
    pub(crate) fn is_protected(&self) -> bool {
        self.transport.is_protected()
    }

    /// The socket's descriptor, for registration.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.transport.as_raw_fd()
    }

    /// How its requests treat the tiers.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.session.policy()
    }

    /// Where its requests come in.
    #[inline]
    pub(crate) fn door(&self) -> Door {
        self.session.door()
    }

    /// Its public entry in the registry.
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The session, for its opening and closing calls.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Notes the flags of an event.
    pub(crate) fn note(&mut self, readable: bool, writable: bool, peer_closed: bool) {
        self.readable |= readable || peer_closed;
        self.peer_closed |= peer_closed;
        self.backlog.writable |= writable;
    }

    /// Whether to register for writable events now: true once, the first time the socket was full. Before that nothing waits for
    /// them, and on a Unix socket each reply that the client reads would raise one.
    #[inline]
    pub(crate) fn begins_to_watch_writing(&mut self) -> bool {
        let begins = !self.watches_writing && !self.backlog.is_empty();
        self.watches_writing |= begins;
        begins
    }

    /// Whether it is a watcher that has taken none of its unsent bytes for `seconds`. Sampled about once a second.
    pub(crate) fn is_stalled_watcher(&mut self, now: u32, seconds: u32) -> bool {
        let unsent = self.backlog.len();
        if self.session.may_time_out() || unsent == 0 || self.stalled.0 != unsent {
            self.stalled = (unsent, now);
        }
        now.saturating_sub(self.stalled.1) >= seconds
    }

    /// Whether its listener's idle timeout has passed.
    pub(crate) fn is_idle(&self, now: u32) -> bool {
        let silent =
            |seconds| self.left.is_none() && self.session.may_time_out() && self.entry.idle_seconds(now) >= seconds;
        self.permit.idle_seconds().is_some_and(silent)
    }

    /// Whether it has taken no line of its dump for `seconds`.
    pub(crate) fn stalls_dump(&self, now: u32, seconds: u32) -> bool {
        self.session.is_dumping() && !self.backlog.is_empty() && self.entry.idle_seconds(now) >= seconds
    }

    /// Drops the client but not its changes in progress: a write on its way to a device or a peer takes effect there in any case,
    /// and later writes on its key have to wait for it. True if there are any: then the connection needs further turns, and ends
    /// in one of them.
    pub(crate) fn leave(&mut self, worker: &Worker, reason: CloseReason) -> bool {
        if self.left.is_some() || !self.session.give_up() {
            return false;
        }
        self.left = Some(reason);
        (self.inbound, self.backlog) = (Inbound::default(), Backlog::default());
        self.keep_account(worker);
        self.transport.shut_down();
        true
    }

    /// Reads, executes and sends once.
    #[inline]
    pub(crate) fn turn(&mut self, turn: &mut Turn<'_>) -> Verdict {
        let verdict = self.execute(turn);
        let owns_some = self.inbound.owns_memory()
            || self.backlog.held() > 0
            || self.session.is_waiting()
            || self.transport.held() > 0;
        if !owns_some && !self.is_holding {
            return verdict;
        }
        self.after_holding(turn, verdict)
    }

    /// Ends the turn of a connection that holds memory, or held some before.
    #[cold]
    fn after_holding(&mut self, turn: &mut Turn<'_>, verdict: Verdict) -> Verdict {
        turn.grew = self.keep_account(turn.worker);
        let stays = self.left.is_none() && !matches!(verdict, Verdict::Close(_));
        if stays && turn.grew && turn.worker.node.client_memory.is_used_up() {
            return Verdict::Close(CloseReason::Memory);
        }
        verdict
    }

    /// Updates the account of its memory; true if it holds more than before.
    fn keep_account(&mut self, worker: &Worker) -> bool {
        if self.inbound.held() == 0
            && self.backlog.held() == 0
            && self.transport.held() == 0
            && self.held.is_only(Kind::Parked)
            && let Some(bytes) = self.session.parks_only()
        {
            return self.enter_parked(worker, bytes);
        }
        let mut held = self.session.holding(self.inbound.held(), self.backlog.held());
        // Records that are not complete, or not sent.
        let kind = if self.backlog.held() > 0 { Kind::Output } else { Kind::Input };
        held.add(kind, self.transport.held());
        self.enter(worker, held)
    }

    /// Clears its account when it is closed.
    pub(crate) fn release(&mut self, worker: &Worker) {
        self.enter(worker, Holding::default());
    }

    /// A fast version of [`Connection::enter`] for connections whose only memory is that of waiting requests: each such request
    /// passes here twice.
    #[inline]
    fn enter_parked(&mut self, worker: &Worker, now: usize) -> bool {
        let (before, memory) = (self.held.total(), &worker.node.client_memory);
        if now != before {
            worker.counters.ledger.change_of(Kind::Parked, before, now, memory);
            self.entry.hold(now, worker.node.clock.now(), memory);
            self.held.set_only(Kind::Parked, now);
            self.is_holding = now > 0;
        }
        now > before
    }

    fn enter(&mut self, worker: &Worker, held: Holding) -> bool {
        let (before, now) = (self.held.total(), held.total());
        if held != self.held {
            worker.counters.ledger.change(&self.held, &held, &worker.node.client_memory);
            self.entry.hold(now, worker.node.clock.now(), &worker.node.client_memory);
            (self.held, self.is_holding) = (held, now > 0);
        }
        now > before
    }

    fn execute(&mut self, turn: &mut Turn<'_>) -> Verdict {
        if self.is_holding && self.left.is_none() && self.entry.is_condemned() {
            return Verdict::Close(CloseReason::Memory);
        }
        if let Some(reason) = self.left {
            self.poll(turn, self.permit.output_limit());
            return if self.session.is_changing() { Verdict::Wait } else { Verdict::Close(reason) };
        }
        match self.try_turn(turn) {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::debug!(connection = self.id, %error, "connection lost");
                Verdict::Close(CloseReason::Error)
            }
        }
    }

    fn try_turn(&mut self, turn: &mut Turn<'_>) -> Result<Verdict, TransportError> {
        self.flush(turn)?;
        let mut moved = false;
        let mut after = After::Continue;
        let limit = self.output_limit(turn);
        let room = limit.saturating_sub(self.backlog.len());
        // Even without output room: a waiting request may hold a lock that other connections wait for.
        if self.session.is_waiting() {
            self.poll(turn, room);
        }
        if room > 0 && !self.closing && !self.session.is_barred() {
            (moved, after) = self.receive(turn, room)?;
            // Requests were just parked: the first poll registers the waker with the store, and may already find the
            // answer.
            if moved && after != After::CloseNow && self.session.is_waiting() {
                self.poll(turn, room);
            }
        }
        if after == After::CloseNow {
            return Ok(Verdict::Close(CloseReason::Error));
        }
        self.closing |= after == After::CloseWhenFlushed;
        moved |= !turn.output.is_empty();
        self.send(turn)?;
        Ok(self.verdict(turn, moved, limit))
    }

    /// Unsent bytes at which nothing more is executed: the listener's limit, or less for a client that does not read while client
    /// memory is scarce.
    #[inline]
    fn output_limit(&self, turn: &Turn<'_>) -> usize {
        let limit = self.permit.output_limit();
        if self.backlog.is_empty() { limit } else { limit.min(turn.worker.node.client_memory.share()) }
    }

    fn poll(&mut self, turn: &mut Turn<'_>, room: usize) {
        self.session.poll(turn.worker, &mut Context::from_waker(&self.waker), turn.output, room);
    }

    /// Executes buffered requests, or reads and executes. Returns whether there was any progress.
    fn receive(&mut self, turn: &mut Turn<'_>, room: usize) -> Result<(bool, After), TransportError> {
        let from_before = self.inbound.is_executable();
        if !from_before {
            if !self.readable || self.ended {
                return Ok((false, After::Continue));
            }
            let read = self.inbound.read(&mut self.transport, turn.input)?;
            self.note_read(read, turn);
            if !matches!(read, Received::Some { bytes: 1.., .. }) || !self.inbound.is_enough(turn.input) {
                return Ok((false, After::Continue));
            }
        }
        let Self { session, inbound, .. } = self;
        let received = session.receive(turn.worker, inbound.bytes(turn.input), turn.output, room);
        inbound.consume(turn.input, received.consumed, received.needed);
        Ok((received.consumed > 0, received.after))
    }

    fn note_read(&mut self, read: Received, turn: &Turn<'_>) {
        match read {
            Received::Some { bytes, drained } => {
                turn.worker.counters.bytes_read.add(bytes as u64);
                self.entry.touch(turn.worker.node.clock.now());
                // After the client has closed its side, only an empty read means the end.
                self.readable = !drained || self.peer_closed;
            }
            Received::Nothing => self.readable = false,
            Received::End => {
                self.readable = false;
                self.ended = true;
            }
        }
    }

    fn flush(&mut self, turn: &Turn<'_>) -> Result<(), TransportError> {
        let sent = self.backlog.flush(&mut self.transport)?;
        if sent > 0 {
            self.entry.touch(turn.worker.node.clock.now());
            turn.worker.counters.bytes_written.add(sent as u64);
        }
        Ok(())
    }

    fn send(&mut self, turn: &mut Turn<'_>) -> Result<(), TransportError> {
        if turn.output.is_empty() {
            return Ok(());
        }
        if let Some(limits) = self.session.limits() {
            limits.replied(turn.output.len());
        }
        // Before the client can see the reply, so that its idle time is never reported as too long.
        self.entry.touch(turn.worker.node.clock.now());
        let sent = self.backlog.send(&mut self.transport, turn.output)?;
        turn.worker.counters.bytes_written.add(sent as u64);
        Ok(())
    }

    fn verdict(&self, turn: &Turn<'_>, moved: bool, limit: usize) -> Verdict {
        let may_wait = self.session.may_time_out();
        // Watchers have no final reply to wait for.
        let waiting = self.session.is_waiting() && may_wait;
        let unsent = !self.backlog.is_empty();
        self.entry.set_activity(match (unsent, may_wait, waiting) {
            (true, ..) => Activity::Writing,
            (_, false, _) => Activity::Watching,
            (.., true) => Activity::Waiting,
            _ => Activity::Reading,
        });
        if self.session.is_barred() {
            // It is not read, so only an event shows that the client has gone.
            return if self.peer_closed { Verdict::Close(CloseReason::Error) } else { Verdict::Wait };
        }
        if self.closing {
            return if unsent || waiting { Verdict::Wait } else { Verdict::Close(CloseReason::Normal) };
        }
        if unsent && self.backlog.len() >= limit {
            return Verdict::Wait;
        }
        let executable = self.inbound.is_executable();
        let more = if executable { moved } else { self.readable && !self.ended };
        if more {
            return Verdict::Again;
        }
        if unsent || waiting {
            return Verdict::Wait;
        }
        if self.ended {
            return Verdict::Close(CloseReason::Normal);
        }
        if turn.draining && self.inbound.is_empty() {
            return Verdict::Close(CloseReason::Shutdown);
        }
        if executable && may_wait {
            // No event would bring another turn. This is a defect of the session; close rather than let the client hang.
            tracing::error!(connection = self.id, "a request that waits for nothing is not executed");
            return Verdict::Close(CloseReason::Error);
        }
        Verdict::Wait
    }
}
