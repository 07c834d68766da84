//! What the flusher has to do, and what it has done.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_store::{ErrorKind, StoreError};
use parking_lot::{Condvar, Mutex};

use super::health::{Health, off};
use super::waiting::{Goal, Wait, Waiters};
use crate::log::Sealed;

/// Something to be done before a round's writes by the thread that may block.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// What the flusher has to do, and what it has done.
pub(crate) struct FlushQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    /// Appends up to this number are on the devices.
    durable: AtomicU64,
    nudged: AtomicBool,
    pub(super) health: Health,
    /// The flusher is gone: what is not durable yet never will be.
    ended: AtomicBool,
    pub(super) waiters: Waiters,
    /// How long a request waits.
    limit: Duration,
    /// Rounds of reclaiming that ended with a region free; who waits for room looks at it.
    freed: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    sealed: VecDeque<Sealed>,
    /// A request waits for everything appended so far.
    commit: bool,
    jobs: Vec<Job>,
    stop: Stop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stop {
    #[default]
    No,
    /// Write everything, then end.
    AfterFlush,
    /// End at once.
    Now,
}

/// What woke the flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// Write open regions and sync.
    pub(super) commit: bool,
    /// Write what open regions have piled up.
    pub(super) eager: bool,
    /// The flush interval, or the time until devices are tried again, is over.
    pub(super) tick: bool,
    pub(super) stop: Stop,
}

impl FlushQueue {
    /// Bytes that an open region may pile up before they are written early.
    pub(crate) const EAGER_BYTES: usize = 1 << 20;

    /// An empty queue; requests wait for `limit` at most.
    pub(crate) fn new(limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            durable: AtomicU64::new(0),
            nudged: AtomicBool::new(false),
            health: Health::new(),
            ended: AtomicBool::new(false),
            waiters: Waiters::default(),
            limit,
            freed: AtomicU64::new(0),
        })
    }

    pub(crate) fn push(&self, sealed: Sealed) {
        self.state.lock().sealed.push_back(sealed);
        self.work.notify_one();
    }

    /// Asks for a round soon.
    pub(crate) fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            // Under the lock, so that it cannot fall between the flusher's look and its sleep.
            let _state = self.state.lock();
            self.work.notify_one();
        }
    }

    /// Asks for a round that syncs.
    pub(crate) fn ask_sync(&self) {
        self.state.lock().commit = true;
        self.work.notify_one();
    }

    /// Has the flusher do something.
    pub(crate) fn run(&self, job: Job) {
        self.state.lock().jobs.push(job);
        self.work.notify_one();
    }

    /// Stops the flusher, after it has written everything or at once.
    pub(crate) fn stop(&self, flush: bool) {
        self.state.lock().stop = if flush { Stop::AfterFlush } else { Stop::Now };
        self.work.notify_one();
    }

    /// Fails if the flusher is to end without writing any more.
    pub(super) fn go_on(&self) -> io::Result<()> {
        match self.state.lock().stop {
            Stop::Now => Err(io::Error::other("the SSD tier was told to stop at once")),
            Stop::No | Stop::AfterFlush => Ok(()),
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.health.is_off()
    }

    pub(crate) fn is_worn_out(&self) -> bool {
        self.health.is_worn_out()
    }

    /// Takes no writes any more: too few regions are left.
    pub(crate) fn wear_out(&self) {
        if self.health.wear_out() {
            tracing::error!("so many regions have bad blocks that the SSD tier is off: replace the device");
        }
        self.waiters.wake(|_| true);
    }

    /// Takes note that devices hold what must not be served any more. True if that was not known before.
    pub(crate) fn note_outdated(&self) -> bool {
        self.health.note_outdated()
    }

    /// Whether devices hold what must not be served any more; from now on they do not.
    pub(crate) fn take_outdated(&self) -> bool {
        self.health.take_outdated()
    }

    /// Takes no writes until a device has taken one.
    pub(crate) fn turn_off(&self, error: &io::Error) {
        if self.health.turn_off() {
            tracing::error!(%error, "cannot write to a device: the SSD tier is off until it answers again");
        }
        self.waiters.wake(|_| true);
    }

    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Says that there is room again.
    pub(crate) fn note_room(&self) {
        self.freed.fetch_add(1, Ordering::AcqRel);
        self.waiters.wake(|goal| matches!(goal, Goal::Room(_)));
    }

    /// Appends up to this number are on the devices.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Appends up to `number` are on the devices.
    pub(super) fn note_durable(&self, number: u64) {
        self.durable.fetch_max(number, Ordering::AcqRel);
        self.waiters.wake(|goal| matches!(goal, Goal::Durable(waited) if waited <= number));
    }

    /// When a request that begins to wait now has waited for too long.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Waits for `goal`, as a request does: not beyond its deadline.
    pub(crate) fn wait_until(self: &Arc<Self>, goal: Goal, deadline: Instant) -> Wait {
        self.ask(goal);
        Wait::new(Arc::clone(self), goal, Some(deadline))
    }

    /// Waits for `goal` for as long as devices take writes, if slowly.
    pub(crate) fn wait(self: &Arc<Self>, goal: Goal) -> Wait {
        self.ask(goal);
        Wait::new(Arc::clone(self), goal, None)
    }

    fn ask(&self, goal: Goal) {
        if matches!(goal, Goal::Durable(_)) {
            self.ask_sync();
        }
    }

    /// What has become of `goal`, if anything.
    pub(super) fn outcome(&self, goal: Goal) -> Option<Result<(), StoreError>> {
        let reached = match goal {
            Goal::Durable(number) => self.durable() >= number,
            Goal::Room(before) => self.freed() > before,
        };
        if reached {
            return Some(Ok(()));
        }
        if self.ended.load(Ordering::Acquire) {
            return Some(Err(StoreError::new(ErrorKind::Unavailable, "the SSD tier is closed")));
        }
        self.is_off().then(|| Err(off()))
    }

    /// Wakes requests that have waited too long, until the end. If that is because a call of a device does not return, no
    /// other request waits for that: the tier is off until it does. `look` is called every `every`.
    pub(crate) fn watch(&self, every: Duration, look: impl Fn()) {
        self.waiters.watch(|| self.look(), every, look);
    }

    /// Turns the tier off if a call of a device does not return.
    pub(crate) fn look(&self) {
        if self.health.is_stuck(self.limit) {
            let reason = format!("a write has not ended in {} ms", self.limit.as_millis());
            self.turn_off(&io::Error::new(io::ErrorKind::TimedOut, reason));
        }
    }

    /// Lets no request wait for a flusher that is gone.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.waiters.wake(|_| true);
        self.waiters.end();
    }

    /// Sleeps until there is something to do, or until `next_tick`.
    pub(super) fn next_round(&self, next_tick: Instant) -> Round {
        let mut state = self.state.lock();
        loop {
            let is_off = self.is_off();
            let eager = self.nudged.swap(false, Ordering::AcqRel) && !is_off;
            let tick = Instant::now() >= next_tick;
            let sealed = !state.sealed.is_empty() && !is_off;
            let commit = state.commit && !is_off;
            let stop = state.stop;
            if tick || eager || sealed || commit || !state.jobs.is_empty() || stop != Stop::No {
                state.commit = false;
                return Round { commit: commit || tick || stop == Stop::AfterFlush, eager, tick, stop };
            }
            self.work.wait_until(&mut state, next_tick);
        }
    }

    /// Takes what is to be done besides writing.
    pub(super) fn take_jobs(&self) -> Vec<Job> {
        std::mem::take(&mut self.state.lock().jobs)
    }

    /// Takes the regions that are full and what else is to be done.
    pub(super) fn take(&self) -> (VecDeque<Sealed>, Vec<Job>) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.sealed), std::mem::take(&mut state.jobs))
    }
}
