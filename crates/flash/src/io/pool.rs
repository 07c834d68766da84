//! Threads that read for requests where there is no ring.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use moneta_store::offload::Offload;
use parking_lot::Mutex;

use super::aligned::Aligned;
use super::counters::{ReadCounters, Tally};
use super::media::Media;
use crate::error::FlashError;

/// A few threads that take reads in order. Dropping it ends what is queued, then the threads; a waker that held the last handle
/// may drop it on one of them.
pub(super) struct Pool {
    threads: Offload,
    devices: Arc<Devices>,
}

struct Devices {
    media: Vec<Arc<dyn Media>>,
    counters: Arc<ReadCounters>,
}

/// A read under way on the pool; shared by who waits for it and by the thread that does it.
pub(super) struct Task {
    device: usize,
    offset: u64,
    bytes: usize,
    asked: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waker: Option<Waker>,
    outcome: Option<io::Result<Aligned>>,
    /// Nobody waits any more.
    abandoned: bool,
}

impl Pool {
    pub(super) fn start(
        media: Vec<Arc<dyn Media>>,
        threads: usize,
        counters: Arc<ReadCounters>,
    ) -> Result<Self, FlashError> {
        let threads = Offload::start("flash-read", threads)
            .map_err(|source| FlashError::Start { what: "a thread that reads", source })?;
        Ok(Self { threads, devices: Arc::new(Devices { media, counters }) })
    }

    pub(super) fn read(&self, device: usize, offset: u64, bytes: usize) -> Arc<Task> {
        let task = Arc::new(Task { device, offset, bytes, asked: Instant::now(), state: Mutex::default() });
        self.devices.counters.change_in_flight(0, 1);
        let (devices, queued) = (Arc::clone(&self.devices), Arc::clone(&task));
        self.threads.execute(move || {
            if !queued.state.lock().abandoned {
                devices.perform(&queued);
            }
            devices.counters.change_in_flight(1, 0);
        });
        task
    }
}

impl Devices {
    fn perform(&self, task: &Task) {
        let mut buffer = Aligned::recycled(task.bytes);
        let outcome = self.media[task.device].read_at(&mut buffer, task.offset).map(|()| buffer);
        let mut tally = Tally::default();
        tally.note(outcome.is_ok().then_some(task.bytes), task.asked.elapsed());
        self.counters.add(&mut tally);
        task.finish(outcome);
    }
}

impl Task {
    fn finish(&self, outcome: io::Result<Aligned>) {
        let waker = {
            let mut state = self.state.lock();
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
