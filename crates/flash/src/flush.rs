//! `flush_all`: everything stored so far goes, at once or at a moment, and stays gone after a restart.
//!
//! What is flushed is told by regions' sequence numbers. Open regions are thrown away, so that all that is stored from now on
//! lies in newer ones, and the number of the next region becomes the *floor*: from that moment an entry of the index that points
//! below it is none ([`Inner::find`]). That is the flush, for all keys at once. It is answered when both copies of every superblock
//! have the number. What follows only cleans up: the reclaimer takes the entries out of the index ([`crate::sweep`]), and then
//! the regions are free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use moneta_index::Position;
use moneta_store::{ErrorKind, Step, StoreError};
use parking_lot::Mutex;

use crate::attempt::pend;
use crate::counters::count;
use crate::devices::TierState;
use crate::engine::Inner;
use crate::flusher::Job;
use crate::location::Location;
use crate::regions::State;
use crate::shard::Shard;

/// What a flush leaves to be cleaned up.
#[must_use]
struct Emptied {
    regions: Vec<usize>,
}

/// Where the end of a job is left for who waits for it.
type Ending = Arc<Mutex<(Option<Result<(), StoreError>>, Option<Waker>)>>;

impl Inner {
    /// The current second, after a flush whose moment has come has happened.
    pub(crate) fn settle(&self) -> u32 {
        let now = self.clock.now();
        let moment = self.flush_at.load(Ordering::Acquire);
        if moment != 0 && moment <= now {
            self.flush_due(moment);
        }
        now
    }

    #[cold]
    fn flush_due(&self, moment: u32) {
        let emptied = {
            let _one_at_a_time = self.flushing.lock();
            if self.flush_at.load(Ordering::Acquire) != moment {
                return;
            }
            let emptied = self.empty(0, |_| {});
            // Last: who finds no flush that waits must find none of what it took.
            self.flush_at.store(0, Ordering::Release);
            emptied
        };
        self.clean_up(emptied);
    }

    /// Flushes now, with `moment` 0, or when that second comes.
    pub(crate) fn flush(self: &Arc<Self>, moment: u32) -> Step<()> {
        self.settle();
        let ending = Ending::default();
        let told = Arc::clone(&ending);
        let tell = move |ended| {
            let waker = {
                let mut ending = told.lock();
                ending.0 = Some(ended);
                ending.1.take()
            };
            waker.into_iter().for_each(Waker::wake);
        };
        let emptied = {
            let _one_at_a_time = self.flushing.lock();
            self.flush_at.store(moment, Ordering::Release);
            if moment == 0 {
                Some(self.empty(0, tell))
            } else {
                self.log.queue.run(self.save_flush(None, moment, tell));
                None
            }
        };
        if let Some(emptied) = emptied {
            self.clean_up(emptied);
        }
        Step::Wait(pend(std::future::poll_fn(move |cx| {
            let mut ending = ending.lock();
            match ending.0.take() {
                Some(ended) => Poll::Ready(ended),
                None => {
                    ending.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })))
    }

    /// What the index means by a hash, unless a flush has taken it.
    #[inline]
    pub(crate) fn find(&self, shard: &Shard, hash: u64) -> Option<(Position, Location)> {
        shard
            .find(hash)
            .filter(|(_, location)| !self.log.is_flushed(self.regions.get(self.regions.region_of(location.block()))))
    }

    /// Flushes everything stored so far. `moment`: of the flush that still waits, as superblocks are to have it. The caller has
    /// `flushing` locked, and cleans up afterwards.
    fn empty(&self, moment: u32, told: impl FnOnce(Result<(), StoreError>) + Send + 'static) -> Emptied {
        let (below, mut regions) = self.log.abandon_open();
        // Before anything that is stored later can be acknowledged: a restart must not flush that too.
        self.log.queue.run(self.save_flush(Some(below), moment, told));
        regions.iter().for_each(|region| self.regions.get(*region).set_state(State::Reclaiming));
        for (number, region) in self.regions.iter().filter(|(_, region)| (1..below).contains(&region.sequence())) {
            let taken =
                [State::Sealed, State::Written, State::Closed].map(|from| region.change_state(from, State::Reclaiming));
            if taken.contains(&true) {
                if let Some(buffer) = region.resident.read().as_ref() {
                    buffer.discard();
                }
                regions.push(number);
            }
        }
        Emptied { regions }
    }

    /// Has the regions that were flushed freed, when nothing is left of them in the index.
    fn clean_up(&self, emptied: Emptied) {
        let reclaim = Arc::clone(&self.reclaim);
        // Behind the job that writes the flush down.
        self.log.queue.run(Box::new(move || reclaim.leave_flushed(emptied.regions)));
        self.log.queue.note_room();
    }

    /// What writes a flush to the superblocks, for the thread that may block: one that took everything below a region's number,
    /// and the moment of one that waits.
    fn save_flush(
        &self,
        below: Option<u64>,
        moment: u32,
        told: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) -> Job {
        let (devices, log, counters) = (Arc::clone(&self.devices), Arc::clone(&self.log), Arc::clone(&self.counters));
        Box::new(move || {
            let mut state = devices.state();
            state.flush_at = moment;
            if let Some(below) = below {
                state.flushed_below = state.flushed_below.max(below);
                state.abandoned = false;
            }
            let saved = devices.save_twice(&state);
            if let Err(error) = &saved {
                count(&counters.io_errors, 1);
                // Until it is written, a restart would bring back what is flushed: so it is tried again.
                log.queue.note_outdated();
                log.queue.turn_off(error);
            }
            told(saved.map_err(|error| {
                StoreError::new(ErrorKind::Device, "the flush is not on the device yet").with_source(error)
            }));
        })
    }

    /// Takes note of a change that devices could not be told: what they hold of the key must never be served again. A
    /// device that takes writes of a superblock is told at once, in case the node ends before the devices answer again.
    #[cold]
    pub(crate) fn outdate(&self) {
        if self.log.queue.note_outdated() {
            let devices = Arc::clone(&self.devices);
            self.log.queue.run(Box::new(move || {
                let state = TierState { abandoned: true, ..devices.state() };
                if let Err(error) = devices.save_twice(&state) {
                    tracing::warn!(%error, "a restart before the device answers again may find items out of date");
                }
            }));
        }
        // Behind the note: what waits for everything appended so far waits until that is flushed, too. The tier may have come back
        // between the round's look at the note and now.
        self.log.count_append();
    }

    /// Devices answer again. What was changed meanwhile they know nothing of, so all they hold goes: jobs write that down.
    pub(crate) fn came_back(&self) {
        if self.log.queue.take_outdated() {
            tracing::warn!("items on the SSD were changed while it was off: the SSD tier starts empty");
            let emptied = {
                let _one_at_a_time = self.flushing.lock();
                self.empty(self.flush_at.load(Ordering::Acquire), |_| {})
            };
            self.clean_up(emptied);
        }
    }
}
