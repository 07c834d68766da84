//! The phases of a process that serves, shared by all of its threads.
//!
//! ```text
//! running ──> lame duck ──> draining ──> stopping
//!    └────────────┴──────────────────────^
//! ```
//! Running: connections are accepted and served. Lame duck: the same, but `/readyz` already fails, so that load balancers stop
//! using the process before it refuses connections; skipped unless a time is set. Draining: no connections are accepted, requests
//! in flight are finished, and a connection is closed as soon as it has nothing left. Stopping: everything is closed at once.
//! A phase never changes to an earlier one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// The phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Accepting and serving.
    Running,
    /// Accepting and serving, for clients that do not know yet that the process is leaving.
    LameDuck,
    /// Finishing what is in flight.
    Draining,
    /// Closing everything.
    Stopping,
}

impl Phase {
    /// The phase's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::LameDuck => "draining: still accepting",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
        }
    }
}

/// Wakes an event loop.
type Wake = Box<dyn Fn() + Send + Sync>;

/// The current phase, and who is woken when it changes.
#[derive(Default)]
pub struct Phases {
    phase: AtomicU8,
    /// How long the process keeps accepting before it drains, milliseconds.
    lame_duck: AtomicU64,
    // Taken a few times in a process's life, by the signal thread, a worker or the admin side.
    wakers: Mutex<Vec<Wake>>,
}

impl fmt::Debug for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phases").field("phase", &self.phase()).finish_non_exhaustive()
    }
}

impl Phases {
    /// How long it accepts on when it is to drain.
    pub fn lame_duck(&self) -> Duration {
        Duration::from_millis(self.lame_duck.load(Ordering::Relaxed))
    }

    /// Sets how long it accepts on when it is to drain; zero: not at all.
    pub fn set_lame_duck(&self, duration: Duration) {
        self.lame_duck.store(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Asks the process to stop and returns at once; gracefully: connections are drained first.
    pub fn request_shutdown(&self, graceful: bool) {
        if graceful {
            self.leave();
        } else {
            self.enter(Phase::Stopping);
        }
    }

    /// Begins to leave: enters the lame-duck phase if it has a duration, else drains.
    pub fn leave(&self) {
        self.enter(if self.lame_duck().is_zero() { Phase::Draining } else { Phase::LameDuck });
    }

    /// The phase now.
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::LameDuck,
            2 => Phase::Draining,
            _ => Phase::Stopping,
        }
    }

    /// Calls `wake` at every change of phase, and now if there was one already. It must not wait.
    pub fn notify(&self, wake: impl Fn() + Send + Sync + 'static) {
        let mut wakers = self.wakers.lock();
        if self.phase() != Phase::Running {
            wake();
        }
        wakers.push(Box::new(wake));
    }

    /// Wakes all that are woken at a change of phase, as something else has changed that they look at.
    pub fn wake_all(&self) {
        self.wakers.lock().iter().for_each(|wake| wake());
    }

    /// Enters `phase`, unless the process has already reached or passed it.
    pub fn enter(&self, phase: Phase) {
        if self.phase.fetch_max(phase as u8, Ordering::AcqRel) >= phase as u8 {
            return;
        }
        tracing::info!(phase = phase.name(), "shutting down");
        self.wake_all();
    }
}

/// Stops the process if the thread that holds it panics, so that no half-dead server keeps running.
#[derive(Debug)]
pub struct StopOnPanic(pub Arc<Phases>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.enter(Phase::Stopping);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_loop_that_starts_after_a_change_of_phase_is_woken_too() {
        let (phases, woken) = (Phases::default(), Arc::new(AtomicU32::new(0)));
        let notify = |phases: &Phases| {
            let woken = Arc::clone(&woken);
            phases.notify(move || {
                woken.fetch_add(1, Ordering::Relaxed);
            });
        };
        notify(&phases);
        assert_eq!(woken.load(Ordering::Relaxed), 0);
        phases.enter(Phase::Draining);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        notify(&phases);
        assert_eq!(woken.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_phase_never_changes_to_an_earlier_one() {
        let phases = Phases::default();
        phases.set_lame_duck(Duration::from_secs(1));
        phases.request_shutdown(true);
        assert_eq!(phases.phase(), Phase::LameDuck);
        phases.request_shutdown(false);
        phases.request_shutdown(true);
        assert_eq!(phases.phase(), Phase::Stopping);
    }
}
