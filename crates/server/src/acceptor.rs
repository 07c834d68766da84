//! The thread that accepts connections, turns away those over the limit and hands the others to workers.
//!
//! One thread accepts for all workers, as in memcached, instead of a listening socket per worker (`SO_REUSEPORT`): the
//! kernel spreads connections over such sockets by a hash, so 50 connections over 2 workers may well come out 32 to 18,
//! and a connection never moves afterwards. Here each goes to the worker with the fewest, which is exactly even, and stays
//! even as connections close. The price, one wake of a worker per burst of connections, is paid when connecting only.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use moneta_net::{Transport, accept};
use moneta_process::phases::{Phase, Phases};
use rustix::io::Errno;

use crate::client_addresses::ClientAddresses;
use crate::config::ListenAddress;
use crate::counters::WorkerCounters;
use crate::error::ServerError;
use crate::handshakes::{Begun, Handshakes};
use crate::listener::Bound;
use crate::listener_state::ListenerState;
use crate::live::Live;
use crate::mailbox::Accepted;
use crate::node::{Peer, SocketKind};
use crate::spread::Spread;

/// What a client over the limit reads, in memcached's words.
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";
/// The same where its address has as many as it may.
const TOO_MANY_OF_ADDRESS: &[u8] = b"ERROR Too many open connections from this address\r\n";
/// How long accepting pauses when the process is out of descriptors or memory: until then a connection may close, and retrying
/// at once would only burn CPU.
const REST: Duration = Duration::from_millis(100);
/// Connections that are accepted of a listener before the others have their turn.
const TURN: usize = 16;
/// The accepting thread's state.
pub(crate) struct Acceptor {
    poll: Poll,
    listeners: Vec<(Bound, Arc<ListenerState>)>,
    /// Whether connections may wait at each of them: events are edge-triggered, so what is left raises no further one.
    waiting: Vec<bool>,
    handshakes: Handshakes,
    spread: Arc<Spread>,
    counters: Arc<WorkerCounters>,
    phases: Arc<Phases>,
    live: Arc<Live>,
    addresses: ClientAddresses,
    next_id: u64,
}

impl Acceptor {
    /// An acceptor that spreads connections of `listeners` over workers, some after `handshakes`; `poll` has its waker registered as
    /// [`crate::wake::WAKE`].
    #[expect(clippy::too_many_arguments, reason = "the parts of a thread, given once")]
    pub(crate) fn new(
        poll: Poll,
        listeners: Vec<(Bound, Arc<ListenerState>)>,
        handshakes: Handshakes,
        spread: Arc<Spread>,
        counters: Arc<WorkerCounters>,
        phases: Arc<Phases>,
        live: Arc<Live>,
        addresses: ClientAddresses,
    ) -> Result<Self, ServerError> {
        for (index, (bound, _)) in listeners.iter().enumerate() {
            poll.registry()
                .register(&mut SourceFd(&bound.as_fd().as_raw_fd()), Token(index), Interest::READABLE)
                .map_err(|source| ServerError::Start { what: "the acceptor", source })?;
        }
        let waiting = vec![true; listeners.len()];
        Ok(Self { poll, listeners, waiting, handshakes, spread, counters, phases, live, addresses, next_id: 1 })
    }

    /// Accepts until the server drains, and starts the drain when the lame-duck time is over. Closes the listeners at the end.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(64);
        let mut resting_until: Option<Instant> = None;
        let mut leaving_at: Option<Instant> = None;
        while self.phases.phase() <= Phase::LameDuck {
            let now = Instant::now();
            if self.phases.phase() == Phase::LameDuck
                && now >= *leaving_at.get_or_insert_with(|| now + self.phases.lame_duck())
            {
                self.phases.enter(Phase::Draining);
                break;
            }
            let goes_on = resting_until.is_none() && (0..self.listeners.len()).any(|index| self.may_accept(index));
            let timeout = goes_on
                .then_some(now)
                .into_iter()
                .chain(resting_until)
                .chain(leaving_at)
                .min()
                .map(|until| until - now.min(until));
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "cannot wait for connections");
                self.phases.enter(Phase::Stopping);
            }
            for event in &events {
                if let Some(waiting) = self.waiting.get_mut(event.token().0) {
                    *waiting = true;
                }
            }
            if resting_until.is_some_and(|until| Instant::now() < until) {
                continue;
            }
            resting_until = self.accept_some().err().map(|error| {
                tracing::warn!(%error, "cannot accept connections for now");
                self.counters.listen_disabled_num.bump();
                Instant::now() + REST
            });
        }
    }

    /// Accepts a few pending connections of every listener: a flood at one of them leaves the others theirs, and a stop is
    /// noticed. Fails when the process is out of descriptors or memory.
    fn accept_some(&mut self) -> Result<(), Errno> {
        for index in 0..self.listeners.len() {
            for _ in 0..TURN {
                if !self.may_accept(index) {
                    break;
                }
                match self.accept_one(index)? {
                    Some((transport, address)) => self.hand_over(index, transport, address),
                    None => {
                        self.waiting[index] = false;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether connections may wait at a listener and could be served. Where TLS has no room, the kernel keeps them.
    fn may_accept(&self, index: usize) -> bool {
        self.waiting[index] && (self.listeners[index].0.tls.is_none() || self.handshakes.have_room())
    }

    fn accept_one(&self, index: usize) -> Result<Option<(Transport, Option<SocketAddr>)>, Errno> {
        loop {
            match accept(&self.listeners[index].0) {
                Ok(accepted) => return Ok(accepted),
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => return Err(error),
                // The client has gone, or a network error of this one connection (accept(2)).
                Err(error) => tracing::debug!(%error, "a connection was lost before it was accepted"),
            }
        }
    }

    fn hand_over(&mut self, index: usize, mut transport: Transport, address: Option<SocketAddr>) {
        let (bound, listener_state) = &self.listeners[index];
        let has_place = listener_state.has_reserved_place() || self.shared_places_taken() < self.live.max_connections();
        let of_address = match address {
            Some(address) if has_place && self.addresses.are_limited() => {
                let Some(permit) = self.addresses.admit(address.ip()) else {
                    self.counters.rejected_connections.bump();
                    listener_state.count_rejected();
                    return turn_away(bound, &mut transport, TOO_MANY_OF_ADDRESS);
                };
                Some(permit)
            }
            _ => None,
        };
        let Some(permit) = has_place.then(|| listener_state.admit(of_address)).flatten() else {
            self.counters.rejected_connections.bump();
            listener_state.count_rejected();
            return turn_away(bound, &mut transport, TOO_MANY);
        };
        let kind = match bound.address {
            ListenAddress::Tcp(_) => SocketKind::Tcp,
            ListenAddress::Unix { .. } => SocketKind::Unix,
        };
        let (id, commands) = (self.next_id, listener_state.commands);
        let guarded_as = listener_state.guarded_as.clone();
        let (certificate, encrypted) = (None, kind == SocketKind::Unix);
        let (policy, door) = (bound.policy, bound.door);
        let user = None;
        let peer = Peer { id, kind, policy, door, commands, address, guarded_as, certificate, user, encrypted };
        self.next_id += 1;
        self.counters.total_connections.bump();
        let accepted = Accepted { transport, peer, permit };
        match bound.tls.clone() {
            None => self.spread.deliver(accepted),
            Some(acceptor) => self.handshakes.begin(Begun { accepted, acceptor }),
        }
    }

    /// Connections open, without those in places that are set aside for a listener.
    fn shared_places_taken(&self) -> usize {
        let open = self.spread.open() + self.handshakes.held();
        let reserved: usize = self.listeners.iter().map(|(_, state)| state.reserved_places_taken()).sum();
        open.saturating_sub(reserved)
    }
}

/// Closes a connection that has no place. What a client reads then can not be protected, so with TLS that is all.
fn turn_away(bound: &Bound, transport: &mut Transport, line: &[u8]) {
    if bound.tls.is_none() {
        // A new socket has room for one line; if not, the client still sees the close.
        let _ = transport.send(line);
    }
}
