//! The phases of a server's life, seen by all of its threads.
//!
//! ```text
//! running ──> draining ──> stopping
//!    └──────────────────────^
//! ```
//! Running: connections are accepted and served. Draining: none are accepted, what is in flight is finished, and a
//! connection is closed as soon as it has nothing left. Stopping: everything is closed at once. No phase is ever left for
//! an earlier one.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::node::Lifecycle;

/// Where a server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Accepting and serving.
    Running,
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
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        }
    }
}

/// The current phase and those to be woken when it changes.
#[derive(Debug, Default)]
pub(crate) struct Stopper {
    phase: AtomicU8,
    // Taken a few times in a server's life; a signal's thread, a worker and the admin side may meet here.
    wakers: Mutex<Vec<Arc<mio::Waker>>>,
}

impl Stopper {
    /// The phase now.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Stopping,
        }
    }

    /// Lets `waker` be woken at every change of phase, and now if there was one already.
    pub(crate) fn notify(&self, waker: Arc<mio::Waker>) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
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
        for waker in self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            wake(waker);
        }
    }
}

impl Lifecycle for Arc<Stopper> {
    fn request_shutdown(&self, graceful: bool) {
        self.enter(if graceful { Phase::Draining } else { Phase::Stopping });
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
    use std::time::Duration;

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
