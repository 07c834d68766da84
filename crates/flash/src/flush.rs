//! `flush_all`: everything stored so far goes, at once or at a moment, and stays gone after a restart.
//!
//! What is flushed is told by regions' sequence numbers: open regions are thrown away, so that all that is stored from now on
//! lies in newer ones; then every entry of the index that points below goes; then the number is written to the superblocks,
//! and only then are the regions free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use moneta_store::{ErrorKind, Step, StoreError};
use parking_lot::Mutex;

use crate::attempt::pend;
use crate::counters::count;
use crate::devices::TierState;
use crate::engine::Inner;
use crate::flusher::{FlushQueue, Job};
use crate::regions::State;

/// What a flush leaves to be done on devices.
struct Emptied {
    below: u64,
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
        let _one_at_a_time = self.flushing.lock();
        if self.flush_at.compare_exchange(moment, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let emptied = self.empty();
            self.log.queue.run(self.persist(Some(emptied), |_| {}));
        }
    }

    /// Flushes now, with `moment` 0, or when that second comes.
    pub(crate) fn flush(self: &Arc<Self>, moment: u32) -> Step<()> {
        self.settle();
        let ending = Ending::default();
        {
            let _one_at_a_time = self.flushing.lock();
            self.flush_at.store(moment, Ordering::Release);
            let emptied = (moment == 0).then(|| self.empty());
            let told = Arc::clone(&ending);
            self.log.queue.run(self.persist(emptied, move |ended| {
                let waker = {
                    let mut ending = told.lock();
                    ending.0 = Some(ended);
                    ending.1.take()
                };
                waker.into_iter().for_each(Waker::wake);
            }));
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

    /// Takes everything stored so far out of the index.
    fn empty(&self) -> Emptied {
        let (below, mut regions) = self.log.abandon_open();
        regions.iter().for_each(|region| self.regions.get(*region).set_state(State::Reclaiming));
        for (number, region) in self.regions.iter().filter(|(_, region)| (1..below).contains(&region.sequence())) {
            let taken = [State::Sealed, State::Closed].map(|from| region.change_state(from, State::Reclaiming));
            if taken.contains(&true) {
                if let Some(buffer) = region.resident.read().as_ref() {
                    buffer.discard();
                }
                regions.push(number);
            }
        }
        for shard in self.shards() {
            shard
                .lock()
                .remove_where(|location| self.regions.get(self.regions.region_of(location.block())).sequence() < below);
        }
        Emptied { below, regions }
    }

    /// What writes a flush to the superblocks and frees its regions, for the thread that may block.
    fn persist(&self, emptied: Option<Emptied>, told: impl FnOnce(Result<(), StoreError>) + Send + 'static) -> Job {
        let (devices, log, counters) = (Arc::clone(&self.devices), Arc::clone(&self.log), Arc::clone(&self.counters));
        let moment = self.flush_at.load(Ordering::Acquire);
        Box::new(move || {
            let mut state = devices.state();
            state.flush_at = moment;
            if let Some(emptied) = &emptied {
                state.flushed_below = state.flushed_below.max(emptied.below);
                state.abandoned = false;
            }
            let saved = devices.save(&state);
            for region in emptied.into_iter().flat_map(|emptied| emptied.regions) {
                log.regions.get(region).end();
                log.regions.give_back(region);
            }
            FlushQueue::note_room(&log.queue);
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
                if let Err(error) = devices.save(&state) {
                    tracing::warn!(%error, "a restart before the device answers again may find items out of date");
                }
            }));
        }
    }

    /// Devices answer again. What was changed meanwhile they know nothing of, so all they hold goes.
    pub(crate) fn came_back(&self) {
        if self.log.queue.take_outdated() {
            tracing::warn!("items on the SSD were changed while it was off: the SSD tier starts empty");
            let _one_at_a_time = self.flushing.lock();
            let emptied = self.empty();
            self.log.queue.run(self.persist(Some(emptied), |_| {}));
        }
    }
}
