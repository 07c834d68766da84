//! A thread that goes on with many handshakes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use moneta_net::{Opening, TransportError};
use moneta_process::phases::{Phase, Phases};
use slab::Slab;

use super::desk::{Begun, Desk};
use crate::counters::WorkerCounters;
use crate::mailbox::{Accepted, Handle};
use crate::scheduling;
use crate::spread::Spread;
use crate::wake::WAKE;

/// Time that a client may let pass, over its whole handshake, before another may take its place: round trips of a network, but no
/// pause of a client.
const GRACE: Duration = Duration::from_millis(100);
/// How soon those that wait for a place look for one again.
const LOOK: Duration = Duration::from_millis(20);
/// Entries in the order that are left over from ended handshakes before they are removed.
const LEFT_OVER: usize = 1024;

/// A thread's state.
pub(crate) struct HandshakeThread {
    poll: Poll,
    desk: Arc<Desk>,
    spread: Arc<Spread>,
    counters: Arc<WorkerCounters>,
    phases: Arc<Phases>,
    most: usize,
    timeout: Duration,
    under_way: Slab<Handshake>,
    /// From the oldest on; some have ended.
    order: VecDeque<Handle>,
}

struct Handshake {
    accepted: Accepted,
    began: Instant,
    /// Since when this side waits for the client.
    since: Instant,
    /// How long it has waited before that.
    waited: Duration,
}

impl HandshakeThread {
    /// A thread at `desk` with at most `most` handshakes of at most `timeout`; `poll` has its waker registered as [`WAKE`].
    pub(crate) fn new(
        poll: Poll,
        desk: Arc<Desk>,
        spread: Arc<Spread>,
        counters: Arc<WorkerCounters>,
        phases: Arc<Phases>,
        most: usize,
        timeout: Duration,
    ) -> Self {
        let (under_way, order) = (Slab::new(), VecDeque::new());
        Self { poll, desk, spread, counters, phases, most, timeout, under_way, order }
    }

    /// Works until the server drains: who is not connected by then has asked nothing.
    pub(crate) fn run(mut self) {
        scheduling::step_back();
        let mut events = Events::with_capacity(self.most.clamp(1, 1024));
        while self.phases.phase() <= Phase::LameDuck {
            if let Err(error) = self.poll.poll(&mut events, self.pause())
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "cannot wait for handshakes");
                self.phases.enter(Phase::Stopping);
            }
            let now = Instant::now();
            events.iter().filter(|event| event.token() != WAKE).for_each(|event| self.go_on(event.token().0, now));
            self.end_overdue(now);
            self.take(now);
        }
    }

    /// How long there is nothing to do without an event.
    fn pause(&self) -> Option<Duration> {
        let overdue = self.order.front().and_then(|oldest| self.under_way.get(oldest.slot));
        let overdue = overdue.map(|oldest| (oldest.began + self.timeout).saturating_duration_since(Instant::now()));
        let look = (self.desk.waiting() > 0).then_some(LOOK);
        overdue.into_iter().chain(look).min()
    }

    /// Goes on with a handshake that had an event before `now`.
    fn go_on(&mut self, slot: usize, now: Instant) {
        // An event of one that ended in this batch finds an empty slot, or another one, which it does no harm.
        let Some(handshake) = self.under_way.get_mut(slot) else { return };
        handshake.waited += now.saturating_duration_since(handshake.since);
        match handshake.accepted.transport.open() {
            Ok(Opening::UnderWay) => handshake.since = Instant::now(),
            Ok(Opening::Done) => self.finish(slot),
            Err(error) => {
                let handshake = self.end(slot);
                self.fail(&handshake.accepted, &error);
            }
        }
    }

    fn finish(&mut self, slot: usize) {
        let Handshake { mut accepted, .. } = self.take_out(slot);
        let descriptor = accepted.transport.as_raw_fd();
        if let Err(error) = self.poll.registry().deregister(&mut SourceFd(&descriptor)) {
            tracing::debug!(connection = accepted.peer.id, %error, "still waited for after its handshake");
        }
        accepted.peer.certificate = accepted.transport.certificate_names().cloned();
        accepted.peer.encrypted = true;
        let counter = match accepted.transport.tls() {
            Some(tls) if tls.is_resumed => &self.counters.tls_handshakes_resumed,
            _ => &self.counters.tls_handshakes_done,
        };
        counter.bump();
        // Counted twice rather than not at all for a moment.
        self.spread.deliver(accepted);
        self.desk.ended_one();
    }

    fn fail(&self, accepted: &Accepted, error: &TransportError) {
        let counters = &self.counters;
        counters.failed_connections.bump();
        let counter = match error {
            TransportError::Tls(failure) if failure.is_of_certificate() => &counters.tls_handshakes_certificate,
            TransportError::Tls(failure) if failure.is_of_plain_text() => &counters.tls_handshakes_plain_text,
            TransportError::Tls(failure) if failure.is_of_other_side() => &counters.tls_handshakes_refused,
            TransportError::Tls(_) => &counters.tls_handshakes_protocol,
            _ => &counters.tls_handshakes_lost,
        };
        counter.bump();
        let (connection, address) = (accepted.peer.id, accepted.peer.address);
        tracing::debug!(connection, ?address, %error, "the handshake failed");
    }

    /// Closes those that have taken too long.
    fn end_overdue(&mut self, now: Instant) {
        while let Some(&oldest) = self.order.front() {
            if let Some(handshake) = self.of(oldest) {
                if now.saturating_duration_since(handshake.began) < self.timeout {
                    break;
                }
                self.end(oldest.slot);
                self.counters.tls_handshakes_timeout.bump();
                self.counters.failed_connections.bump();
            }
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.under_way.len() + LEFT_OVER {
            let under_way = &self.under_way;
            self.order.retain(|handle| is_of(under_way, *handle));
        }
    }

    /// Begins those that wait, as far as there is room or room can be made.
    fn take(&mut self, now: Instant) {
        let waiting = self.desk.waiting();
        let lacking = (self.under_way.len() + waiting).saturating_sub(self.most);
        if lacking > 0 {
            self.make_room(lacking, now);
        }
        for begun in self.desk.take(self.most.saturating_sub(self.under_way.len())) {
            self.begin(begun);
        }
    }

    /// Closes the oldest whose clients have let enough time pass, as they were at `now`, up to `count`.
    fn make_room(&mut self, count: usize, now: Instant) {
        let is_late = |handle: &Handle| {
            let waits =
                |handshake: &Handshake| handshake.waited + now.saturating_duration_since(handshake.since) >= GRACE;
            self.of(*handle).is_some_and(waits)
        };
        let late: Vec<Handle> = self.order.iter().copied().filter(is_late).take(count).collect();
        for handle in late {
            self.end(handle.slot);
            self.counters.tls_handshakes_displaced.bump();
            self.counters.failed_connections.bump();
        }
    }

    fn begin(&mut self, begun: Begun) {
        let Begun { mut accepted, acceptor } = begun;
        let (id, descriptor) = (accepted.peer.id, accepted.transport.as_raw_fd());
        match acceptor.protect(accepted.transport) {
            Ok(transport) => accepted.transport = transport,
            Err(error) => {
                tracing::warn!(%error, "no handshake can begin");
                self.counters.tls_handshakes_protocol.bump();
                self.counters.failed_connections.bump();
                return self.desk.ended_one();
            }
        }
        let now = Instant::now();
        let slot = self.under_way.insert(Handshake { accepted, began: now, since: now, waited: Duration::ZERO });
        self.order.push_back(Handle { slot, id });
        self.counters.tls_handshakes_under_way.bump();
        let interest = Interest::READABLE | Interest::WRITABLE;
        // What is there already raises an event, too.
        if let Err(error) = self.poll.registry().register(&mut SourceFd(&descriptor), Token(slot), interest) {
            let handshake = self.end(slot);
            tracing::debug!(connection = handshake.accepted.peer.id, %error, "cannot be waited for");
            self.counters.tls_handshakes_lost.bump();
            self.counters.failed_connections.bump();
        }
    }

    fn of(&self, handle: Handle) -> Option<&Handshake> {
        self.under_way.get(handle.slot).filter(|_| is_of(&self.under_way, handle))
    }

    /// Ends one that gets no worker.
    fn end(&mut self, slot: usize) -> Handshake {
        self.desk.ended_one();
        self.take_out(slot)
    }

    fn take_out(&mut self, slot: usize) -> Handshake {
        self.counters.tls_handshakes_under_way.drop_one();
        self.under_way.remove(slot)
    }
}

fn is_of(under_way: &Slab<Handshake>, handle: Handle) -> bool {
    under_way.get(handle.slot).is_some_and(|handshake| handshake.accepted.peer.id == handle.id)
}
