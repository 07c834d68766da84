//! A connection: bytes to send, expected replies, and the turns that move both.
//!
//! A request is encoded after others and sent with the next turn, in one call with all of its turn. A turn that has sent
//! something leaves receiving to the next one: the replies cannot be there yet, and the event queue tells when they are.
//!
//! The bytes of requests that were sent over an idle connection are kept until the first reply: if the server turns out to
//! have closed the connection meanwhile, what may be asked twice is sent again over a fresh one ([`super::disconnect`]).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_client::wire::{self, Dialect, NO_VERSIONS, Request};
use moneta_net::{Transport, TransportError};
use moneta_store::{ErrorKind, StoreError};

use super::carrying::Carrying;
use super::entry::{Entry, OwnedRequest, Target};
use super::replies::Replies;
use super::stage::Stage;
use super::watch::watch_room;
use crate::failure::Failure;
use crate::shared::ServerShared;

/// Bytes that one call receives at most, unless a longer reply is on its way.
pub(super) const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes after which a turn leaves the rest to the next one, so that a peer that sends without end holds up no others. A
/// turn goes on only after calls that filled all their room, so replies of common lengths rarely come near it.
pub(super) const TURN_BYTES: usize = 256 << 10;
/// A buffer that grew past this is given back when it is empty.
pub(super) const KEPT_BYTES: usize = 256 << 10;
/// Most bytes kept for the case that an idle connection was closed by the server.
const RETAINED_MAX: usize = 256 << 10;
/// What is answered where [`crate::ValueMemory`] is full.
pub(crate) const NO_MEMORY: &str = "no memory is left for large values on their way to or from nodes";
/// How long a connection is silent before it is looked at for its end, and before its next request.
const IDLE: Duration = Duration::from_millis(20);

/// What a turn has to do with.
pub(crate) struct Turn<'a> {
    pub(crate) queue: &'a OwnedFd,
    pub(crate) replies: &'a mut Replies,
    /// By the client's clock ([`crate::running`]), as every moment here.
    pub(crate) now: Instant,
    /// What is there to be sent over connections that are up is left to the next turn, which is to follow soon.
    pub(crate) only_receives: bool,
}

/// A request that waits for a connection, or for room on one.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) request: OwnedRequest,
    pub(super) hash: u64,
    pub(super) cost: u32,
    pub(super) target: Target,
    pub(super) begun: Instant,
    pub(super) moved: u64,
}

/// What is sent again over a fresh connection.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pub(super) bytes: Vec<u8>,
    pub(super) entries: VecDeque<Entry>,
    pub(super) dialect: Option<Dialect>,
}

/// A connection to a server.
pub(crate) struct Link {
    pub(super) shared: Arc<ServerShared>,
    pub(super) stage: Stage,
    pub(super) transport: Option<Transport>,
    pub(super) out: Vec<u8>,
    /// Bytes at the front of `out` that are sent.
    pub(super) sent: usize,
    pub(super) input: Vec<u8>,
    /// Bytes at the front of `input` that are decoded.
    pub(super) read: usize,
    /// Bytes of `input`, from `read`, without which decoding again makes no sense.
    pub(super) needed: usize,
    /// Bytes still to be thrown away: the rest of a reply that is too long.
    pub(super) skip: usize,
    pub(super) in_flight: VecDeque<Entry>,
    /// It is for large values: how many bytes it moves at once is bounded.
    pub(super) is_large: bool,
    /// It takes no more requests.
    pub(super) is_retired: bool,
    /// It connects with its first request.
    sleeps: bool,
    /// Bytes that are on their way, where these are bounded.
    pub(super) asked: usize,
    /// Bytes of large replies since nothing was in flight.
    pub(super) much: usize,
    /// How many requests at the front of these have failed already.
    pub(super) given_up: usize,
    /// Bytes received so far, and sent after the kernel had no room for more.
    pub(super) moved: u64,
    /// Requests in flight are not looked at for those that took too long before this moment.
    pub(super) look_at: Instant,
    /// While it is up, nothing that is waited for is late before this moment.
    pub(super) due: Instant,
    /// `out` holds all of the requests in flight.
    pub(super) retains: bool,
    /// The kernel has no room for more to send; the event queue tells when it has.
    pub(super) blocked: bool,
    /// A large value is half through.
    pub(super) carrying: Carrying,
    /// The turn before this one left something to receive: no event will tell of it.
    pub(super) unread: bool,
    /// The turn before this one did not receive.
    put_off: bool,
    pub(super) waiting: VecDeque<Queued>,
    pub(super) waiting_bytes: usize,
    pub(super) carried: Carried,
    /// Attempts in a row that failed, each at all addresses.
    pub(super) tries: u32,
    /// Addresses at which this attempt has failed so far.
    pub(super) passed_over: usize,
    /// Where it connects to, over TCP.
    pub(super) address: Option<SocketAddr>,
    /// A request was answered on this connection.
    pub(super) served: bool,
    /// Its next reply is that to a trial.
    pub(super) on_trial: bool,
    pub(super) was_up: bool,
    /// How often in a row the server hung up when it was asked in text.
    pub(super) hang_ups: u32,
    /// When something was last received, or looked for.
    pub(super) active: Instant,
    /// When something moved last or a check was sent, or the connection came up.
    pub(super) heard: Instant,
    number: u32,
}

impl Link {
    pub(crate) fn new(shared: Arc<ServerShared>, now: Instant) -> Self {
        let recoveries = shared.recoveries();
        Self {
            shared,
            stage: Stage::Down { retry_at: now, recoveries },
            transport: None,
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            read: 0,
            needed: 0,
            skip: 0,
            in_flight: VecDeque::new(),
            is_large: false,
            is_retired: false,
            sleeps: false,
            asked: 0,
            much: 0,
            given_up: 0,
            moved: 0,
            look_at: now,
            due: now,
            retains: false,
            blocked: false,
            carrying: Carrying::default(),
            unread: false,
            put_off: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            carried: Carried::default(),
            tries: 0,
            passed_over: 0,
            address: None,
            served: false,
            on_trial: false,
            was_up: false,
            hang_ups: 0,
            active: now,
            heard: now,
            number: 0,
        }
    }

    /// A connection for large values, which is made with the first of these.
    pub(crate) fn for_large_values(shared: Arc<ServerShared>, now: Instant) -> Self {
        Self { is_large: true, sleeps: true, ..Self::new(shared, now) }
    }

    /// What the server understands, while it is up.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        match self.stage {
            Stage::Up { dialect, .. } => Some(dialect),
            _ => None,
        }
    }

    /// Begins a request on the key with this hash: it is sent with the next turn, or waits for the connection. `cost`: about how
    /// many bytes it moves, if it moves many.
    ///
    /// # Errors
    /// When it fails at once; the target is told nothing then.
    pub(crate) fn begin(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        cost: u32,
        target: Target,
        turn: &mut Turn<'_>,
    ) -> Result<(), StoreError> {
        self.sleeps = false;
        if let Stage::Down { retry_at, recoveries } = self.stage
            && (turn.now >= retry_at || recoveries != self.shared.recoveries())
        {
            self.connect(turn);
        }
        if self.in_flight.is_empty() && self.could_do_better() {
            self.start_over(turn);
        }
        match self.stage {
            Stage::Up { dialect, .. } if self.shared.hangs() => {
                self.begin_trial(turn, dialect);
                Err(self.fail_at_once(self.is_down()))
            }
            Stage::Up { .. } if self.is_large && (!self.waiting.is_empty() || self.has_no_room(cost)) => {
                self.wait(request, hash, cost, target, turn)
            }
            Stage::Up { dialect, .. } => {
                self.check_room(self.in_flight.len(), self.out.len() - self.sent)?;
                self.send_later(request, hash, cost, target, turn.now, dialect).map_err(|(_, failure)| failure)?;
                turn.replies.tally.begun();
                Ok(())
            }
            Stage::Connecting { .. } | Stage::Probing { .. } if !self.shared.is_open() => {
                self.wait(request, hash, cost, target, turn)
            }
            _ => Err(self.fail_at_once(self.is_down())),
        }
    }

    /// The request waits for the connection, or for room on it.
    fn wait(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        cost: u32,
        target: Target,
        turn: &mut Turn<'_>,
    ) -> Result<(), StoreError> {
        self.check_room(self.waiting.len(), self.waiting_bytes)?;
        let request = OwnedRequest::from(request);
        self.note_begin(turn.now);
        self.waiting_bytes += request.size();
        self.waiting.push_back(Queued { request, hash, cost, target, begun: turn.now, moved: self.moved });
        turn.replies.tally.begun();
        Ok(())
    }

    fn check_room(&self, requests: usize, bytes: usize) -> Result<(), StoreError> {
        let config = &self.shared.config;
        if requests < config.in_flight_max && bytes < config.unsent_max {
            return Ok(());
        }
        self.shared.counters.failure(ErrorKind::Busy);
        Err(StoreError::new(ErrorKind::Busy, format!("too many requests wait for {}", config.endpoint.address)))
    }

    fn is_down(&self) -> String {
        format!("{} is not reachable: {}", self.shared.config.endpoint.address, self.shared.last_failure())
    }

    #[cold]
    fn fail_at_once(&self, reason: String) -> StoreError {
        self.shared.counters.failure(ErrorKind::Unreachable);
        StoreError::new(ErrorKind::Unreachable, reason).not_sent()
    }

    /// Encodes a request after what is to be sent.
    pub(super) fn send_later(
        &mut self,
        request: &Request<'_>,
        hash: u64,
        cost: u32,
        target: Target,
        begun: Instant,
        dialect: Dialect,
    ) -> Result<(), (Target, Failure)> {
        if self.in_flight.is_empty() && self.out.is_empty() {
            self.retains = true;
        }
        // More than can be in flight, and short.
        self.number = (self.number + 1) % (2 * self.shared.config.in_flight_max as u32);
        let start = self.out.len();
        let expect = match wire::encode(request, dialect, self.number, &mut self.out) {
            Ok(expect) => expect,
            Err(unsupported) => {
                let kind = if unsupported == NO_VERSIONS { ErrorKind::NoVersions } else { ErrorKind::Unsupported };
                self.shared.counters.failure(kind);
                return Err((target, Failure::new(kind, unsupported.0)));
            }
        };
        let (idempotent, span) = (request.verb.is_idempotent(), start..self.out.len());
        self.note_begin(begun);
        self.asked += cost as usize;
        let moved = self.moved;
        self.in_flight.push_back(Entry {
            target,
            expect,
            begun,
            moved,
            hash,
            cost,
            idempotent,
            has_waited: false,
            retried: false,
            span,
        });
        if self.out.len() > RETAINED_MAX {
            self.release();
        }
        Ok(())
    }

    /// Gives the bytes up that were kept to be sent again.
    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.retains) {
            self.drop_sent();
        }
    }

    fn drop_sent(&mut self) {
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            if self.out.capacity() > KEPT_BYTES {
                self.out = Vec::new();
            }
        } else if self.sent > self.out.len() / 2 {
            self.out.drain(..std::mem::take(&mut self.sent));
        }
    }

    /// Sends, receives, connects, gives up: whatever it is time for.
    #[inline]
    pub(crate) fn turn(&mut self, turn: &mut Turn<'_>) {
        if !self.sleeps {
            self.take_turn(turn);
        }
    }

    fn take_turn(&mut self, turn: &mut Turn<'_>) {
        match self.stage {
            Stage::Down { retry_at, recoveries } => {
                if turn.now >= retry_at || recoveries != self.shared.recoveries() {
                    self.connect(turn);
                }
            }
            Stage::Connecting { .. } => self.see_connected(turn),
            Stage::Up { .. } if self.check_at().is_some_and(|at| turn.now >= at) => self.begin_check(turn),
            Stage::Probing { .. } | Stage::Up { .. } => {}
        }
        if matches!(self.stage, Stage::Probing { .. } | Stage::Up { .. }) {
            let mut moved = self.exchange(turn);
            // This thread may have been held up: what is late here may have been here for long.
            if self.put_off && self.deadline().is_some_and(|deadline| deadline <= turn.now) {
                moved = moved.and_then(|()| self.receive(turn));
            }
            if self.is_large && moved.is_ok() && !self.waiting.is_empty() && !turn.only_receives {
                self.send_waiting(turn);
                moved = self.flush(turn).map(drop);
            }
            if let Err(failure) = moved {
                self.lose(failure, turn);
            }
        }
        if turn.now >= self.due || !matches!(self.stage, Stage::Up { .. }) {
            self.expire(turn);
        }
    }

    fn exchange(&mut self, turn: &mut Turn<'_>) -> Result<(), Failure> {
        let probing = matches!(self.stage, Stage::Probing { .. });
        let unsent = self.sent < self.out.len();
        // What the turn before left is received below, once.
        let left_unread = self.unread;
        let asked = !self.in_flight.front().is_none_or(|first| self.retains && first.span.start >= self.sent);
        let is_idle = || turn.now.saturating_duration_since(self.active) >= IDLE;
        if !probing && !left_unread && !asked && is_idle() {
            // No reply is expected: the only thing to receive is the connection's end.
            self.active = turn.now;
            self.receive(turn)?;
        }
        let may_send = probing || !turn.only_receives;
        let sent = unsent && may_send && self.flush(turn)?;
        let due = probing || left_unread || !self.in_flight.is_empty();
        self.put_off = due && sent && !self.put_off;
        if due && !self.put_off {
            self.receive(turn)?;
            // A connection that has just come up has had requests waiting.
            if probing && self.sent < self.out.len() {
                self.flush(turn)?;
            }
        }
        Ok(())
    }

    /// Sends what the kernel takes; true if it took anything.
    pub(super) fn flush(&mut self, turn: &Turn<'_>) -> Result<bool, Failure> {
        let Some(transport) = &mut self.transport else { return Ok(false) };
        let sent = match transport.send(&self.out[self.sent..]) {
            Ok(sent) => sent,
            Err(error) => return Err(self.broke(&error)),
        };
        self.sent += sent;
        let had_no_room = self.blocked;
        if had_no_room && sent > 0 {
            self.heard = turn.now;
            self.moved += sent as u64;
        }
        let blocked = self.sent < self.out.len();
        if blocked != self.blocked {
            watch_room(transport, turn.queue, blocked).map_err(|error| self.broke(&error))?;
            self.blocked = blocked;
        }
        if had_no_room || blocked {
            self.note_carrying(if had_no_room { sent } else { 0 });
        }
        if !self.retains {
            self.drop_sent();
        }
        Ok(sent > 0)
    }

    pub(super) fn broke(&self, error: &TransportError) -> Failure {
        Failure::unreachable(format!("the connection to {} broke: {error}", self.shared.config.endpoint.address))
    }

    pub(super) fn misbehaved(&self, what: &str) -> Failure {
        Failure::unreachable(format!("{} sent {what}", self.shared.config.endpoint.address))
    }

    /// Forgets what belonged to a connection that is gone.
    pub(super) fn forget_stream(&mut self) {
        self.transport = None;
        self.out.clear();
        self.input.clear();
        (self.sent, self.read, self.needed, self.skip) = (0, 0, 0, 0);
        (self.retains, self.blocked, self.unread, self.put_off) = (false, false, false, false);
        self.note_carrying(0);
    }

    /// Whether it has not been asked anything: it holds nothing, and waits for nothing.
    #[inline]
    pub(crate) fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Whether the next turn should come at once.
    #[inline]
    pub(crate) fn is_unread(&self) -> bool {
        self.unread
    }

    /// A moment up to which nothing is late that is waited for, by the client's clock; `None`: nothing is.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            _ if self.sleeps => None,
            Stage::Up { .. } => self.awaits().then_some(self.due),
            Stage::Down { .. } | Stage::Connecting { .. } | Stage::Probing { .. } => self.deadline_before_up(),
        }
    }

    /// When it is asked whether the server is still there, by the client's clock, if nothing happens before. None while a reply is
    /// waited for, which tells the same.
    #[inline]
    pub(crate) fn check_at(&self) -> Option<Instant> {
        let is_idle = matches!(self.stage, Stage::Up { .. }) && self.in_flight.is_empty();
        is_idle.then(|| self.heard + self.shared.config.check_after)
    }
}
