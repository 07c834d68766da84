//! The phases of a server's life, seen by all of its threads.
//!
//! ```text
//! running ──> lame duck ──> draining ──> stopping
//!    └────────────┴──────────────────────^
//! ```
//! Running: connections are accepted and served. Lame duck: the same, while `/readyz` says already that the node leaves, so
//! that balancers look elsewhere before a connection is refused; no time is spent here unless a time is set. Draining: none are accepted, what is in flight is finished, and a
//! connection is closed as soon as it has nothing left. Stopping: everything is closed at once. No phase is ever left for
//! an earlier one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::node::Lifecycle;

/// Where a server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Accepting and serving.
    Running,
    /// Accepting and serving, for those who have not heard yet that the node leaves.
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

/// The current phase and those to be woken when it changes.
#[derive(Debug, Default)]
pub(crate) struct Stopper {
    phase: AtomicU8,
    /// How long it accepts on when it is to drain.
    lame_duck: Duration,
    // Taken a few times in a server's life; a signal's thread, a worker and the admin side may meet here.
    wakers: Mutex<Vec<Arc<mio::Waker>>>,
}

impl Stopper {
    /// A server that runs, and that accepts on for `lame_duck` when it is to drain.
    pub(crate) fn new(lame_duck: Duration) -> Self {
        Self { lame_duck, ..Self::default() }
    }

    /// How long it accepts on when it is to drain.
    pub(crate) fn lame_duck(&self) -> Duration {
        self.lame_duck
    }

    /// Begins to leave: by way of the lame duck's time, if there is one.
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

    /// Lets `waker` be woken at every change of phase, and now if there was one already.
    pub(crate) fn notify(&self, waker: Arc<mio::Waker>) {
        let mut wakers = self.wakers.lock();
        if self.phase() != Phase::Running {
            wake(&waker);
        }
        wakers.push(waker);
    }

    /// Enters `phase`, unless it is there or past it already.
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

/// Stops the server if the thread that holds it panics, so that a half-dead server does not go on.
pub(crate) struct StopOnPanic(pub(crate) Arc<Stopper>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.enter(Phase::Stopping);
        }
    }
}

/// Wakes an event loop. It fails only when the kernel has no memory for it, and then the loop's next event does.
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
