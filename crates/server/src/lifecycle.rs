//! The phases of a server, shared by all of its threads.
//!
//! ```text
//! running ──> lame duck ──> draining ──> stopping
//!    └────────────┴──────────────────────^
//! ```
//! Running: connections are accepted and served. Lame duck: the same, but `/readyz` already fails, so that load balancers stop
//! using the node before it refuses connections; skipped unless a time is set. Draining: no connections are accepted, requests
//! in flight are finished, and a connection is closed as soon as it has nothing left. Stopping: everything is closed at once.
//! A phase never changes to an earlier one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::node::Lifecycle;

/// The phase of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Accepting and serving.
    Running,
    /// Accepting and serving, for clients that do not know yet that the node is leaving.
    LameDuck,
    /// Finishing what is in flight.
    Draining,
    /// Closing everything.
    Stopping,
}

impl Phase {
    /// The phase's name, for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::LameDuck => "draining: still accepting",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        }
    }
}

/// The current phase, and the wakers to call when it changes.
#[derive(Debug, Default)]
pub(crate) struct Stopper {
    phase: AtomicU8,
    /// How long the server keeps accepting before it drains.
    lame_duck: Duration,
    // Taken a few times in a server's life, by the signal thread, a worker or the admin side.
    wakers: Mutex<Vec<Arc<mio::Waker>>>,
}

impl Stopper {
    /// A running server that keeps accepting for `lame_duck` before it drains.
    pub(crate) fn new(lame_duck: Duration) -> Self {
        Self { lame_duck, ..Self::default() }
    }

    /// How long it accepts on when it is to drain.
    pub(crate) fn lame_duck(&self) -> Duration {
        self.lame_duck
    }

    /// Begins to leave: enters the lame-duck phase if it has a duration, else drains.
    pub(crate) fn leave(&self) {
        self.enter(if self.lame_duck.is_zero() { Phase::Draining } else { Phase::LameDuck });
    }

    /// The phase now.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::LameDuck,
            2 => Phase::Draining,
            _ => Phase::Stopping,
        }
    }

    /// Registers `waker` for every change of phase; wakes it now if there was one already.
    pub(crate) fn notify(&self, waker: Arc<mio::Waker>) {
        let mut wakers = self.wakers.lock();
        if self.phase() != Phase::Running {
            wake(&waker);
        }
        wakers.push(waker);
    }

    /// Enters `phase`, unless the server has already reached or passed it.
    pub(crate) fn enter(&self, phase: Phase) {
        if self.phase.fetch_max(phase as u8, Ordering::AcqRel) >= phase as u8 {
            return;
        }
        tracing::info!(phase = phase.name(), "shutting down");
        for waker in self.wakers.lock().iter() {
            wake(waker);
        }
    }
}

impl Lifecycle for Arc<Stopper> {
    fn request_shutdown(&self, graceful: bool) {
        if graceful {
            self.leave();
        } else {
            self.enter(Phase::Stopping);
        }
    }
}

/// Stops the server if the thread that holds it panics, so that no half-dead server keeps running.
pub(crate) struct StopOnPanic(pub(crate) Arc<Stopper>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.enter(Phase::Stopping);
        }
    }
}

/// Wakes an event loop. Fails only if the kernel has no memory; then the loop's next event wakes it.
pub(crate) fn wake(waker: &mio::Waker) {
    if let Err(error) = waker.wake()
        && error.kind() != io::ErrorKind::WouldBlock
    {
        tracing::warn!(%error, "cannot wake an event loop");
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll, Token, Waker};

    use super::*;

    #[test]
    fn a_loop_that_starts_after_a_change_of_phase_is_woken_too() {
        let stopper = Stopper::default();
        let wakes = |stopper: &Stopper| {
            let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(1));
            stopper.notify(Arc::new(Waker::new(poll.registry(), Token(0)).unwrap()));
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            !events.is_empty()
        };
        assert!(!wakes(&stopper));
        stopper.enter(Phase::Draining);
        assert!(wakes(&stopper));
    }
}
