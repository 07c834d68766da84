//! A pool of threads that read for requests where there is no ring.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use moneta_store::offload::Offload;
use parking_lot::Mutex;
use slab::Slab;

use super::counters::{ReadCounters, Tally};
use super::media::Media;
use super::patience::Patience;
use crate::error::TierError;
use crate::io::running::Deadline;
use moneta_store::aligned::Aligned;

/// A few threads that take reads in order. Dropping the pool fails queued reads, then ends the threads, except those that a
/// device blocks too long. A waker that held the last handle may drop the pool on one of its threads.
pub(super) struct Pool {
    threads: Offload,
    devices: Arc<Devices>,
}

struct Devices {
    media: Vec<Arc<dyn Media>>,
    counters: Arc<ReadCounters>,
    patience: Arc<Patience>,
    /// Reads that are queued or in progress.
    under_way: Mutex<Slab<Arc<Task>>>,
}

/// A read of the pool, shared by its waiter and the thread that does it.
pub(super) struct Task {
    device: usize,
    offset: u64,
    bytes: usize,
    asked: Instant,
    deadline: Deadline,
    state: Mutex<TaskState>,
}

#[derive(Default)]
struct TaskState {
    waker: Option<Waker>,
    outcome: Option<io::Result<Aligned>>,
    /// A thread has taken it.
    begun: bool,
    /// No request waits any more.
    abandoned: bool,
    /// It was late: its outcome is a timeout.
    late: bool,
}

impl Pool {
    pub(super) fn start(
        media: Vec<Arc<dyn Media>>,
        threads: usize,
        counters: Arc<ReadCounters>,
        patience: Arc<Patience>,
    ) -> Result<Self, TierError> {
        let threads = Offload::start("flash-read", threads)
            .map_err(|source| TierError::Start { what: "a thread that reads", source })?;
        let under_way = Mutex::default();
        Ok(Self { threads, devices: Arc::new(Devices { media, counters, patience, under_way }) })
    }

    pub(super) fn read(&self, device: usize, offset: u64, bytes: usize) -> Arc<Task> {
        let (asked, deadline) = (Instant::now(), self.devices.patience.deadline());
        let task = Arc::new(Task { device, offset, bytes, asked, deadline, state: Mutex::default() });
        self.devices.counters.change_in_flight(0, 1);
        let (devices, queued) = (Arc::clone(&self.devices), Arc::clone(&task));
        let entry = devices.under_way.lock().insert(Arc::clone(&task));
        self.threads.execute(move || {
            let outcome = queued.begin().then(|| devices.perform(&queued));
            devices.under_way.lock().remove(entry);
            if let Some(outcome) = outcome {
                queued.finish(outcome, &devices.counters);
            }
            devices.counters.change_in_flight(1, 0);
        });
        task
    }

    /// Fails late reads for their waiters. A thread that a device blocks keeps the buffer.
    pub(super) fn give_up_late(&self) {
        let Devices { counters, patience, under_way, .. } = &*self.devices;
        let now = Instant::now();
        let is_late = |task: &Arc<Task>| patience.is_late(task.deadline);
        let late: Vec<_> =
            under_way.lock().iter().map(|(_, task)| task).filter(|task| is_late(task)).cloned().collect();
        let (mut tally, mut wakers) = (Tally::default(), Vec::new());
        for task in late {
            let mut state = task.state.lock();
            if state.late || state.abandoned || state.outcome.is_some() {
                continue;
            }
            state.late = true;
            state.outcome = Some(Err(patience.late()));
            wakers.extend(state.waker.take());
            tally.note(None, now.duration_since(task.asked));
            // A read that still waits for a thread says nothing about its device.
            if state.begun {
                patience.note_late(task.device);
            }
        }
        // Before the wakes, so that counters are up to date when the request fails.
        counters.add(&mut tally);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.threads.close_by(Instant::now() + self.devices.patience.limit()) {
            tracing::error!("a device does not end reads: the threads that wait for it are left behind");
        }
    }
}

impl Devices {
    fn perform(&self, task: &Task) -> io::Result<Aligned> {
        let mut buffer = Aligned::recycled(task.bytes);
        let outcome = self.media[task.device].read_at(&mut buffer, task.offset);
        self.patience.note_answer(task.device);
        outcome.map(|()| buffer)
    }
}

impl Task {
    /// Takes the task for this thread; false if it needs no read any more.
    fn begin(&self) -> bool {
        let mut state = self.state.lock();
        state.begun = true;
        !state.abandoned && !state.late
    }

    fn finish(&self, outcome: io::Result<Aligned>, counters: &ReadCounters) {
        let waker = {
            let mut state = self.state.lock();
            if state.late {
                return;
            }
            let mut tally = Tally::default();
            tally.note(outcome.is_ok().then_some(self.bytes), self.asked.elapsed());
            counters.add(&mut tally);
            state.outcome = Some(outcome);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<Aligned>> {
        let mut state = self.state.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
                Poll::Pending
            }
        }
    }

    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        state.abandoned = true;
        state.waker = None;
    }
}
