//! What all parts of this process share.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::leases::Moment;
use crate::state::State;

/// What all parts share.
#[derive(Debug)]
pub(crate) struct Shared {
    // Held for a look or a change in RAM, never across a wait. All who take it are on the runtime's one thread but `/metrics`.
    pub(crate) state: Mutex<State>,
    /// When the process began: moments are counted from there.
    began: Instant,
    /// Readers of feeds.
    pub(crate) readers: AtomicU64,
    /// Renewals that were answered.
    pub(crate) renewals: AtomicU64,
    /// Probes, by what came of them: answers, refused, silent.
    pub(crate) probes: [AtomicU64; 3],
    /// Instances that became away.
    pub(crate) left: AtomicU64,
    /// Times that the state was read anew.
    pub(crate) resyncs: AtomicU64,
    /// Comparisons with the ledger, and keys that were not as there.
    pub(crate) compared: AtomicU64,
    pub(crate) differing: AtomicU64,
    pub(crate) tasks: TaskEvents,
}

/// What happened with tasks of jobs here.
#[derive(Debug, Default)]
pub(crate) struct TaskEvents {
    /// Renewals of tasks that were answered.
    pub(crate) renewed: AtomicU64,
    /// Of these, those that came later than a lease.
    pub(crate) late: AtomicU64,
    /// What was said under a term that is over.
    pub(crate) refused: AtomicU64,
    /// Tasks that were given to another worker because theirs fell silent.
    pub(crate) taken_over: AtomicU64,
}

impl Shared {
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            state: Mutex::new(State::new(u64::try_from(period.as_millis()).unwrap_or(30_000))),
            began: Instant::now(),
            readers: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            probes: Default::default(),
            left: AtomicU64::new(0),
            resyncs: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            differing: AtomicU64::new(0),
            tasks: TaskEvents::default(),
        }
    }

    /// The state, which is out of step if the ledger has told nothing for too long.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.age(self.now());
        state
    }

    /// Now, by the monotonic clock.
    pub(crate) fn now(&self) -> Moment {
        // From one on, so that nothing is at the beginning of time.
        Moment(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1))
    }
}
