//! `flush_all`: removes everything stored so far, at once or at a given second, also across restarts.
//!
//! A flush is a floor on regions' sequence numbers. It discards the open regions, so that everything stored later lies in newer
//! ones, and makes the number of the next region the *floor*: from then on an index entry that points below the floor counts as
//! absent ([`Inner::find`]). That removes all keys at once. The flush is acknowledged when both copies of every superblock hold
//! the floor. The rest is cleanup: the reclaimer removes the entries from the index ([`crate::reclaim::sweep`]) and then frees
//! the regions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use moneta_index::Position;
use moneta_store::feed::GapCause;
use moneta_store::versions::Floor;
use moneta_store::{ErrorKind, Expiry, Step, StoreError, Version};
use parking_lot::Mutex;

use crate::counters::count;
use crate::flusher::queue::Job;
use crate::index::location::Location;
use crate::index::shard::Shard;
use crate::inner::Inner;
use crate::log::regions::RegionStage;
use crate::operations::attempt::pend;
use moneta_device::devices::TierState;

/// What a flush leaves to clean up.
#[must_use]
struct Emptied {
    regions: Vec<usize>,
}

/// The result of a job, and the waker of the future that waits for it.
type Ending = Arc<Mutex<(Option<Result<(), StoreError>>, Option<Waker>)>>;

/// The end of a job, and what the job calls when it has ended.
fn ending() -> (Ending, impl FnOnce(Result<(), StoreError>) + Send + 'static) {
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
    (ending, tell)
}

fn wait_for(ending: Ending) -> Step<()> {
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

impl Inner {
    /// The current second, after carrying out a pending flush whose second has come.
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
            self.floors.settle(self.clock.now());
            self.log.sequence.raise(self.floors.bound().0);
            let emptied = self.empty(0, |_| {});
            // Last: a thread that sees no pending flush must not see flushed items.
            self.flush_at.store(0, Ordering::Release);
            emptied
        };
        self.clean_up(emptied);
    }

    /// Takes a flush, of this node or another, unless a later one is known.
    /// `newest`: at least every version here.
    pub(crate) fn take_floor(self: &Arc<Self>, floor: Floor, newest: Version) -> Step<()> {
        let now = self.settle();
        if floor.is_local() {
            self.note_untold(GapCause::Lost);
            self.deletes.lose_before(self.clock.millis());
            return self.empty_now(self.flush_at.load(Ordering::Acquire));
        }
        if !self.floors.note(floor, now) {
            // The later one may not be on the device yet: answered once it is.
            let pending = self.flush_at.load(Ordering::Acquire);
            return self.flush((pending != 0).then_some(pending));
        }
        self.log.sequence.raise(floor.version.0.max(self.floors.bound().0));
        self.tell_flushed(floor);
        if floor.waits(now) {
            return self.flush(Some(floor.second));
        }
        // What is newer than a flush from elsewhere stays: reads then look at each record's version.
        let keeps = self.config.versioning.cluster && newest.local() > floor.bound().local();
        if keeps { self.flush(None) } else { self.flush(Some(0)) }
    }

    /// Takes a flush of a client at `moment`, where stamps are no versions.
    pub(crate) fn flush_all(self: &Arc<Self>, moment: Expiry, now: u32) -> Step<()> {
        self.flush(Some(if moment.0 > now { moment.0 } else { 0 }))
    }

    /// Empties the tier now (`Some(0)`), or when that second comes, or only writes down what is known of flushes (`None`).
    fn flush(self: &Arc<Self>, moment: Option<u32>) -> Step<()> {
        if moment == Some(0) {
            return self.empty_now(0);
        }
        let (ending, tell) = ending();
        {
            let _one_at_a_time = self.flushing.lock();
            let moment = moment.unwrap_or(0);
            self.flush_at.store(moment, Ordering::Release);
            self.log.queue.run(self.save_flush(None, moment, tell));
            self.log.count_append();
        }
        wait_for(ending)
    }

    /// Empties the tier. `moment` is that of the flush still pending.
    fn empty_now(&self, moment: u32) -> Step<()> {
        let (ending, tell) = ending();
        let emptied = {
            let _one_at_a_time = self.flushing.lock();
            self.flush_at.store(moment, Ordering::Release);
            self.empty(moment, tell)
        };
        self.clean_up(emptied);
        wait_for(ending)
    }

    /// The index entry of a hash, unless it has been flushed.
    #[inline]
    pub(crate) fn find(&self, shard: &Shard, hash: u64) -> Option<(Position, Location)> {
        shard
            .find(hash)
            .filter(|(_, location)| !self.log.is_flushed(self.regions.get(self.regions.region_of(location.block()))))
    }

    /// Flushes everything stored so far. `moment` is that of the flush still pending, for the superblocks. The caller holds
    /// `flushing` and cleans up afterwards.
    fn empty(&self, moment: u32, told: impl FnOnce(Result<(), StoreError>) + Send + 'static) -> Emptied {
        let (below, mut regions) = self.log.abandon_open();
        // Before anything stored later can be acknowledged: a restart must not flush that too.
        self.log.queue.run(self.save_flush(Some(below), moment, told));
        // Behind the job, so that a wait for everything appended so far includes the flush. What it took is not in the index
        // any more: a change of it appends nothing if devices are off.
        self.log.count_append();
        regions.iter().for_each(|region| self.regions.get(*region).set_state(RegionStage::Reclaiming));
        for (number, region) in self.regions.iter().filter(|(_, region)| (1..below).contains(&region.sequence())) {
            let taken = [RegionStage::Sealed, RegionStage::Written, RegionStage::Closed]
                .map(|from| region.change_state(from, RegionStage::Reclaiming));
            if taken.contains(&true) {
                if let Some(buffer) = region.resident.read().as_ref() {
                    buffer.discard();
                }
                regions.push(number);
            }
        }
        Emptied { regions }
    }

    /// Has the flushed regions freed once no index entry points to them.
    fn clean_up(&self, emptied: Emptied) {
        let reclaim = Arc::clone(&self.reclaim);
        // After the job that writes the superblocks.
        self.log.queue.run(Box::new(move || reclaim.leave_flushed(emptied.regions)));
        self.log.queue.note_room();
    }

    /// The job that writes a flush to the superblocks: the new floor, and the moment of a pending flush. It runs on the flusher's
    /// thread, which may block.
    fn save_flush(
        &self,
        below: Option<u64>,
        moment: u32,
        told: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) -> Job {
        let (devices, log, counters) = (Arc::clone(&self.devices), Arc::clone(&self.log), Arc::clone(&self.counters));
        let (floors, missing) = (self.floors.saved(), self.missing());
        Box::new(move || {
            // A flush of this copy alone takes changes that no feed tells of any more, and deletes that are not known any more.
            devices.note_feed_from(missing);
            let mut state = devices.state();
            state.flush_at = moment;
            (state.floor_version, state.floor_from, state.floor_bound) = floors;
            if let Some(below) = below {
                state.flushed_below = state.flushed_below.max(below);
                state.abandoned = false;
            }
            let saved = devices.save_twice(&state);
            if let Err(error) = &saved {
                count(&counters.io_errors, 1);
                // Until this is written, a restart would bring back flushed items, so it is retried.
                log.queue.note_outdated();
                log.queue.turn_off(error);
            }
            told(saved.map_err(|error| {
                StoreError::new(ErrorKind::Device, "the flush is not on the device yet").with_source(error)
            }));
        })
    }

    /// Marks the devices outdated after a change that could not be written: their version of the key must never be served again.
    /// Superblocks that can be written say so at once, in case the node ends before the devices answer again.
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
        // After the mark, so that a wait for everything appended so far includes this flush. The tier may have come back between
        // the round's check of the mark and now.
        self.log.count_append();
    }

    /// Devices answer again. They missed all changes made meanwhile, so everything they hold is flushed, by jobs.
    pub(crate) fn came_back(&self) {
        if self.log.queue.take_outdated() {
            self.note_untold(GapCause::Off);
            tracing::warn!("items on the SSD were changed while it was off: the SSD tier starts empty");
            let emptied = {
                let _one_at_a_time = self.flushing.lock();
                self.empty(self.flush_at.load(Ordering::Acquire), |_| {})
            };
            self.clean_up(emptied);
        }
    }
}
