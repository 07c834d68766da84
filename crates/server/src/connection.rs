//! One connection: a socket, a session, and the bytes that are between them.
//!
//! A connection is reactors by turns. A turn is at most one `recv`, the execution of what it brought, and one `send`; so a
//! request that arrives whole and whose reply the socket takes costs exactly these two system calls, and no connection
//! holds up the others for longer than a receive buffer's worth of requests.
//!
//! Bytes lie in the worker's shared buffers during a turn. Only an incomplete request, or a reply that the socket did not
//! take, is moved to memory of the connection's own, which is freed when it is done with: an idle connection owns none.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Waker};

use rustix::io::Errno;

use crate::backlog::Backlog;
use crate::client_memory::{Holding, Kind};
use crate::connection_registry::{Activity, Entry};
use crate::inbound::{Inbound, Read};
use crate::listener_state::ConnectionPermit;
use crate::node::Policy;
use crate::session::{After, CloseReason, Session, Worker};

/// What a turn borrows from the event loop.
pub(crate) struct Turn<'a> {
    /// Store, node and counters.
    pub(crate) worker: &'a Worker,
    /// The worker's receive buffer. Its capacity is the most that one turn reads.
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
    /// There is more to do at once; others first.
    Again,
    /// The connection is over.
    Close(CloseReason),
}

/// One connection.
pub(crate) struct Connection {
    socket: OwnedFd,
    session: Session,
    entry: Arc<Entry>,
    permit: ConnectionPermit,
    inbound: Inbound,
    backlog: Backlog,
    waker: Waker,
    id: u64,
    /// The socket may hold bytes: an event said so, and no short read has said otherwise since.
    readable: bool,
    /// The client has closed its side; reads must go on until they say so.
    peer_closed: bool,
    /// A read has said that the client's side is closed.
    ended: bool,
    /// The session asked to close once everything is sent.
    closing: bool,
    /// It is over for its client; changes under way go on, and with their end it goes for this reason.
    left: Option<CloseReason>,
    /// What it held after its last turn.
    held: Holding,
    /// That was something.
    is_holding: bool,
    /// Waits for its turn in the event loop's list.
    pub(crate) queued: bool,
    /// Events tell when the socket takes more.
    watches_writing: bool,
    /// Unsent bytes of a watcher, and since which Unix second they are as many.
    stalled: (usize, u32),
}

impl Connection {
    /// A connection that has not been read from.
    pub(crate) fn new(
        id: u64,
        socket: OwnedFd,
        session: Session,
        entry: Arc<Entry>,
        permit: ConnectionPermit,
        waker: Waker,
    ) -> Self {
        Self {
            socket,
            session,
            entry,
            permit,
            inbound: Inbound::default(),
            backlog: Backlog::default(),
            waker,
            id,
            readable: false,
            peer_closed: false,
            ended: false,
            closing: false,
            left: None,
            held: Holding::default(),
            is_holding: false,
            queued: false,
            watches_writing: false,
            stalled: (0, 0),
        }
    }

    /// The connection's number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The socket's descriptor, for registration.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// How its requests treat the tiers.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.session.policy()
    }

    /// What others see of it.
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The session, to tell it of the beginning and the end.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Notes what an event said.
    pub(crate) fn note(&mut self, readable: bool, writable: bool, peer_closed: bool) {
        self.readable |= readable || peer_closed;
        self.peer_closed |= peer_closed;
        self.backlog.writable |= writable;
    }

    /// Whether events have to tell from now on when the socket takes more: true once, the first time that it did not. Before
    /// that nobody waits for it, and on a Unix socket each reply that the client reads would be an event.
    #[inline]
    pub(crate) fn begins_to_watch_writing(&mut self) -> bool {
        let begins = !self.watches_writing && !self.backlog.is_empty();
        self.watches_writing |= begins;
        begins
    }

    /// Whether it watches and has taken nothing of what waits for it for `seconds`, as far as looks about every second can tell.
    pub(crate) fn is_stalled_watcher(&mut self, now: u32, seconds: u32) -> bool {
        let unsent = self.backlog.len();
        if self.session.may_time_out() || unsent == 0 || self.stalled.0 != unsent {
            self.stalled = (unsent, now);
        }
        now.saturating_sub(self.stalled.1) >= seconds
    }

    /// Whether it has been silent for as long as its listener allows.
    pub(crate) fn is_idle(&self, now: u32) -> bool {
        let silent =
            |seconds| self.left.is_none() && self.session.may_time_out() && self.entry.idle_seconds(now) >= seconds;
        self.permit.idle_seconds().is_some_and(silent)
    }

    /// Whether it has taken no line of its dump for so many seconds.
    pub(crate) fn stalls_dump(&self, now: u32, seconds: u32) -> bool {
        self.session.is_dumping() && !self.backlog.is_empty() && self.entry.idle_seconds(now) >= seconds
    }

    /// Lets the client go, but not changes that it asked for: a write that is under way to a device or a peer takes effect there
    /// whatever becomes of the client, and later ones on its key have to wait for it. True if there are any: then the
    /// connection needs a turn, and ends in one.
    pub(crate) fn leave(&mut self, worker: &Worker, reason: CloseReason) -> bool {
        if self.left.is_some() || !self.session.give_up() {
            return false;
        }
        self.left = Some(reason);
        (self.inbound, self.backlog) = (Inbound::default(), Backlog::default());
        self.keep_account(worker);
        // It fails for a client that has gone, who is not to be told.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        true
    }

    /// Reads, executes and sends once.
    #[inline]
    pub(crate) fn turn(&mut self, turn: &mut Turn<'_>) -> Verdict {
        let verdict = self.execute(turn);
        let owns_some = self.inbound.owns_memory() || self.backlog.held() > 0 || self.session.is_waiting();
        if !owns_some && !self.is_holding {
            return verdict;
        }
        self.after_holding(turn, verdict)
    }

    /// The end of a turn for a connection that holds memory or did.
    #[cold]
    fn after_holding(&mut self, turn: &mut Turn<'_>, verdict: Verdict) -> Verdict {
        turn.grew = self.keep_account(turn.worker);
        let stays = self.left.is_none() && !matches!(verdict, Verdict::Close(_));
        if stays && turn.grew && turn.worker.node.client_memory.is_used_up() {
            return Verdict::Close(CloseReason::Memory);
        }
        verdict
    }

    /// Tells what it holds now; true if that is more than before.
    fn keep_account(&mut self, worker: &Worker) -> bool {
        if self.inbound.held() == 0
            && self.backlog.held() == 0
            && self.held.is_only(Kind::Parked)
            && let Some(bytes) = self.session.parks_only()
        {
            return self.enter_parked(worker, bytes);
        }
        self.enter(worker, self.session.holding(self.inbound.held(), self.backlog.held()))
    }

    /// It is closed: what it held is free.
    pub(crate) fn release(&mut self, worker: &Worker) {
        self.enter(worker, Holding::default());
    }

    /// What [`Connection::enter`] does, for the requests that wait for the store and nothing else: each of those comes by here twice.
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

    fn try_turn(&mut self, turn: &mut Turn<'_>) -> Result<Verdict, Errno> {
        self.flush(turn)?;
        let mut moved = false;
        let mut after = After::Continue;
        let limit = self.output_limit(turn);
        let room = limit.saturating_sub(self.backlog.len());
        // Even without room: what waits may hold what other connections wait for.
        if self.session.is_waiting() {
            self.poll(turn, room);
        }
        if room > 0 && !self.closing && !self.session.is_barred() {
            (moved, after) = self.receive(turn, room)?;
            // Parked just now, be it the last that is executed here: one poll lets the store keep the waker, and may find
            // the answer there already.
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

    /// Unsent bytes at which nothing more is executed: less than the listener's limit for one that does not read while memory for
    /// clients is scarce.
    #[inline]
    fn output_limit(&self, turn: &Turn<'_>) -> usize {
        let limit = self.permit.output_limit();
        if self.backlog.is_empty() { limit } else { limit.min(turn.worker.node.client_memory.share()) }
    }

    fn poll(&mut self, turn: &mut Turn<'_>, room: usize) {
        self.session.poll(turn.worker, &mut Context::from_waker(&self.waker), turn.output, room);
    }

    /// Executes what lies there from before, or reads and executes. Tells whether anything moved.
    fn receive(&mut self, turn: &mut Turn<'_>, room: usize) -> Result<(bool, After), Errno> {
        let from_before = self.inbound.is_executable();
        if !from_before {
            if !self.readable || self.ended {
                return Ok((false, After::Continue));
            }
            let read = self.inbound.read(&self.socket, turn.input)?;
            self.note_read(read, turn);
            if !matches!(read, Read::Some { .. }) || !self.inbound.is_enough(turn.input) {
                return Ok((false, After::Continue));
            }
        }
        let Self { session, inbound, .. } = self;
        let received = session.receive(turn.worker, inbound.bytes(turn.input), turn.output, room);
        inbound.consume(turn.input, received.consumed, received.needed);
        Ok((received.consumed > 0, received.after))
    }

    fn note_read(&mut self, read: Read, turn: &Turn<'_>) {
        match read {
            Read::Some { bytes, drained } => {
                turn.worker.counters.bytes_read.add(bytes as u64);
                self.entry.touch(turn.worker.node.clock.now());
                // After the client's side closed only a read of nothing means the end.
                self.readable = !drained || self.peer_closed;
            }
            Read::Nothing => self.readable = false,
            Read::End => {
                self.readable = false;
                self.ended = true;
            }
        }
    }

    fn flush(&mut self, turn: &Turn<'_>) -> Result<(), Errno> {
        let sent = self.backlog.flush(&self.socket)?;
        if sent > 0 {
            self.entry.touch(turn.worker.node.clock.now());
            turn.worker.counters.bytes_written.add(sent as u64);
        }
        Ok(())
    }

    fn send(&mut self, turn: &mut Turn<'_>) -> Result<(), Errno> {
        if turn.output.is_empty() {
            return Ok(());
        }
        // Before the client can see the reply, so that it is never seen to be silent since longer than it is.
        self.entry.touch(turn.worker.node.clock.now());
        let sent = self.backlog.send(&self.socket, turn.output)?;
        turn.worker.counters.bytes_written.add(sent as u64);
        Ok(())
    }

    fn verdict(&self, turn: &Turn<'_>, moved: bool, limit: usize) -> Verdict {
        let may_wait = self.session.may_time_out();
        // Watchers have no last word to wait for.
        let waiting = self.session.is_waiting() && may_wait;
        let unsent = !self.backlog.is_empty();
        self.entry.set_activity(match (unsent, may_wait, waiting) {
            (true, ..) => Activity::Writing,
            (_, false, _) => Activity::Watching,
            (.., true) => Activity::Waiting,
            _ => Activity::Reading,
        });
        if self.session.is_barred() {
            // Nothing is read of it, so that an event alone tells whether it has gone.
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
            // Nothing would ever bring another turn: a defect of the session, which must not cost a hanging client.
            tracing::error!(connection = self.id, "a request that waits for nothing is not executed");
            return Verdict::Close(CloseReason::Error);
        }
        Verdict::Wait
    }
}
