//! A worker thread: an event loop and the connections that live on it.
//!
//! Events are edge-triggered, so a connection is registered once, and once more if its socket is ever full. A turn of the loop
//! takes events from the kernel and the mailbox, gives each affected connection one turn, and then serves those that have more to
//! do. Only the mailbox and the registry are shared with other threads.
//!
//! Batch connections wait in a separate queue, which is served for a slice of time between two polls for events: an online
//! request waits for one slice, however much a bulk load sends.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use moneta_process::phases::{Phase, Phases};
use moneta_store::{ClientTag, Cx, Door, Store};
use slab::Slab;

use crate::address::client_tag;
use crate::auth::AuthMode;
use crate::by_policy::ByPolicy;
use crate::client_memory::SCARCE_SECONDS;
use crate::connection::{Connection, Turn, Verdict};
use crate::connection_registry::ConnectionRegistry;
use crate::counters::WorkerCounters;
use crate::mailbox::{Accepted, Handle, Mailbox, connection_waker};
use crate::node::{Node, Policy};
use crate::reactors::{REACTOR, WorkerReactors};
use crate::scheduling;
use crate::session::limited::SessionLimits;
use crate::session::login::Overdue;
use crate::session::{CloseReason, Session, Worker};
use crate::wake::WAKE;

/// Most bytes that a connection reads in one turn, unless a larger request is arriving: about 1,800 short reads. Larger buffers
/// save few system calls and exceed the cache.
const RECEIVE_BYTES: usize = 64 * 1024;
/// How long connections with more to do are served before the loop polls for events again.
const READY_SLICE: Duration = Duration::from_micros(200);
/// How long batch connections are served before the loop polls for events again.
const BATCH_SLICE: Duration = Duration::from_micros(50);
/// An output buffer that has grown past this is freed.
const OUTPUT_KEPT: usize = 1024 * 1024;
/// Events taken from the kernel at once.
const EVENTS: usize = 512;
/// How long the loop takes more requests, while some come, before it submits I/O that gains by them.
const GATHERING: Duration = Duration::from_micros(200);
/// How long replies to pipelined requests may wait for those after them, to be sent together.
const HELD_BACK: Duration = Duration::from_millis(5);
/// How often to look for connections that are idle, or hold memory for too long.
const SCAN: Duration = Duration::from_secs(1);

/// Configuration of every worker of a server.
#[derive(Clone)]
pub(crate) struct Limits {
    /// Whether connections are closed because of their log-in, or for being idle by a time of their listener.
    pub(crate) closes_idle: bool,
    /// How long to look for events before sleeping; see [`crate::config::ServerConfig::busy_poll`].
    pub(crate) busy_poll: Duration,
}

/// Seconds after which a watcher that does not read is closed.
const WATCH_STALL: u32 = 60;

/// Tells the largest holders of memory to close, if client memory is that scarce.
fn relieve(registry: &ConnectionRegistry, node: &Node) {
    let excess = node.client_memory.excess();
    if excess > 0 {
        say_closed(registry.condemn(excess, None, &node.client_memory), node);
    }
}

fn say_closed(connections: usize, node: &Node) {
    if connections > 0 {
        let (held, limit) = (node.client_memory.total(), node.client_memory.limit());
        tracing::warn!(connections, held, limit, "memory for clients is scarce: closing those that hold most of it");
    }
}

/// The workers of the calling thread's sessions that came through `door`, for each policy; their operations use `reactors`.
pub(crate) fn workers(
    store: &Arc<dyn Store>,
    node: &Arc<Node>,
    counters: &Arc<WorkerCounters>,
    reactors: &WorkerReactors,
    door: Door,
) -> ByPolicy<Worker> {
    let worker = |policy| Worker {
        store: Arc::clone(store),
        cx: Cx::of_worker(policy, reactors.reactors()).through(door),
        node: Arc::clone(node),
        counters: Arc::clone(counters),
    };
    ByPolicy { online: worker(Policy::Online), batch: worker(Policy::Batch) }
}

/// An event loop with its connections.
pub(crate) struct EventLoop {
    poll: Poll,
    reactors: WorkerReactors,
    /// One for each policy; they differ only in that.
    workers: ByPolicy<Worker>,
    /// The same for each other door than the common one, from the first on.
    doors: Vec<ByPolicy<Worker>>,
    mailbox: Arc<Mailbox>,
    registry: Arc<ConnectionRegistry>,
    phases: Arc<Phases>,
    limits: Limits,
    connections: Slab<Connection>,
    /// Connections that have a turn without an event.
    ready: Vec<Handle>,
    /// All batch connections that have a turn.
    batch: VecDeque<Handle>,
    /// Connections that began to hold replies back, and until when they may, in that order.
    held_back: VecDeque<(Instant, Handle)>,
    input: Vec<u8>,
    output: Vec<u8>,
    next_scan: Instant,
    /// Number of user reloads, and the generation of users, at the last check of log-ins.
    reloads_seen: (u64, u64),
    drain_until: Option<Instant>,
}

impl EventLoop {
    /// A loop without connections, for the calling thread; `poll` has the mailbox's waker registered as [`WAKE`] and watches
    /// `reactors`, which `workers` and those of the other `doors` use.
    #[expect(clippy::too_many_arguments, reason = "the parts of a loop, given once")]
    pub(crate) fn new(
        poll: Poll,
        reactors: WorkerReactors,
        workers: ByPolicy<Worker>,
        doors: Vec<ByPolicy<Worker>>,
        mailbox: Arc<Mailbox>,
        registry: Arc<ConnectionRegistry>,
        phases: Arc<Phases>,
        limits: Limits,
    ) -> Self {
        Self {
            poll,
            reactors,
            workers,
            doors,
            mailbox,
            registry,
            phases,
            limits,
            connections: Slab::new(),
            ready: Vec::new(),
            batch: VecDeque::new(),
            held_back: VecDeque::new(),
            input: Vec::with_capacity(RECEIVE_BYTES),
            output: Vec::new(),
            reloads_seen: (0, 0),
            next_scan: Instant::now() + SCAN,
            drain_until: None,
        }
    }

    /// Serves until the server stops. Each begin and end of a turn counts as a beat of the [`Mailbox`].
    pub(crate) fn run(mut self) {
        let mailbox = Arc::clone(&self.mailbox);
        let _owned = mailbox.own();
        scheduling::ask();
        let mut events = Events::with_capacity(EVENTS);
        let mut letters = (Vec::new(), Vec::new());
        let mut due = Vec::new();
        let (mut gathering_since, mut is_quiet) = (None, false);
        while !self.is_over() {
            let gathers = !is_quiet
                && self.reactors.gathers()
                && gathering_since.get_or_insert_with(Instant::now).elapsed() < GATHERING;
            if !gathers {
                self.reactors.submit();
                gathering_since = None;
            }
            self.collect(&mut letters);
            self.release();
            let timeout = if gathers { Some(Duration::ZERO) } else { self.timeout() };
            self.mailbox.beat();
            let waited = self.wait(&mut events, timeout);
            self.mailbox.beat();
            if let Err(error) = waited
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "cannot wait for events");
                self.phases.enter(Phase::Stopping);
            }
            is_quiet = gathers && events.is_empty();
            self.workers.online.node.clock.refresh();
            if self.reactors.any() && events.iter().any(|event| event.token() == REACTOR) {
                self.reactors.reap();
                self.collect(&mut letters);
            }
            for event in &events {
                let Token(slot) = event.token();
                if matches!(event.token(), WAKE | REACTOR) {
                    continue;
                }
                // An event of a connection that closed earlier in this batch finds an empty slot or a new connection. The
                // latter is harmless: at worst it costs one empty read.
                if let Some(connection) = self.connections.get_mut(slot) {
                    // The next call on the socket returns the error.
                    let lost = event.is_error();
                    connection.note(event.is_readable(), event.is_writable() || lost, event.is_read_closed() || lost);
                    match connection.policy() {
                        Policy::Online => {
                            self.turn(slot);
                            self.reactors.after_connection();
                        }
                        Policy::Batch => {
                            let handle = Handle { slot, id: connection.id() };
                            self.queue(handle);
                        }
                    }
                }
            }
            self.turn_ready(&mut due);
            self.turn_batch();
            self.close_idle();
        }
        self.close_all();
        // No turn goes on.
        self.mailbox.beat();
    }

    /// Waits for events, at first without sleeping where that is asked for.
    #[inline]
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        if !self.limits.busy_poll.is_zero() && timeout != Some(Duration::ZERO) {
            let began = Instant::now();
            while began.elapsed() < self.limits.busy_poll {
                self.poll.poll(events, Some(Duration::ZERO))?;
                if !events.is_empty() {
                    return Ok(());
                }
            }
        }
        self.poll.poll(events, timeout)
    }

    /// Takes the contents of the mailbox, through two lists that are kept for their memory.
    #[inline]
    fn collect(&mut self, letters: &mut (Vec<Accepted>, Vec<Handle>)) {
        if !self.mailbox.is_empty() {
            self.collect_some(letters);
        }
    }

    #[inline(never)]
    fn collect_some(&mut self, (accepted, woken): &mut (Vec<Accepted>, Vec<Handle>)) {
        self.mailbox.collect(accepted, woken);
        if !accepted.is_empty() {
            accepted.drain(..).for_each(|accepted| self.open(accepted));
        }
        woken.iter().for_each(|&handle| self.queue(handle));
        woken.clear();
    }

    /// Whether nothing is left to do. Begins the drain when the phase says so.
    fn is_over(&mut self) -> bool {
        match self.phases.phase() {
            Phase::Running | Phase::LameDuck => false,
            Phase::Stopping => true,
            Phase::Draining => {
                let until = *self
                    .drain_until
                    .get_or_insert_with(|| Instant::now() + self.workers.online.node.live.drain_timeout());
                self.drain();
                (self.connections.is_empty() && self.mailbox.open() == 0) || Instant::now() >= until
            }
        }
    }

    /// Gives every connection that is not queued a turn, in which it closes if it is done.
    fn drain(&mut self) {
        let idle: Vec<usize> = self.connections.iter().filter(|(_, open)| !open.queued).map(|(slot, _)| slot).collect();
        for slot in idle {
            self.connections[slot].note(true, false, false);
            self.turn(slot);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() || !self.batch.is_empty() {
            return Some(Duration::ZERO);
        }
        let scan = self.scans().then_some(self.next_scan);
        let release = self.held_back.front().map(|(until, _)| *until);
        let next = [scan, release, self.drain_until].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Has replies that have been held back for long sent.
    #[inline]
    fn release(&mut self) {
        while let Some(&(until, handle)) = self.held_back.front() {
            if let Some(connection) = self.connections.get_mut(handle.slot)
                && connection.id() == handle.id
            {
                let holds_back = connection.session().holds_back();
                if holds_back && Instant::now() < until {
                    return;
                }
                connection.awaits_release = false;
                if holds_back {
                    connection.session().release();
                    self.turn(handle.slot);
                }
            }
            self.held_back.pop_front();
        }
    }

    /// Whether connections are closed for being idle, or because of their log-in.
    fn closes_idle(&self) -> bool {
        self.limits.closes_idle || self.workers.online.node.live.idle_seconds() > 0
    }

    /// Whether there is anything that has to be checked once a second.
    fn scans(&self) -> bool {
        let node = &self.workers.online.node;
        let watched = node.watchers.has_watchers() || node.is_dumping();
        self.closes_idle() || watched || node.client_memory.scarcity() > 0
    }

    fn open(&mut self, accepted: Accepted) {
        let Accepted { transport, peer, permit } = accepted;
        let slot = self.connections.vacant_entry();
        let handle = Handle { slot: slot.key(), id: peer.id };
        let waker = connection_waker(&self.mailbox, handle);
        let now = self.workers.online.node.clock.now();
        let entry = self.registry.enter(&peer, Arc::clone(permit.name()), waker.clone(), now);
        let (id, address) = (peer.id, peer.address);
        let mut session = Session::new(peer);
        let allowances = permit.allowances();
        if !allowances.is_empty() {
            session.limit(SessionLimits::of(allowances));
        }
        let client = address.map_or(ClientTag::NONE, |address| client_tag(address.ip()));
        let holds_received = transport.holds_received();
        if transport.is_protected() {
            self.workers.online.counters.tls_connections.bump();
        }
        let connection = slot.insert(Connection::new(id, client, transport, session, entry, permit, waker));
        let descriptor = connection.descriptor();
        connection.session().opened(&self.workers.online);
        self.workers.online.counters.curr_connections.bump();
        tracing::debug!(connection = id, ?address, "opened");
        let registered =
            self.poll.registry().register(&mut SourceFd(&descriptor), Token(handle.slot), Interest::READABLE);
        if let Err(error) = registered {
            tracing::debug!(connection = id, %error, "cannot be waited for");
            return self.close(handle.slot, CloseReason::Error);
        }
        if holds_received {
            // What came with the end of the handshake raises no event.
            self.connections[handle.slot].note(true, false, false);
            self.queue(handle);
        }
    }

    fn queue(&mut self, handle: Handle) {
        if let Some(connection) = self.connections.get_mut(handle.slot)
            && connection.id() == handle.id
            && !connection.queued
        {
            connection.queued = true;
            match connection.policy() {
                Policy::Online => self.ready.push(handle),
                Policy::Batch => self.batch.push_back(handle),
            }
        }
    }

    fn turn_queued(&mut self, handle: Handle) {
        if let Some(connection) = self.connections.get_mut(handle.slot)
            && connection.id() == handle.id
        {
            connection.queued = false;
            self.turn(handle.slot);
        }
    }

    /// Serves connections with more to do for a slice, through a list that is kept for its memory. Then new events come first, so
    /// that a request waits for one slice and not for a turn of each busy connection.
    fn turn_ready(&mut self, due: &mut Vec<Handle>) {
        if self.ready.is_empty() {
            return;
        }
        std::mem::swap(&mut self.ready, due);
        // A single connection needs no time limit.
        let until = (due.len() > 1).then(|| Instant::now() + READY_SLICE);
        let mut served = 0;
        while let Some(&handle) = due.get(served) {
            self.turn_queued(handle);
            self.reactors.after_connection();
            served += 1;
            if served < due.len() && until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        due.drain(..served);
        // Connections that were not served go before those that want another turn.
        due.append(&mut self.ready);
        std::mem::swap(&mut self.ready, due);
    }

    /// Serves the queue of batch connections for a slice.
    fn turn_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let until = Instant::now() + BATCH_SLICE;
        while let Some(handle) = self.batch.pop_front() {
            self.turn_queued(handle);
            self.reactors.after_connection();
            if Instant::now() >= until {
                break;
            }
        }
    }

    #[inline]
    fn turn(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let workers = match connection.door() {
            Door::COMMON => &self.workers,
            Door(number) => &self.doors[usize::from(number) - 1],
        };
        let mut turn = Turn {
            worker: workers.of(connection.policy()),
            input: &mut self.input,
            output: &mut self.output,
            draining: self.drain_until.is_some(),
            grew: false,
        };
        turn.worker.cx.set_client(connection.client());
        let verdict = connection.turn(&mut turn);
        let grew = turn.grew;
        self.output.clear();
        if self.output.capacity() > OUTPUT_KEPT {
            self.output = Vec::new();
        }
        if connection.begins_to_watch_writing() && !matches!(verdict, Verdict::Close(_)) {
            // If the socket is already writable again, that raises an event, too.
            let interest = Interest::READABLE | Interest::WRITABLE;
            let descriptor = connection.descriptor();
            if let Err(error) = self.poll.registry().reregister(&mut SourceFd(&descriptor), Token(slot), interest) {
                tracing::debug!(connection = connection.id(), %error, "cannot be waited for");
                return self.close(slot, CloseReason::Error);
            }
        }
        if grew {
            relieve(&self.registry, &self.workers.online.node);
        }
        if connection.session().holds_back() && !std::mem::replace(&mut connection.awaits_release, true) {
            self.held_back.push_back((Instant::now() + HELD_BACK, Handle { slot, id: connection.id() }));
        }
        match verdict {
            Verdict::Wait => {}
            Verdict::Again => {
                let handle = Handle { slot, id: connection.id() };
                self.workers.online.counters.conn_yields.bump();
                self.queue(handle);
            }
            Verdict::Close(reason) => self.close(slot, reason),
        }
    }

    /// Once a second, looks for connections that are idle, or hold memory for too long while it is scarce.
    fn close_idle(&mut self) {
        if !self.scans() {
            return;
        }
        let now = Instant::now();
        if now < self.next_scan {
            return;
        }
        self.next_scan = now + SCAN;
        self.relieve_scarcity();
        let node = &self.workers.online.node;
        let dumping = node.is_dumping();
        if !self.closes_idle() && !dumping && !node.watchers.has_watchers() {
            return;
        }
        let second = self.workers.online.node.clock.now();
        let seconds = self.workers.online.node.live.dump_seconds();
        let is_over = |connection: &Connection| {
            connection.is_idle(second) || (dumping && connection.stalls_dump(second, seconds))
        };
        let idle = self.connections.iter().filter(|(_, connection)| is_over(connection));
        for slot in idle.map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.workers.online.counters.idle_kicks.bump();
            self.close(slot, CloseReason::IdleTimeout);
        }
        self.close_over_logins();
        self.close_stalled_watchers(second);
    }

    /// Closes watchers that do not read.
    fn close_stalled_watchers(&mut self, second: u32) {
        let is_stalled = |connection: &mut Connection| connection.is_stalled_watcher(second, WATCH_STALL);
        let stalled =
            self.connections.iter_mut().filter_map(|(slot, connection)| is_stalled(connection).then_some(slot));
        for slot in stalled.collect::<Vec<_>>() {
            self.workers.online.counters.watcher_kicks.bump();
            self.close(slot, CloseReason::IdleTimeout);
        }
    }

    /// Closes connections that have not logged in in time, failed too often, or whose users were removed.
    fn close_over_logins(&mut self) {
        let worker = &self.workers.online;
        let users = worker.node.users.as_ref();
        if worker.node.authenticator.mode() == AuthMode::Off && users.is_none() {
            return;
        }
        let reloads = (worker.node.authenticator.reloads(), users.map_or(0, |users| users.generation()));
        let reloaded = std::mem::replace(&mut self.reloads_seen, reloads) != reloads;
        let overdue: Vec<_> = self
            .connections
            .iter_mut()
            .filter_map(|(slot, connection)| Some((slot, connection.session().overdue(worker, reloaded)?)))
            .collect();
        for (slot, why) in overdue {
            let counters = &self.workers.online.counters;
            match why {
                Overdue::Failures => counters.login_kicks_failures.bump(),
                Overdue::Timeout => counters.login_kicks_timeout.bump(),
                Overdue::Removed => counters.login_kicks_removed.bump(),
            }
            self.close(slot, CloseReason::Error);
        }
    }

    /// Tells connections that have held memory for long to close while it is scarce.
    fn relieve_scarcity(&self) {
        let node = &self.workers.online.node;
        let excess = node.client_memory.scarcity();
        if excess > 0 {
            let before = node.clock.now().saturating_sub(SCARCE_SECONDS);
            say_closed(self.registry.condemn(excess, Some(before), &node.client_memory), node);
        }
    }

    /// Ends a connection, at once or when its changes in progress have ended.
    fn close(&mut self, slot: usize, reason: CloseReason) {
        let connection = &mut self.connections[slot];
        if reason == CloseReason::Memory {
            self.workers.online.counters.memory_kicks.bump();
        }
        if connection.leave(&self.workers.online, reason) {
            let handle = Handle { slot, id: connection.id() };
            return self.queue(handle);
        }
        self.remove(slot, reason);
    }

    /// Closes a connection. Closing its socket also removes it from the event queue.
    fn remove(&mut self, slot: usize, reason: CloseReason) {
        let mut connection = self.connections.remove(slot);
        connection.session().closed(&self.workers.online, reason);
        connection.release(&self.workers.online);
        self.registry.strike(connection.entry());
        self.workers.online.counters.curr_connections.drop_one();
        if connection.is_protected() {
            self.workers.online.counters.tls_connections.drop_one();
        }
        if reason == CloseReason::Error {
            self.workers.online.counters.failed_connections.bump();
        }
        tracing::debug!(connection = connection.id(), ?reason, "closed");
        drop(connection);
        self.mailbox.closed_one();
    }

    fn close_all(&mut self) {
        let left: Vec<usize> = self.connections.iter().map(|(slot, _)| slot).collect();
        if !left.is_empty() {
            tracing::info!(connections = left.len(), "closing connections with work in flight");
        }
        for slot in left {
            self.remove(slot, CloseReason::Shutdown);
        }
    }
}
